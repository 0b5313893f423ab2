"""Collecting where an event loop is running already, as in a notebook, from tables in memory."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mildroute
from mildroute.collection.results import CollectionInterrupted, CollectionResult
from mildroute.collection.store import AnswerStore
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Answer, Query
from tests.collection.pools import Counting

ROWS = [
    {"id": f"q{place}", "prompt": f"{place} + 1?", "answer": str(place + 1), "topic": "sums"}
    for place in range(20)
]


def in_a_cell(work: Callable[[], Any]) -> Any:
    """Call a function as a kernel does: from a callback of a loop that leaves signals alone."""

    async def cell() -> Any:
        return work()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


@pytest.mark.parametrize("read", [pd.DataFrame, pl.DataFrame, pa.Table.from_pylist, list], ids=str)
def test_collect_works_in_a_running_loop_and_takes_tables(
    tmp_path: Path, read: Callable[[Any], Any]
) -> None:
    expert = Counting("a")
    found = in_a_cell(lambda: mildroute.collect(read(ROWS), [expert], "exact", tmp_path / "costs"))
    assert isinstance(found, CollectionResult)
    assert (found.complete, found.empty) == (20, 0)
    assert expert.is_closed
    again = Counting("a")
    in_a_cell(lambda: mildroute.collect(read(ROWS), [again], "exact", tmp_path / "costs"))
    assert not again.asked


def test_experts_and_judges_may_be_a_file_and_a_name(tmp_path: Path) -> None:
    (tmp_path / "experts.yaml").write_text("experts: {ann: {kind: people, field: ann}}")
    rows = [{"input": "2 + 2?", "answer": "4", "ann": "4.0"}]
    found = mildroute.collect(rows, tmp_path / "experts.yaml", "numeric", tmp_path / "costs")
    assert found is not None
    assert found.tallies[0].score == 1.0


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (pd.DataFrame({"words": ["a"]}), "the table of queries must have a column input"),
        (
            [{"input": "a", "id": 1}, {"input": "b", "id": 1}],
            "unique name in 'id', got '1' again",
        ),
        ([{"input": 3}], "row 0: a query must be a text, got 3"),
        ([], "must have at least one query, got none"),
        (5, "a table must be Arrow, pandas, polars"),
    ],
)
def test_tables_that_are_no_queries_are_refused_in_a_sentence(
    tmp_path: Path, queries: Any, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        mildroute.collect(queries, [Counting("a")], "exact", tmp_path)


def test_queries_without_experts_or_a_judge_are_refused() -> None:
    with pytest.raises(ArgumentError, match="got no experts; give experts"):
        mildroute.collect(ROWS)
    with pytest.raises(ArgumentError, match="got no judge; give experts"):
        mildroute.collect(ROWS, [Counting("a")])


class Stuck(Counting):
    """Answers some queries, then interrupts the process and never answers again."""

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        if sum(self.asked.values()) >= 8:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(600)
        return await super().answer(batch)


@pytest.fixture
def sigint() -> Iterator[None]:
    """Interrupts reach Python even if the tests were started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
@pytest.mark.parametrize("where", [in_a_cell, lambda work: work()], ids=["notebook", "script"])
def test_an_interrupt_cancels_the_calls_and_says_what_is_kept(
    tmp_path: Path, where: Callable[[Callable[[], Any]], Any]
) -> None:
    stuck = Stuck("a", lambda query: Answer(query.reference, dollars=0.5), concurrency=1, worst=2.0)
    before = threading.active_count()
    with pytest.raises(CollectionInterrupted) as stopped:
        where(lambda: mildroute.collect(ROWS, [stuck], "exact", tmp_path / "costs"))
    assert str(stopped.value) == (
        "stopped: 8 of 20 kept, $4.00 paid, up to $2.00 for 1 lost call;"
        " the same command resumes it"
    )
    assert stuck.is_closed
    assert threading.active_count() <= before + 1  # the loop's own pool may still be idle
    with AnswerStore(tmp_path / "costs" / "_collected") as archive:
        assert archive.spending() == (4.0, 2.0, 1)
    rest = Counting("a")
    found = where(lambda: mildroute.collect(ROWS, [rest], "exact", tmp_path / "costs"))
    assert found.complete == 20
    assert len(rest.asked) == 12
