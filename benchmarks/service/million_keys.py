"""A million client keys in SQLite: memory, look-ups, and a reload beside a running event loop.

Run: python benchmarks/service/million_keys.py [--json] [--quick]

A process that knows nothing opens the keys as a gateway does and looks some of them up. Then its
event loop turns every millisecond while, in other processes, a key is revoked, keys are added in
bulk and a new snapshot is made. A stall is the time by which the loop turns late. Other processes
of the machine cause some as well, so there are three reloads, and the least of their longest stalls
counts: what a reload itself causes comes each time. The loop without a reload is the control.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from rows import Row, at_least, at_most, main, reported

from mildroute.serving.auth.database_store import DatabaseKeyStore
from mildroute.serving.auth.keys import add_clients, revoke_key

BATCH = 100_000
SETTINGS = {"requests_per_minute": 60, "dollars_per_day": 5.0, "models": ["mildroute"]}
GATEWAY = """
import asyncio, json, statistics, sys, time
from pathlib import Path
from mildroute.serving.auth.database_store import DatabaseKeyStore
from mildroute.serving.server import _SWITCH_INTERVAL

sys.setswitchinterval(_SWITCH_INTERVAL)
url, cache, keys, sizes, control = sys.argv[1:]
keys = Path(keys).read_text().split()

def memory():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return found["Rss"], found["Private_Clean"] + found["Private_Dirty"]

def look_up():
    taken = []
    for key in keys:
        header = f"Bearer {key}"
        start = time.perf_counter()
        client = store.find(header)
        taken.append(time.perf_counter() - start)
        assert client is not None
    return statistics.median(taken) * 1e6

before = memory()
start = time.perf_counter()
store = DatabaseKeyStore(url, interval=0.5, cache=Path(cache))
started = time.perf_counter() - start
first = look_up()
again = look_up()
after = memory()
print(json.dumps({"phase": "opened", "start": started, "first": first, "again": again,
    "found": len(keys), "rss": after[0] - before[0], "private": after[1] - before[1]}), flush=True)

async def stalls(is_over):
    # Longest stall, and most CPU of this process within one turn; in milliseconds.
    stall = burst = 0.0
    turn, cpu = time.perf_counter(), time.process_time()
    while not is_over():
        await asyncio.sleep(0.001)
        now, spent = time.perf_counter(), time.process_time()
        stall, burst = max(stall, now - turn - 0.001), max(burst, spent - cpu)
        turn, cpu = now, spent
    return stall * 1e3, burst * 1e3

def show(**figures):
    print(json.dumps(figures | {"time": time.time()}), flush=True)

async def run():
    store.start()
    for number, wanted in enumerate(map(int, sizes.split(","))):
        end = time.monotonic() + float(control)
        stall, burst = await stalls(lambda: time.monotonic() > end)
        show(phase="control", stall=stall, burst=burst)
        revoked = f"Bearer {keys[number]}"
        is_revoked = lambda: store.find(revoked).expires is not None
        is_reloaded = lambda: len(store.view.snapshot) >= wanted
        one = await stalls(is_revoked)
        show(phase="revoked")
        two = await stalls(is_reloaded)
        show(phase="reloaded", stall=max(one[0], two[0]), burst=max(one[1], two[1]))

asyncio.run(run())
"""


def _fill(url: str, count: int, batch: int) -> tuple[list[str], float]:
    """Every hundredth key, and the seconds for one batch."""
    sample: list[str] = []
    started = time.perf_counter()
    for number in range(count // batch):
        sample += list(add_clients(url, f"client{number}", batch, **SETTINGS).values())[::100]
    return sample, (time.perf_counter() - started) / (count // batch)


def _watch(
    url: str, folder: Path, keys: list[str], sizes: list[int], control: float
) -> dict[str, list[dict[str, Any]]]:
    """What a process tells that holds the keys while they change, by phase."""
    (folder / "sample").write_text("\n".join(keys))
    arguments = [url, folder / "cache", folder / "sample", ",".join(map(str, sizes[1:])), control]
    found: dict[str, list[dict[str, Any]]] = {"changed": []}
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    ) as gateway:
        assert gateway.stdout is not None
        for line in gateway.stdout:
            told = json.loads(line)
            found.setdefault(told["phase"], []).append(told)
            if told["phase"] == "control":
                number = len(found["control"]) - 1
                add_clients(url, f"late{number}", sizes[number + 1] - sizes[number], **SETTINGS)
                revoke_key(url, f"client0-{100 * number + 1:06d}", time.time())
                found["changed"].append({"time": time.time()})
    return found


def _seconds(found: dict[str, list[dict[str, Any]]], phase: str) -> float:
    """Longest time from a change to a phase."""
    pairs = zip(found["changed"], found[phase], strict=True)
    return max(0.0, *(later["time"] - change["time"] for change, later in pairs))


def _least(rounds: list[dict[str, Any]], name: str) -> float:
    return min(one[name] for one in rounds)


def measure(quick: bool) -> Iterator[Row]:
    """Rows for a million keys, or for 20,000."""
    count, batch, added, rounds = (
        (20_000, 20_000, 21_000, 1) if quick else (1_000_000, BATCH, BATCH, 3)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/keys.db"
        keys, seconds = _fill(url, count, batch)
        yield reported("seconds to make 100,000 keys in bulk", seconds * BATCH / batch)
        started = time.perf_counter()
        note = f"{len(DatabaseKeyStore(url, cache=folder / 'cache')):,} keys"
        seconds = time.perf_counter() - started
        yield reported("seconds of the first start, which makes the snapshot", seconds, note)
        (path,) = (folder / "cache").glob("*/*.keys")
        yield reported("bytes of the snapshot a key", path.stat().st_size / count)
        sizes = [count + number * added for number in range(rounds + 1)]
        found = _watch(url, folder, keys, sizes, control=1.0 if quick else 5.0)
    (opened,) = found["opened"]
    yield at_least("keys that are found", opened["found"], len(keys))
    yield at_most("seconds of a later start", opened["start"], 0.5, note, full_only=True)
    yield at_most("microseconds of a first look-up, median", opened["first"], 50, full_only=True)
    yield at_most("microseconds of a look-up, median", opened["again"], 20, full_only=True)
    yield reported("megabytes of memory of a process, shared ones included", opened["rss"])
    yield at_most("megabytes of memory of a process, its own", opened["private"], 32)
    control, reloaded = found["control"], found["reloaded"]
    note = f"{added:,} keys more; {_least(control, 'stall'):.2f} without a reload"
    yield at_most(
        "milliseconds of the longest stall in a reload",
        *(_least(reloaded, "stall"), 5.0, note),
        full_only=True,
    )
    note = f"{_least(control, 'burst'):.2f} without a reload"
    yield at_most(
        "milliseconds of CPU in one turn of the loop, most",
        *(_least(reloaded, "burst"), 5.0, note),
        full_only=True,
    )
    yield at_most("seconds until a revoked key is refused", _seconds(found, "revoked"), 5.0)
    yield reported("seconds until new keys in bulk are valid", _seconds(found, "reloaded"))


if __name__ == "__main__":
    main(__doc__, measure)
