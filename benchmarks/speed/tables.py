"""Reading, checking, hashing and summarizing a large cost table beside a bare scan.

The scan is of the same columns; commands are measured from start to end.

Run: [MILDROUTE_DATA=...] python benchmarks/speed/tables.py [--json] [--quick]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from commands import command_rows
from rows import Row, at_most, main, reported

SCAN, SUMMARISE = "--scan", "--summarize"
EXPERTS = ("small", "medium", "large", "coder", "thinker")
SHARD = 250_000
WORDS, CORPUS_WORDS, QUICK_CORPUS_WORDS = 50_000, 8_000_000, 100_000


def corpus(rng: np.random.Generator, length: int) -> str:
    """Random words of a large vocabulary; texts are cut out of it at random places."""
    letters = rng.integers(97, 123, size=(WORDS, 12)).astype(np.uint8)
    words = [
        letters[place, :letters_of_it].tobytes().decode()
        for place, letters_of_it in enumerate(rng.integers(2, 12, size=WORDS))
    ]
    return " ".join(words[place] for place in rng.integers(0, WORDS, size=length))


def shard(rng: np.random.Generator, text: str, first: int, rows: int) -> pa.Table:
    """Return rows of unique texts, right or wrong answers, and dollars.

    Texts have 300 to 450 characters, and dollars vary from call to call.
    """
    starts, lengths = (
        rng.integers(0, len(text) - 500, size=rows).tolist(),
        rng.integers(300, 451, size=rows).tolist(),
    )
    ids = [f"q{row:08d}" for row in range(first, first + rows)]
    columns = {
        "query_id": ids,
        "input": [
            f"{name} {text[start : start + length]}"
            for name, start, length in zip(ids, starts, lengths, strict=True)
        ],
        "group": [f"topic {number}" for number in rng.integers(0, 40, size=rows)],
    }
    scores = {
        f"score:{name}": (rng.random(rows) < 0.5 + 0.08 * place).astype(float)
        for place, name in enumerate(EXPERTS)
    }
    dollars = {
        f"cost:{name}": rng.gamma(2.0, 1e-4 * 3**place, size=rows)
        for place, name in enumerate(EXPERTS)
    }
    return pa.table(columns | scores | dollars)


def generate(folder: Path, rows: int, words: int) -> float:
    """Write shards one by one; the size of all of them in GiB."""
    rng = np.random.default_rng(0)
    text = corpus(rng, words)
    for first in range(0, rows, SHARD):
        table = shard(rng, text, first, min(SHARD, rows - first))
        pq.write_table(table, folder / f"part-{first // SHARD:05d}.parquet", row_group_size=65_536)
        print(
            f"\rgenerated {first + table.num_rows:,} of {rows:,} rows",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    return sum(file.stat().st_size for file in folder.iterdir()) / 2**30


def scan(folder: str) -> int:
    columns = [
        "query_id",
        "input",
        "group",
        *(prefix + name for prefix in ("score:", "cost:") for name in EXPERTS),
    ]
    return sum(batch.num_rows for batch in pads.dataset(folder).to_batches(columns=columns))


def summarize(folder: str) -> int:
    from mildroute.costs.summary import describe

    return describe(folder).rows


def child() -> None:
    """In its own process.

    Rows, seconds of the work itself, and the most memory that was resident.
    """
    work = scan if sys.argv[1] == SCAN else summarize
    start = time.perf_counter()
    rows = work(sys.argv[2])
    seconds = time.perf_counter() - start
    print(json.dumps([rows, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def run(kind: str, folder: Path) -> tuple[int, float, int]:
    done = subprocess.run(
        [sys.executable, __file__, kind, str(folder)], capture_output=True, text=True, check=True
    )
    rows, seconds, resident = json.loads(done.stdout.splitlines()[-1])
    return rows, seconds, resident


def large_table_rows(quick: bool) -> Iterator[Row]:
    """Both in turn, several times, so that a busy machine slows both."""
    wanted, rounds = (40_000, 1) if quick else (1_000_000, 5)
    words = QUICK_CORPUS_WORDS if quick else CORPUS_WORDS
    folder = Path(tempfile.mkdtemp(prefix="mildroute-tables-"))
    try:
        size = generate(folder, wanted, words)
        run(SCAN, folder)  # the first pass only warms the page cache
        pairs = [(run(SCAN, folder), run(SUMMARISE, folder)) for _ in range(rounds)]
    finally:
        shutil.rmtree(folder)
    assert all(run[0] == wanted for pair in pairs for run in pair)
    bare, ours = median(pair[0][1] for pair in pairs), median(pair[1][1] for pair in pairs)
    speed = median(pair[0][1] / pair[1][1] for pair in pairs)
    note = f"{ours:.2f} and {bare:.2f} s, {wanted:,} rows, {size:.2f} GiB; median of {rounds} pairs"
    yield reported("GiB of Parquet shards", size)
    name = "speed of read, check, hash, summarize / bare pyarrow scan" + (
        ", small" if quick else ""
    )
    yield reported(name, speed, note)
    yield at_most(
        "GiB resident at most",
        max(pair[1][2] for pair in pairs) / 2**30,
        2.0,
        "summary of the large table, which is held in memory",
    )
    yield reported("GiB resident at most, bare scan", max(pair[0][2] for pair in pairs) / 2**30)


def measure(quick: bool) -> Iterator[Row]:
    yield from command_rows(quick)
    yield from large_table_rows(quick)


if __name__ == "__main__":
    if sys.argv[1:2] in ([SCAN], [SUMMARISE]):
        child()
    else:
        main(__doc__ or "", measure)
