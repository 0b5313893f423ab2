from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mildroute.costs.summary import describe
from mildroute.costs.table import CostTable

COLUMNS: dict[str, list[Any]] = {
    "query_id": ["p", "q", "r"],
    "input": ["one", "", "drei ß"],
    "group": ["g", "g", "h"],
    "score:a": [1.0, 0.25, 0.0],
    "score:b": [0.5, 1.0, 1.0],
    "cost:a": [0.1, 0.2, 0.3],
    "cost:b": [1.0, 2.0, 3.0],
}
HASH = CostTable.from_data(COLUMNS).content_hash


@given(st.lists(st.integers(0, 3), max_size=4), st.permutations(list(COLUMNS)))
def test_chunks_and_the_order_of_columns_leave_no_trace(cuts: list[int], names: list[str]) -> None:
    table = pa.table({name: COLUMNS[name] for name in names})
    bounds = sorted([0, 3, *cuts])
    chunked = pa.concat_tables(
        [table.slice(start, stop - start) for start, stop in pairwise(bounds)]
    )
    assert CostTable.from_data(chunked).content_hash == HASH
    assert describe(chunked).content_hash == HASH


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("row", range(3))
def test_any_change_gives_another_hash(name: str, row: int) -> None:
    values = list(COLUMNS[name])
    values[row] = (
        values[row] + "x" if isinstance(values[row], str) else float(np.nextafter(values[row], 0.7))
    )
    assert CostTable.from_data(COLUMNS | {name: values}).content_hash != HASH


def test_text_that_moves_across_a_border_gives_another_hash() -> None:
    assert CostTable.from_data(COLUMNS | {"input": ["on", "e", "drei ß"]}).content_hash != HASH


def test_renamed_experts_dropped_columns_and_reordered_rows_give_other_hashes() -> None:
    renamed = {name.replace(":a", ":z"): values for name, values in COLUMNS.items()}
    dropped = {name: values for name, values in COLUMNS.items() if name != "group"}
    assert (
        len({HASH, *(CostTable.from_data(columns).content_hash for columns in (renamed, dropped))})
        == 3
    )
    assert CostTable.from_data(COLUMNS).take([1, 0, 2]).content_hash != HASH


def test_minus_zero_is_zero() -> None:
    assert CostTable.from_data(COLUMNS | {"score:a": [1.0, 0.25, -0.0]}).content_hash == HASH


def test_the_hash_is_the_same_in_every_version() -> None:
    assert HASH == "8e1c4bb79d81ef52f703e0025c568c7e3ed8f8e34111a4c1cc26f022b3475000"
