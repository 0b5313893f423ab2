"""Experts and queries for collections on Ray, and what the experts were asked."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query

DOLLARS = 0.01


class PaidExpert(Expert):
    """Answers right, notes each query in a file, and may kill its process once.

    Args:
        name: Name of the expert.
        log: File that all processes append to.
        fatal: Query that kills the process the first time it is asked.
        dollars: Price of an answer.
    """

    concurrency = 2
    batch_size = 1
    version = "1"

    def __init__(self, name: str, log: Path, fatal: str = "", dollars: float = DOLLARS) -> None:
        self.name = name
        self._log = log
        self._fatal = fatal
        self._dollars = dollars

    def max_cost(self, _query: Query) -> float:
        return self._dollars

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        (query,) = batch
        is_first = query.query_id not in asked(self._log)
        with self._log.open("a") as log:
            log.write(f"{query.query_id}\n")
        if query.query_id == self._fatal and is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0)
        return [Answer(query.reference, dollars=self._dollars)]


def make_experts(log: Path, fatal: str) -> list[Expert]:
    """Return an expert that costs a cent and one that is free."""
    return [PaidExpert("paid", log, fatal), PaidExpert("free", log.with_suffix(".free"), dollars=0)]


def paid(log: Path, fatal: str = "") -> Callable[[], list[Expert]]:
    """Return a function that makes both experts in a worker, which finds it by its name."""
    return partial(make_experts, log, fatal)


def no_experts() -> list[Expert]:
    """Fail as an expert without its key does."""
    raise ArgumentError("the variable KEY must hold the key.")


def asked(log: Path) -> Counter[str]:
    """Return how often each query was asked."""
    return Counter(log.read_text().split()) if log.exists() else Counter()


def write_shards(folder: Path, sizes: Sequence[int], *, names: bool = True) -> Path:
    """Write sums to solve, one Parquet file for each size."""
    folder.mkdir()
    for shard, size in enumerate(sizes):
        rows = range(100 * shard, 100 * shard + size)
        table = pa.table(
            {
                "query_id": [f"q{row}" for row in rows],
                "input": [f"{row} + 1?" for row in rows],
                "reference": [str(row + 1) for row in rows],
                "label": [str(row + 1) for row in rows],
            }
        )
        table = table if names else table.drop_columns(["query_id"])
        pq.write_table(table, folder / f"part-{shard}.parquet")
    return folder
