from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute.costs.stream import batches
from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError

COLUMNS = {
    "query_id": [f"q{row}" for row in range(25)],
    "score:a": [row / 25 for row in range(25)],
    "score:b": [1] * 25,
}


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl", "shards"])
def test_batches_hold_all_rows_in_order(name: str, tmp_path: Path) -> None:
    table = CostTable.from_data(COLUMNS)
    path = table.save(tmp_path / name, shards=4 if name == "shards" else 1)
    parts = list(batches(path, rows=10))
    assert max(map(len, parts)) <= 10
    assert [query for part in parts for query in part.query_ids] == table.query_ids
    np.testing.assert_array_equal(np.vstack([part.scores for part in parts]), table.scores)


def test_rows_without_ids_are_numbered_through() -> None:
    parts = batches({"score:a": [1, 0, 1], "score:b": [0, 1, 1]}, rows=2)
    assert [part.query_ids for part in parts] == [["0", "1"], ["2"]]


def test_an_id_that_returns_in_another_batch_is_refused() -> None:
    ids = [*COLUMNS["query_id"][:-1], "q3"]
    with pytest.raises(TableError, match="got 'q3' again"):
        list(batches(COLUMNS | {"query_id": ids}, rows=4))


def test_a_message_counts_rows_over_all_batches() -> None:
    with pytest.raises(TableError, match=r"column 'score:a', row 22 \(query_id 'q22'\)"):
        list(batches(COLUMNS | {"score:a": [0] * 22 + [9, 0, 0]}, rows=5))


def test_batches_in_which_all_rows_are_dropped_are_skipped() -> None:
    columns = {"score:a": [None, None, 1], "score:b": [1, 1, 1]}
    assert [len(part) for part in batches(columns, rows=2, missing="drop")] == [1]
    with pytest.raises(TableError, match="at least one row"):
        list(batches({"score:a": [None], "score:b": [1]}, missing="drop"))


@pytest.mark.parametrize("rows", [0, -1, 2.5, True])
def test_the_size_of_a_batch_is_a_whole_number(rows: int) -> None:
    with pytest.raises(ArgumentError):
        batches(COLUMNS, rows=rows)
