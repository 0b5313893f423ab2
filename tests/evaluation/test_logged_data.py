from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mildroute.evaluation.logged_data import LoggedDecisions, read_logged_decisions
from mildroute.exceptions import ArgumentError, MildrouteError, TableError

COLUMNS: dict[str, Any] = {
    "query_id": ["p", "q", "r", "s"],
    "selected": ["a", "b", "c", "a"],
    "score:a": [0.5, None, None, None],
    "score:b": [None, 1.0, None, 0.25],
    "score:c": [None, None, 0.75, None],
    "cost:a": [0.1, None, None, None],
    "cost:b": [None, 0.2, None, 0.2],
    "cost:c": [None, None, 0.3, None],
    "propensity:a": [0.5, 0.5, 0.5, 0.5],
    "propensity:b": [0.3, 0.3, 0.3, 0.3],
    "propensity:c": [0.2, 0.2, 0.2, 0.2],
}


def test_costs_are_those_of_the_chosen_expert_and_missing_where_it_failed() -> None:
    logged = read_logged_decisions(pa.table(COLUMNS), price_weight=10.0)
    assert logged.costs == pytest.approx([1.5, 2.0, 3.25, np.nan], nan_ok=True)
    assert logged.has_answer.tolist() == [True, True, True, False]
    assert logged.has_failed.tolist() == [False, False, False, True]


def test_requests_that_went_to_other_experts_still_count_as_requests() -> None:
    logged = read_logged_decisions(pa.table(COLUMNS), experts=["a", "b"])
    assert logged.chosen.tolist() == [0, 1, -1, 0]
    assert logged.weights(np.array([[0.0, 1.0]] * 4)).tolist() == pytest.approx([0, 1 / 0.3, 0, 0])
    assert logged.has_failed.tolist() == [False, False, False, True]


def test_an_expert_that_never_had_a_chance_is_left_out_and_named() -> None:
    logged = read_logged_decisions(
        pa.table(COLUMNS | {"propensity:c": [0.0] * 4, "selected": ["a", "b", "a", "a"]})
    )
    assert logged.experts == ("a", "b")
    assert logged.notes == ("nothing can be said of 'c', which never had a chance",)


def test_without_exploration_nothing_can_be_estimated() -> None:
    never = COLUMNS | {
        "propensity:a": [1.0, 0.0, 0.0, 1.0],
        "propensity:b": [0.0, 1.0, 0.0, 0.0],
        "propensity:c": [0.0, 0.0, 1.0, 0.0],
    }
    with pytest.raises(TableError, match="let the gateway explore"):
        read_logged_decisions(pa.table(never))


def test_other_tables_and_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="mildroute costs from-log"):
        read_logged_decisions(pa.table({"query_id": ["q"], "score:a": [1.0], "score:b": [0.0]}))
    with pytest.raises(TableError, match="cannot be read as Parquet"):
        read_logged_decisions(tmp_path / "absent.parquet")
    with pytest.raises(TableError, match="no column 'propensity:z'"):
        read_logged_decisions(pa.table(COLUMNS), experts=["a", "z"])
    with pytest.raises(ArgumentError, match="price_weight must be finite"):
        read_logged_decisions(pa.table(COLUMNS), price_weight=-1.0)


@pytest.mark.parametrize(
    ("chosen", "costs", "chances", "message"),
    [
        ([0], [0.0], [[1.0, 0.0]], "chances must be above 0"),
        ([0], [0.0], [[0.9, 0.9]], "at most 1 together"),
        ([2], [0.0], [[0.5, 0.5]], "choice must lie between 0 and 1"),
        ([-2], [0.0], [[0.5, 0.5]], "choice must lie between 0 and 1"),
        ([0], [np.inf], [[0.5, 0.5]], "finite or NaN"),
        ([0], [0.0, 1.0], [[0.5, 0.5]], r"costs must be \(1,\)"),
        ([0], [0.0], [[1.0]], "one column for each of 2 experts"),
    ],
)
def test_what_cannot_be_weighted_is_refused(
    chosen: Any, costs: Any, chances: Any, message: str
) -> None:
    with pytest.raises(MildrouteError, match=message):
        LoggedDecisions(("a", "b"), chosen, costs, chances)


def test_some_rows_keep_all_that_belongs_to_them() -> None:
    logged = read_logged_decisions(
        pa.table(COLUMNS | {"input": list("wxyz"), "group": list("gghh")})
    )
    some = logged.take([3, 1])
    assert some.query_ids is not None
    assert some.inputs is not None
    assert some.groups is not None
    assert (some.query_ids.tolist(), some.inputs.tolist(), some.groups.tolist()) == (
        ["s", "q"],
        ["z", "x"],
        ["h", "g"],
    )
    assert some.chosen.tolist() == [0, 1]
