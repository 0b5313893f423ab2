from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.costs.prices import PriceList
from mildroute.costs.summary import describe
from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, MissingExtraError, TableError

COLUMNS = {
    "query_id": ["p", "q", "r"],
    "text": ["one", "two", "three"],
    "score:a": [1.0, 0.25, 0.0],
    "score:b": [0.5, 1.0, 1.0],
}
TABLE = CostTable.from_data(COLUMNS)


class FakeDataset:
    """Behaves as a Hugging Face dataset does here."""

    column_names = tuple(COLUMNS)

    def with_format(self, name: str) -> FakeDataset:
        assert name == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return pa.table(COLUMNS)[rows]


IN_MEMORY = {
    "arrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "reader": lambda: pa.table(COLUMNS).to_reader(),
    "pandas": lambda: pd.DataFrame(COLUMNS, index=[7, 8, 9]),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "dataset": FakeDataset,
    "numpy": lambda: {name: np.array(values) for name, values in COLUMNS.items()},
    "table": lambda: TABLE,
}


@pytest.mark.parametrize("library", IN_MEMORY)
def test_every_library_gives_the_same_table(library: str) -> None:
    assert CostTable.from_data(IN_MEMORY[library]()).content_hash == TABLE.content_hash


TYPES: list[tuple[Any, Any]] = [
    (["p", "q", "r"], pa.large_string()),
    (["p", "q", "r"], pa.string_view()),
    (["p", "q", "r"], pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize(("values", "kind"), TYPES, ids=lambda value: str(value))
def test_types_of_text_do_not_matter(values: list[str], kind: Any) -> None:
    ids = (
        pa.array(values).dictionary_encode()
        if pa.types.is_dictionary(kind)
        else pa.array(values, kind)
    )
    assert CostTable.from_data(COLUMNS | {"query_id": ids}).content_hash == TABLE.content_hash


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 0, 1], pa.int8()),
        pa.array([True, False, True]),
        pa.array([1, 0, 1], pa.float16()),
        pa.array([Decimal("1.0"), Decimal("0.0"), Decimal("1.0")]),
        pa.array([1, 0, 1]).dictionary_encode(),
        pa.array([1, 0, 1], pa.uint64()),
    ],
    ids=lambda values: str(values.type),
)
def test_types_of_numbers_do_not_matter(values: pa.Array) -> None:
    want = CostTable.from_data(COLUMNS | {"score:a": [1.0, 0.0, 1.0]})
    assert CostTable.from_data(COLUMNS | {"score:a": values}).content_hash == want.content_hash


@pytest.mark.parametrize("ids", [[1, 2, 3], [1.0, 2.0, 3.0], ["1", "2", "3"]])
def test_whole_numbers_may_be_ids(ids: list[Any]) -> None:
    assert CostTable.from_data(COLUMNS | {"query_id": ids}).query_ids == ["1", "2", "3"]


def test_shards_patterns_and_lists_are_one_table_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    TABLE.save(tmp_path / "shards", shards=3)
    files = sorted((tmp_path / "shards").iterdir())
    sources: list[Any] = [
        tmp_path / "shards",
        str(tmp_path / "shards" / "*.parquet"),
        files,
        [str(file) for file in files],
        f"file://{tmp_path}/shards",
    ]
    assert {CostTable.read(source).content_hash for source in sources} == {TABLE.content_hash}
    assert CostTable.read(files[::-1]).query_ids == ["r", "q", "p"]


def test_shards_may_differ_in_the_width_of_their_numbers(tmp_path: Path) -> None:
    pq.write_table(
        pa.table(COLUMNS).slice(0, 1).set_column(2, "score:a", pa.array([1], pa.int8())),
        tmp_path / "0.parquet",
    )
    pq.write_table(pa.table(COLUMNS).slice(1), tmp_path / "1.parquet")
    assert CostTable.read(tmp_path).content_hash == TABLE.content_hash


def test_fsspec_addresses_are_read_and_written() -> None:
    (
        fsspec.filesystem("memory").rm("/", recursive=True)
        if fsspec.filesystem("memory").ls("/")
        else None
    )
    assert TABLE.save("memory://bucket/t.parquet") == "memory://bucket/t.parquet"
    TABLE.save("memory://bucket/shards", shards=2)
    for source in (
        "memory://bucket/t.parquet",
        "memory://bucket/shards",
        "memory://bucket/shards/*.parquet",
    ):
        assert CostTable.read(source).content_hash == TABLE.content_hash
    with pytest.raises(TableError, match="does not exist"):
        CostTable.read("memory://bucket/none.parquet")


def test_a_scheme_without_its_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    with pytest.raises(MissingExtraError, match="adlfs"):
        CostTable.read("az://bucket/t.parquet")


def test_csv_keeps_leading_zeros_line_breaks_and_quotes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        'query_id,input,score:a,score:b\n001,"two\nlines, ""quoted""",1, 0.5\n1,,True,false\n'
    )
    table = CostTable.read(tmp_path / "t.csv")
    assert table.query_ids == ["001", "1"]
    assert table.inputs == ['two\nlines, "quoted"', ""]
    assert table.scores.tolist() == [[1.0, 0.5], [1.0, 0.0]]


def test_a_csv_message_names_the_row_and_the_word(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("query_id,score:a,score:b\np,1,0\nq,high,1\n")
    with pytest.raises(TableError, match="column 'score:a', row 1: a number is needed, got 'high'"):
        CostTable.read(tmp_path / "t.csv")


def test_a_json_key_that_comes_late_is_not_lost(tmp_path: Path) -> None:
    first = '{"query_id": "%d", "score:a": 1, "score:b": 0}\n'
    late = '{"query_id": "x", "score:a": 1, "score:b": 0, "cost:a": 1, "cost:b": 2}\n'
    (tmp_path / "t.jsonl").write_text("".join(first % row for row in range(1500)) + late)
    with pytest.raises(TableError, match=r"row 0 .*dollars must be"):
        CostTable.read(tmp_path / "t.jsonl")


def test_missing_scores_count_as_the_caller_says() -> None:
    columns = COLUMNS | {"score:a": [None, 0.25, float("nan")]}
    with pytest.raises(
        TableError, match=r"column 'score:a', row 0 \(query_id 'p'\): a score is missing"
    ):
        CostTable.from_data(columns)
    wrong = CostTable.from_data(columns, missing="zero")
    assert wrong.scores[:, 0].tolist() == [0.0, 0.25, 0.0]
    assert wrong.repairs == ("2 missing scores count as 0 (missing: zero)",)
    dropped = CostTable.from_data(columns, missing="drop")
    assert dropped.query_ids == ["q"]
    assert dropped.repairs == ("2 rows with missing scores are dropped (missing: drop)",)
    with pytest.raises(ArgumentError, match="missing must be"):
        CostTable.from_data(columns, missing="ignore")


@pytest.mark.parametrize("look", [CostTable.from_data, describe])
def test_experts_that_a_gateway_did_not_choose_never_count_as_wrong(
    look: Callable[..., Any],
) -> None:
    logged = {
        "query_id": ["p", "q", "r"],
        "score:a": [1, None, 1],
        "score:b": [None, 0, 1],
        "propensity:a": [0.9] * 3,
    }
    for missing in ("raise", "zero"):
        with pytest.raises(
            TableError,
            match=r"a score is missing.*not all experts answered each query.*to keep",
        ):
            look(logged, missing=missing)
    assert look(logged, missing="drop").rows == 1


@pytest.mark.parametrize("look", [CostTable.from_data, describe])
def test_a_table_of_holes_is_refused_with_the_way_out(look: Callable[..., Any]) -> None:
    sparse = {
        "query_id": list("pqr"),
        "score:a": [1, None, None],
        "score:b": [None, 0, None],
        "score:c": [None, None, 1],
    }
    with pytest.raises(
        TableError,
        match=r"got 6 of 9 missing; an expert that was not asked is not wrong: ask all of them",
    ):
        look(sparse, missing="zero")
    with pytest.raises(
        TableError, match=r"every expert has a score, but none of 3 rows has; collect the rest"
    ):
        look(sparse, missing="drop")
    assert look(sparse | {"score:a": [1, 0, 1], "score:b": [None, 0, 1]}, missing="zero").rows == 3


def test_identical_rows_are_dropped_and_said() -> None:
    table = CostTable.from_data({name: [*values, values[0]] for name, values in COLUMNS.items()})
    assert table.content_hash == TABLE.content_hash
    assert table.repairs == ("1 row that repeats an earlier row in every column is dropped",)


def test_other_rows_of_the_same_id_are_refused() -> None:
    columns = {name: [*values, values[0]] for name, values in COLUMNS.items()} | {
        "score:b": [0.5, 1.0, 1.0, 0.75]
    }
    with pytest.raises(
        TableError,
        match=(
            r"row 3: ids must be unique, got 'p' again \(first in row 0, with another 'score:b'\)"
        ),
    ):
        CostTable.from_data(columns)


def test_input_wins_over_text_and_says_so() -> None:
    table = CostTable.from_data(COLUMNS | {"input": ["x", "y", "z"]})
    assert table.inputs == ["x", "y", "z"]
    assert "both" in table.repairs[0]
    assert table.ignored == ("text",)


@pytest.mark.parametrize(
    ("times", "order"),
    [
        (["2024-01-03", "2024-01-01", "2024-01-02"], [1, 2, 0]),
        (["2024-01-01T02:00:00+02:00", "2024-01-01T00:30:00Z", "2023-12-31T23:00:00Z"], [2, 0, 1]),
        ([3, 1, 2], [1, 2, 0]),
        ([0.5, 0.1, 0.3], [1, 2, 0]),
    ],
)
def test_times_may_be_numbers_dates_or_iso_texts(times: list[Any], order: list[int]) -> None:
    column = CostTable.from_data(COLUMNS | {"time": times}).arrow.column("time")
    assert np.argsort(column.to_numpy(), kind="stable").tolist() == order


def test_a_time_that_is_no_time_is_refused() -> None:
    with pytest.raises(TableError, match="ISO"):
        CostTable.from_data(COLUMNS | {"time": ["now", "then", "soon"]})


@pytest.mark.parametrize("column", ["cost:a", "latency:a"])
@pytest.mark.parametrize("value", [1e-310, 1e-13, 1.1e9, 1e297, float("inf"), -1.0])
def test_dollars_and_seconds_have_bounds(column: str, value: float) -> None:
    """Denormal numbers gave warnings, and large ones a bill of infinity."""
    unit = "dollars" if column.startswith("cost") else "seconds"
    other = column.replace("a", "b") if column == "cost:a" else "latency:b"
    columns = {"input": ["x"], "score:a": [1], "score:b": [0], column: [value], other: [0.0]}
    with pytest.raises(TableError, match=f"{unit} must be 0 or from 1e-12 to 1e9, got .*its unit"):
        CostTable.from_data(columns)


def test_dollars_from_prices_have_the_same_bounds() -> None:
    table = CostTable.from_data({"input": ["abcd"], "score:a": [1], "score:b": [0]})
    with pytest.raises(TableError, match=r"tokens of 'b' make 1e\+297 dollars in row 0: dollars"):
        table.with_prices(PriceList.of({"a": 1.0, "b": 1e303}), output_tokens=0)
    with pytest.raises(ArgumentError, match=r"price_weight must be from 0 to 1e\+15, got 1e\+16"):
        table.costs(price_weight=1e16)


def test_counts_in_messages_agree_with_their_nouns() -> None:
    table = CostTable.from_data({"input": ["abcd"], "score:a": [1], "score:b": [0]})
    assert repr(table) == "CostTable(1 row, 2 experts: a, b)"
    with pytest.raises(TableError, match=r"no rows to .*: 1 row with one text, which stays"):
        table.split(0.5)
