"""The digest sees every value and nothing of how it is held."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from mildroute._hashing import RowsDigest

COLUMNS: dict[str, Any] = {
    "text": ["one", "", None, "four", "five"],
    "number": [1.5, None, 0.0, -2.0, 7.0],
    "count": pa.array([1, 2, None, 0, 5], pa.int32()),
    "flag": [True, None, False, True, True],
    "time": [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 6)],
    "tags": [["a"], [], None, ["b", "c"], ["d"]],
    "raw": [b"1", b"", None, b"22", b"3"],
}


def digest(*runs: pa.Table) -> str:
    found = RowsDigest(runs[0].schema)
    for run in runs:
        found.add(run)
    return found.hexdigest()


def test_slices_and_chunks_leave_no_trace() -> None:
    table = pa.table(COLUMNS)
    shifted = pa.concat_tables([table.slice(3), table]).slice(2)
    assert shifted.equals(table)
    assert (
        digest(shifted)
        == digest(table)
        == digest(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    )


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("row", range(4))
def test_every_value_counts(name: str, row: int) -> None:
    table = pa.table(COLUMNS)
    values = table.column(name).to_pylist()
    values[row] = values[4]
    changed = table.set_column(
        table.column_names.index(name),
        table.schema.field(name),
        pa.array(values, table.schema.field(name).type),
    )
    assert changed.equals(table) == (digest(changed) == digest(table))


def test_a_missing_value_is_not_an_empty_one_and_texts_do_not_run_together() -> None:
    assert digest(pa.table({"text": pa.array([None], pa.string())})) != digest(
        pa.table({"text": [""]})
    )
    assert digest(pa.table({"text": ["ab", "c"]})) != digest(pa.table({"text": ["a", "bc"]}))
    assert digest(pa.table({"n": pa.array([None], pa.float64())})) != digest(pa.table({"n": [0.0]}))
