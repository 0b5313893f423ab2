"""Collecting a million (query, expert) cells over HTTP beside bare loops that make the same calls.

Memory while it lasts.

Run: python benchmarks/speed/collect.py [--json] [--quick] [--cells 1000000]

Every side is a process of its own, timed from its start to its end. The bare loops make a tenth of
the calls, half of them before and half after ours, so that a busy machine slows both; what they do
not do is journal each call, cap dollars, scrub keys and judge answers.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from loopback import COMMAND
from replay_server import Replay, letter_of, replay_server
from rows import Row, at_least, at_most, main, reported

EXPERTS, CONCURRENCY = ("one", "two", "three", "four"), 8
CELLS, MANY_CELLS, QUICK_CELLS, BARE_SHARE = 1_000_000, 200_000, 400, 0.1
KEY = {"BENCHMARK_KEY": "sk-benchmark-0123456789abcdef"}
QUESTION = (
    "Which of the letters A, B, C and D belongs to this number? Answer with the letter alone. The"
    " number is #"
)
BARE = "--bare"


def write_job(folder: Path, url: str, cells: int) -> None:
    """Write queries, and experts with a key and a price.

    So every call is set aside, written down and scrubbed.
    """
    folder.mkdir(parents=True)
    numbers = range(cells // len(EXPERTS))
    columns = {
        "query_id": [f"q{number}" for number in numbers],
        "input": [f"{QUESTION}{number}." for number in numbers],
        "answer": [letter_of(number) for number in numbers],
    }
    pq.write_table(pa.table(columns), folder / "queries.parquet")
    settings = (
        f"concurrency: {CONCURRENCY}, api_key_env: BENCHMARK_KEY, price: {{input: 1, output: 2}},"
        " request: {max_tokens: 16}"
    )
    lines = [
        f"  {name}: {{kind: openai, base_url: '{url}', model: {name}, {settings}}}"
        for name in EXPERTS
    ]
    (folder / "experts.yaml").write_text("\n".join(["experts:", *lines]))


# what anybody would write: the same client, as many calls at once, a client for each caller since a
# shared one is slower


def client() -> Any:
    import httpx

    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=30.0
    )
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": f"Bearer {os.environ['BENCHMARK_KEY']}",
    }
    timeout = httpx.Timeout(60.0, connect=10.0)
    return httpx.AsyncClient(
        verify=TRUST[0],
        follow_redirects=False,
        timeout=timeout,
        limits=limits,
        headers=headers,
    )


# One for all clients: making it takes a tenth of a second.
TRUST: list[Any] = []


async def ask(caller: Any, url: str, model: str, text: str) -> tuple[str, int, int]:
    request = {"max_tokens": 16, "model": model, "messages": [{"role": "user", "content": text}]}
    response = await caller.post(f"{url}/chat/completions", json=request)
    response.raise_for_status()
    found = response.json()
    return (
        found["choices"][0]["message"]["content"],
        found["usage"]["prompt_tokens"],
        found["usage"]["completion_tokens"],
    )


async def ask_many(
    url: str, cells: Iterator[tuple[str, str, str]], callers: int
) -> list[tuple[Any, ...]]:
    """Cells are (model, query_id, text)."""
    import httpx

    TRUST[:] = TRUST or [httpx.create_ssl_context()]
    found: list[tuple[Any, ...]] = []

    async def work() -> None:
        async with client() as caller:
            for model, name, text in cells:
                found.append((model, name, *await ask(caller, url, model, text)))

    await asyncio.gather(*(work() for _ in range(callers)))
    return found


def bare(folder: Path, url: str) -> None:
    """All cells of a job, kept in memory and written to one file at the end."""
    rows = pq.read_table(folder / "queries.parquet").to_pylist()
    cells = ((model, row["query_id"], row["input"]) for row in rows for model in EXPERTS)
    found = asyncio.run(ask_many(url, cells, CONCURRENCY * len(EXPERTS)))
    names = ("expert", "query_id", "text", "tokens_in", "tokens_out")
    pq.write_table(
        pa.table(dict(zip(names, map(list, zip(*found, strict=True)), strict=True))),
        folder / "bare.parquet",
    )


class Watch(threading.Thread):
    """Looks at a process and those below it from outside.

    Answers that the server gave, and bytes resident.
    """

    def __init__(self, server: Replay, pid: int) -> None:
        super().__init__(daemon=True)
        self.server, self.pid, self.before, self.ended = server, pid, server.served(), False
        self.seen: list[tuple[int, int]] = []

    def run(self) -> None:
        while not self.ended:
            resident = sum(memory_of(process) for process in family(self.pid))
            self.seen.append((self.server.served() - self.before, resident))
            time.sleep(0.25)

    def slope(self, cells: int) -> float:
        """MiB by which 100,000 cells make it grow, from a fifth of the calls until the last one."""
        kept = np.array(
            [
                (served, resident)
                for served, resident in self.seen
                if cells / 5 <= served < cells and resident
            ],
            dtype=float,
        )
        return (
            float(np.polyfit(kept[:, 0], kept[:, 1], 1)[0]) * 100_000 / 2**20
            if len(kept) > 2
            else float("nan")
        )

    def most(self, served: float = float("inf")) -> float:
        """MiB resident at most, up to so many answers."""
        return max(resident for number, resident in self.seen if number < served) / 2**20


def family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def memory_of(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def timed(words: list[str], folder: Path, server: Replay) -> tuple[float, float, Watch]:
    """Seconds by the clock and seconds of the processor that a command took from start to end."""
    start, before = time.perf_counter(), os.times()
    with subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        watch = Watch(server, process.pid)
        watch.start()
        _, said = process.communicate()
        watch.ended = True
        watch.join()
    if process.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{said.decode()[-4000:]}")
    after = os.times()
    worked = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return time.perf_counter() - start, worked, watch


def collected(folder: Path, server: Replay) -> tuple[float, float, Watch]:
    """Our command; the cap is far away, but it is there."""
    words = [
        *COMMAND,
        "collect",
        "--yes",
        "queries.parquet",
        "--experts",
        "experts.yaml",
        "--judge",
        "exact",
        "--max-dollars",
        "1000000",
        "--json",
    ]
    return timed(words, folder, server)


def compared(folder: Path, server: Replay, cells: int) -> tuple[float, str, Watch]:
    """Cells a second of ours / of the bare loop, before and after.

    What is behind it, and what was seen meanwhile.
    """
    fewer = max(len(EXPERTS) * 100, int(cells * BARE_SHARE / 2))
    write_job(folder / "ours", server.url, cells)
    pairs = []
    for name in ("before", "after"):
        write_job(folder / name, server.url, fewer)
        if name == "after":
            seconds, worked, watch = collected(folder / "ours", server)
        pairs.append(
            timed([sys.executable, __file__, BARE, str(folder / name), server.url], folder, server)
        )
    rate, bare_rate = cells / seconds, 2 * fewer / sum(pair[0] for pair in pairs)
    work, bare_work = worked / cells * 1e6, sum(pair[1] for pair in pairs) / 2 / fewer * 1e6
    note = f"{rate:,.0f} and {bare_rate:,.0f} cells/s, {cells:,} and twice {fewer:,} cells"
    note += f"; {work:,.0f} and {bare_work:,.0f} us of processor a cell"
    return rate / bare_rate, note, watch


def right_cells(folder: Path) -> float:
    """How many cells are there and right."""
    table = pq.read_table(
        folder / "costs" / "costs.parquet", columns=[f"score:{name}" for name in EXPERTS]
    )
    return float(sum(sum(column.to_pylist()) for column in table.columns))


def local_rows(folder: Path, server: Replay, cells: int) -> Iterator[Row]:
    value, note, watch = compared(folder / "local", server, cells)
    name = "cells a second, mildroute collect / bare httpx loop"
    yield at_least(name, value, 0.7, note, full_only=True)
    yield at_least("cells that are there and right", right_cells(folder / "local" / "ours"), cells)
    name, slope = "MiB that 100,000 cells add while asking", watch.slope(cells)
    note = f"{watch.most(cells):,.0f} MiB at most; nothing is kept of a cell that is written"
    # memory grows until some journals have become Parquet, so only a long run is held to the bound
    yield (
        at_most(name, slope, 10.0, note)
        if cells >= MANY_CELLS
        else reported(f"{name}, too few to tell", slope, note)
    )
    yield reported(
        "MiB resident at most, with the table",
        watch.most(),
        f"{cells:,} cells; scores and dollars of all cells are held",
    )
    again, _, watch = collected(folder / "local" / "ours", server)
    note = (
        f"{watch.most():,.0f} MiB at most; digests of all cells are held, once answered and once"
        " judged"
    )
    yield reported("seconds of a second run, which asks nothing", again, note)


def measure(quick: bool, cells: int | None) -> Iterator[Row]:
    cells = cells or (QUICK_CELLS if quick else CELLS)
    folder = Path(tempfile.mkdtemp(prefix="mildroute-collect-"))
    try:
        with replay_server() as server:
            yield from local_rows(folder, server, cells)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == [BARE]:
        bare(Path(sys.argv[2]), sys.argv[3])
    else:
        main(__doc__ or "", measure, {"--cells": {"type": int}})
