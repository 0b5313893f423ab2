"""Cells travel in files and arrive as they were sent."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from mildroute.collection.queries import query_digest
from mildroute.collection.runner import Task
from mildroute.distributed.collect import team_size
from mildroute.distributed.collect_worker import block_size, read_block, write_blocks
from mildroute.exceptions import TableError
from mildroute.experts.base import Query


def cell(place: int, text: str | None = None, **fields: object) -> Task:
    query = Query(f"q{place}", f"{place}?", None if place % 2 else str(place), fields)
    return Task(query, query_digest(query), text)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"choices": ["a", "b"], "deep": {"x": None, "1": 0.1}, "big": 2**60},
        {
            "when": datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
            "day": datetime.date(2026, 1, 2),
            "price": Decimal("1.10"),
        },
        {"picture": b"\x00\xff", "vector": [1.0, 2.5]},
    ],
)
def test_cells_arrive_as_they_were_sent(tmp_path: Path, fields: dict[str, object]) -> None:
    cells = [cell(0, **fields), cell(1, "an answer\n", **fields), cell(2, "", **fields)]
    paths = write_blocks(cells, tmp_path / "17", "000", 2)
    assert [path.name for path in paths] == ["000-000000.parquet", "000-000001.parquet"]
    assert [found for path in paths for found in read_block(path)] == cells


def test_long_queries_make_small_blocks(tmp_path: Path) -> None:
    query = Query("q", "x" * (1 << 24))
    assert len(write_blocks([Task(query, query_digest(query))] * 4, tmp_path, "000", 100)) == 2


def test_half_a_character_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    query = Query("q", "\ud800")
    with pytest.raises(TableError, match="texts must be Unicode"):
        write_blocks([Task(query, query_digest(query))], tmp_path, "000", 8)


def test_a_query_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="must reach a worker unchanged, got a change in 'q0'"):
        read_block(write_blocks([Task(cell(0).query, "another digest")], tmp_path, "000", 8)[0])


@pytest.mark.parametrize(
    ("cells", "workers", "at_once"),
    [(1, 1, 1), (60, 2, 2), (10**7, 64, 1), (10**6, 1, 512), (10**6, 1, 10**4)],
)
def test_blocks_are_worth_their_message_and_not_too_large(
    cells: int, workers: int, at_once: int
) -> None:
    size = block_size(cells, workers, at_once)
    assert at_once <= size <= max(4096, at_once)
    assert size <= 64 * at_once


@pytest.mark.parametrize("concurrency", range(1, 40))
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_workers_together_never_ask_more_than_the_expert_can_serve_and_not_much_less(
    concurrency: int, workers: int
) -> None:
    size, lanes = team_size(concurrency, workers)
    assert size <= workers
    assert 0.875 * concurrency <= size * lanes <= concurrency
