from __future__ import annotations

from pathlib import Path

import pytest

from mildroute.costs.table import CostTable
from mildroute.exceptions import TableError

LONG = {
    "query_id": ["q2", "q1", "q2", "q1"],
    "model": ["b", "a", "a", "b"],
    "score": [0.5, 1.0, 0.0, 0.25],
    "cost": [5, 1, 2, 4],
    "latency": [0.1, 0.2, 0.3, 0.4],
    "text": ["two", "one", "two", "one"],
    "group": ["h", "g", "h", "g"],
}
WIDE = {
    "query_id": ["q2", "q1"],
    "input": ["two", "one"],
    "group": ["h", "g"],
    "score:b": [0.5, 0.25],
    "score:a": [0.0, 1.0],
    "cost:b": [5, 4],
    "cost:a": [2, 1],
    "latency:b": [0.1, 0.4],
    "latency:a": [0.3, 0.2],
}


def test_long_becomes_wide_in_the_order_of_appearance() -> None:
    table = CostTable.from_long(LONG)
    assert table.query_ids == ["q2", "q1"]
    assert table.experts == ("b", "a")
    assert table.content_hash == CostTable.from_data(WIDE).content_hash


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_reading_notices_the_long_form(name: str, tmp_path: Path) -> None:
    import pandas as pd

    frame, path = pd.DataFrame(LONG), tmp_path / name
    if name.endswith("csv"):
        frame.to_csv(path, index=False)
    elif name.endswith("jsonl"):
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    assert CostTable.read(path).content_hash == CostTable.from_data(WIDE).content_hash


def test_a_pair_without_a_row_is_a_missing_score() -> None:
    long = {name: values[:3] for name, values in LONG.items()}
    with pytest.raises(TableError, match=r"'score:b', row 1 \(query_id 'q1'\): a score is missing"):
        CostTable.from_data(long)
    table = CostTable.from_data(long, missing="zero")
    assert table.scores.tolist() == [[0.5, 0.0], [0.0, 1.0]]
    assert table.dollars is not None
    assert table.dollars.tolist() == [[5.0, 2.0], [0.0, 1.0]]
    assert len(table.repairs) == 2


def test_a_query_column_alone_is_id_and_input() -> None:
    table = CostTable.from_data({"query": ["why?", "why?"], "expert": ["a", "b"], "score": [1, 0]})
    assert table.query_ids == table.inputs == ["why?"]
    assert "both id and input" in table.repairs[0]


def test_two_rows_of_one_pair_are_refused() -> None:
    with pytest.raises(TableError, match="rows 1 and 4 are both for query 'q1' and expert 'a'"):
        CostTable.from_data({name: [*values, values[1]] for name, values in LONG.items()})


def test_rows_of_a_query_that_disagree_are_refused() -> None:
    with pytest.raises(
        TableError,
        match=r"column 'text', row 2: all rows of a query must agree, got 'too' after 'two'",
    ):
        CostTable.from_data(LONG | {"text": ["two", "one", "too", "one"]})


@pytest.mark.parametrize("column", ["query_id", "model"])
def test_a_row_without_query_or_expert_is_refused(column: str) -> None:
    with pytest.raises(TableError, match=f"column '{column}', row 0"):
        CostTable.from_data(LONG | {column: [None, *LONG[column][1:]]})
