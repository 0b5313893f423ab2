"""A million client keys in SQLite: memory, look-ups, and a reload beside a running event loop.

Run: python benchmarks/service/million_keys.py [--json] [--quick]

A process that knows nothing opens the keys as a gateway does and looks some of them up. Then its
event loop turns every millisecond while, in other processes, a key is revoked, keys are added in
bulk and a new snapshot is made. A stall is the time by which the loop turns late. On a busy machine
other processes cause stalls as well. So the process asks for real-time priority, which root gets,
and a bystander, a process with the same loop and without keys, measures what is left of them. There
are three reloads; the least of their longest stalls is reported, for what a reload itself causes
comes each time.

Then a gateway gets 100,000 clients over HTTP, 10,000 a request, while it follows their database.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from rows import Row, at_least, at_most, main, reported

from mildroute.serving.auth.database_store import DatabaseKeyStore
from mildroute.serving.auth.keys import add_clients, numbered_clients, revoke_key

BATCH = 100_000
SETTINGS = {"requests_per_minute": 60, "dollars_per_day": 5.0, "models": ["mildroute"]}
LOOP = """
import asyncio, gc, json, os, statistics, sys, time
from pathlib import Path

def run_first():
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        pass

async def longest_stall(is_over):
    longest = 0.0
    turn = time.perf_counter()
    while not is_over():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest = max(longest, now - turn - 0.001)
        turn = now
    return longest * 1e3

def show(phase, **figures):
    print(json.dumps({"phase": phase, "time": time.time(), **figures}), flush=True)

async def tell_stalls(end=lambda: None):
    lines = 0
    def read():
        nonlocal lines
        lines += 1
        if not sys.stdin.readline():
            end()
            os._exit(0)
    asyncio.get_running_loop().add_reader(sys.stdin, read)
    while True:
        seen = lines
        show("stall", stall=await longest_stall(lambda: lines > seen))
"""
BYSTANDER = (
    LOOP
    + """
run_first()
asyncio.run(tell_stalls())
"""
)
SERVER = (
    LOOP
    + """
import uvicorn
from mildroute.experts.config import ExpertFile
from mildroute.serving.app import GatewayServices, create_app
from mildroute.serving.auth.database_store import DatabaseKeyStore
from mildroute.serving.config import GatewayConfig
from mildroute.serving.server import _SWITCH_INTERVAL

sys.setswitchinterval(_SWITCH_INTERVAL)
url, cache, port = sys.argv[1:]
store = DatabaseKeyStore(url, interval=0.5, cache=Path(cache))
config = GatewayConfig(keys=url, admin_key_env="ADMIN_KEY")
experts = ExpertFile(Path("experts.yaml"), ())
app = create_app(GatewayServices(config, experts, manager=None, key_store=store))
gc.collect()
gc.freeze()

async def run():
    settings = uvicorn.Config(app, port=int(port), lifespan="on", log_level="error")
    server = uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    show("serving")
    await tell_stalls(lambda: store._builder and store._builder.kill())

run_first()
asyncio.run(run())
"""
)
GATEWAY = (
    LOOP
    + """
from mildroute.serving.auth.database_store import DatabaseKeyStore
from mildroute.serving.server import _SWITCH_INTERVAL

sys.setswitchinterval(_SWITCH_INTERVAL)
url, cache, keys, sizes = sys.argv[1:]
keys = Path(keys).read_text().split()

def memory():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return found["Rss"], found["Private_Dirty"]

def look_up():
    taken = []
    for key in keys:
        header = f"Bearer {key}"
        start = time.perf_counter()
        client = store.find(header)
        taken.append(time.perf_counter() - start)
        assert client is not None
    return statistics.median(taken) * 1e6

gc.collect()
gc.freeze()  # as the server does
before = memory()
start = time.perf_counter()
store = DatabaseKeyStore(url, interval=0.5, cache=Path(cache))
started = time.perf_counter() - start
first = look_up()
again = look_up()
after = memory()
show("opened", start=started, first=first, again=again, found=len(keys),
     all=after[0] - before[0], own=after[1] - before[1])

async def run():
    store.start()
    for number, wanted in enumerate(map(int, sizes.split(","))):
        revoked = f"Bearer {keys[number]}"
        show("waiting")
        stall = await longest_stall(lambda: store.find(revoked).expires is not None)
        show("revoked")
        later = await longest_stall(lambda: len(store.view.snapshot) >= wanted)
        show("reloaded", stall=max(stall, later))

run_first()
asyncio.run(run())
"""
)


def _fill(url: str, count: int, batch: int) -> tuple[list[str], float]:
    """Every hundredth key, and the seconds for one batch."""
    sample: list[str] = []
    started = time.perf_counter()
    for number in range(count // batch):
        sample += list(
            add_clients(url, numbered_clients(f"client{number}", batch, **SETTINGS)).values()
        )[::100]
    return sample, (time.perf_counter() - started) / (count // batch)


def _watch(
    url: str, folder: Path, keys: list[str], sizes: list[int]
) -> dict[str, list[dict[str, Any]]]:
    """What a process tells that holds the keys while they change, by phase."""
    (folder / "sample").write_text("\n".join(keys))
    arguments = [url, folder / "cache", folder / "sample", ",".join(map(str, sizes[1:]))]
    found: dict[str, list[dict[str, Any]]] = {"changed": [], "bystander": []}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c"]
    with (
        subprocess.Popen([*command, BYSTANDER], stdin=pipe, stdout=pipe, text=True) as bystander,
        subprocess.Popen(
            [*command, GATEWAY, *map(str, arguments)], stdout=pipe, text=True
        ) as gateway,
    ):
        for line in gateway.stdout or ():
            told = json.loads(line)
            found.setdefault(told["phase"], []).append(told)
            if told["phase"] == "waiting":
                _next_stall(bystander)
                number = len(found["waiting"]) - 1
                add_clients(
                    url,
                    numbered_clients(
                        f"late{number}", sizes[number + 1] - sizes[number], **SETTINGS
                    ),
                )
                revoke_key(url, f"client0-{100 * number + 1:06d}", time.time())
                found["changed"].append({"time": time.time()})
            elif told["phase"] == "reloaded":
                found["bystander"].append(_next_stall(bystander))
    return found


def _next_stall(bystander: subprocess.Popen[str]) -> dict[str, Any]:
    """The longest stall of a bystander since it was last asked."""
    assert bystander.stdin is not None
    assert bystander.stdout is not None
    print(file=bystander.stdin, flush=True)
    told: dict[str, Any] = json.loads(bystander.stdout.readline())
    return told


def _create_by_http(
    url: str, folder: Path, batches: int, size: int
) -> tuple[float, list[tuple[float, float]]]:
    """Seconds for all batches, and for each the longest stall of the gateway and a bystander."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "env": {**os.environ, "ADMIN_KEY": "operator"},
    }
    command = [sys.executable, "-c"]
    arguments = [url, str(folder / "cache"), str(port)]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    seconds = 0.0
    stalls = []
    with (
        subprocess.Popen([*command, BYSTANDER], **options) as bystander,
        subprocess.Popen([*command, SERVER, *arguments], **options) as gateway,
    ):
        assert json.loads(gateway.stdout.readline())["phase"] == "serving"  # type: ignore[union-attr]
        for number in range(batches):
            clients = numbered_clients(f"http{number}", size, **SETTINGS)
            body = json.dumps([{"name": name, **settings} for name, settings in clients.items()])
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/admin/keys",
                body.encode(),
                {"authorization": "Bearer operator"},
            )
            _next_stall(bystander)
            _next_stall(gateway)
            started = time.perf_counter()
            with opener.open(request, timeout=60) as answer:
                made = json.loads(answer.read())["data"]
            seconds += time.perf_counter() - started
            stalls.append((_next_stall(gateway)["stall"], _next_stall(bystander)["stall"]))
            assert len({each["key"] for each in made}) == size
    return seconds, stalls


def _rows_of_http(quick: bool) -> Iterator[Row]:
    batches, size = (2, 1000) if quick else (10, 10_000)
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/keys.db"
        add_clients(url, numbered_clients("first", 1))
        seconds, stalls = _create_by_http(url, Path(name), batches, size)
    scale = BATCH / (batches * size)
    yield reported("seconds to make 100,000 keys over HTTP", seconds * scale, f"{size:,} a request")
    note = "; ".join(f"{stall:.1f} and {other:.1f}" for stall, other in stalls)
    yield reported(
        "milliseconds of the longest stall in a request for keys, median",
        *(statistics.median(stall for stall, _ in stalls), f"each and a bystander's: {note}"),
    )
    yield at_most(
        "milliseconds of it beyond a bystander's at keys over HTTP, median",
        *(statistics.median(stall - other for stall, other in stalls), 5.0),
        full_only=True,
    )


def _seconds(found: dict[str, list[dict[str, Any]]], phase: str) -> float:
    """Longest time from a change to a phase."""
    pairs = zip(found["changed"], found[phase], strict=True)
    return max(0.0, *(later["time"] - change["time"] for change, later in pairs))


def measure(quick: bool, keys: int = 1_000_000) -> Iterator[Row]:
    """Rows for a million keys, or for 20,000."""
    count, batch, added, rounds = (20_000, 20_000, 21_000, 1) if quick else (keys, BATCH, BATCH, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/keys.db"
        sample, seconds = _fill(url, count, batch)
        yield reported("seconds to make 100,000 keys in bulk", seconds * BATCH / batch)
        started = time.perf_counter()
        note = f"{len(DatabaseKeyStore(url, cache=folder / 'cache')):,} keys"
        seconds = time.perf_counter() - started
        yield reported("seconds of the first start, which makes the snapshot", seconds, note)
        (path,) = (folder / "cache").glob("*/*.keys")
        yield reported("bytes of the snapshot a key", path.stat().st_size / count)
        sizes = [count + number * added for number in range(rounds + 1)]
        found = _watch(url, folder, sample, sizes)
    (opened,) = found["opened"]
    yield at_least("keys that are found", opened["found"], len(sample))
    yield at_most("seconds of a later start", opened["start"], 0.5, note, full_only=True)
    yield at_most("microseconds of a first look-up, median", opened["first"], 50, full_only=True)
    yield at_most("microseconds of a look-up, median", opened["again"], 20, full_only=True)
    yield reported("megabytes of memory of a process, shared ones included", opened["all"])
    yield at_most("megabytes of memory of a process, its own", opened["own"], 32)
    stalls = [
        (told["stall"], other["stall"])
        for told, other in zip(found["reloaded"], found["bystander"], strict=True)
    ]
    note = "; ".join(f"{stall:.1f} and {other:.1f} of a bystander" for stall, other in stalls)
    yield reported("milliseconds of the longest stall in a reload", min(stalls)[0], note)
    yield at_most(
        "milliseconds of it beyond a bystander's, median",
        *(statistics.median(stall - other for stall, other in stalls), 5.0),
        f"{added:,} keys more",
        full_only=True,
    )
    yield at_most("seconds until a revoked key is refused", _seconds(found, "revoked"), 5.0)
    yield reported("seconds until new keys in bulk are valid", _seconds(found, "reloaded"))
    yield from _rows_of_http(quick)


if __name__ == "__main__":
    options = {"--keys": {"type": int, "default": 1_000_000, "help": "in a full run"}}
    main(__doc__, measure, options)
