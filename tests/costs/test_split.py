from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError


def table_of(texts: list[str], **columns: list[Any]) -> CostTable:
    return CostTable.from_data(
        {"input": texts, "score:a": [1] * len(texts), "score:b": [0] * len(texts)} | columns
    )


def sides(table: CostTable, **how: Any) -> tuple[set[str], set[str]]:
    train, test = table.split(**how)
    assert sorted(train.query_ids + test.query_ids) == sorted(table.query_ids)
    assert train.inputs is not None
    assert test.inputs is not None
    assert not set(train.inputs) & set(test.inputs)
    return set(train.query_ids), set(test.query_ids)


@given(
    st.lists(st.sampled_from("abcdefghij"), min_size=8, max_size=60),
    st.floats(0.1, 0.9),
    st.integers(0, 5),
)
def test_no_text_is_on_both_sides_and_sizes_are_near(
    texts: list[str], share: float, seed: int
) -> None:
    texts = [*texts, "x", "y"]
    table = table_of(texts)
    _, test = sides(table, test=share, seed=seed)
    largest = max(texts.count(text) for text in texts)
    assert abs(len(test) - share * len(texts)) <= largest + 0.5


def test_sizes_are_exact_where_all_texts_differ_and_seeds_decide() -> None:
    table = table_of([f"text {row}" for row in range(1000)])
    first, again, other = (sides(table, test=0.25, seed=seed)[1] for seed in (0, 0, 1))
    assert len(first) == 250
    assert first == again != other


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefghijklmnop"), st.integers(0, 9)), min_size=10, max_size=60
    ),
    st.integers(0, 3),
)
def test_groups_stay_whole(rows: list[tuple[str, int]], seed: int) -> None:
    # two more rows that share nothing with the others, so that a split exists
    table = table_of(
        [text for text, _ in rows] + ["y", "z"], group=[number for _, number in rows] + [10, 11]
    )
    train, test = table.split(0.3, by="group", seed=seed)
    sides(table, test=0.3, by="group", seed=seed)
    assert train.groups is not None
    assert test.groups is not None
    assert not set(train.groups) & set(test.groups)


def test_the_latest_rows_are_tested() -> None:
    train, test = sides(table_of(list("abcde"), time=[5, 1, 4, 2, 3]), test=0.4, by="time")
    assert test == {"0", "2"}
    assert train == {"1", "3", "4"}


def test_a_text_that_comes_early_and_late_is_tested_so_that_no_future_is_trained_on() -> None:
    train, test = sides(table_of(list("abcda"), time=[1, 2, 3, 4, 5]), test=0.4, by="time")
    assert test == {"0", "4"}
    assert train == {"1", "2", "3"}


def test_a_column_says_train_or_test_and_shared_texts_are_tested() -> None:
    train, test = sides(
        table_of(list("abca"), split=["train", "test", "train", "test"]), by="column"
    )
    assert (train, test) == ({"2"}, {"0", "1", "3"})
    sides_of_two = table_of(list("abca"), split=["train", "test", "train", "test"]).split(
        by="column"
    )
    assert all(
        "1 row labeled 'train' moved to the test side" in side.repairs[-1] for side in sides_of_two
    )


def test_tables_without_texts_split_by_row() -> None:
    train, test = CostTable.from_data({"score:a": [1] * 10, "score:b": [0] * 10}).split(0.3)
    assert (len(train), len(test)) == (7, 3)


@pytest.mark.parametrize(
    "how",
    [
        {"test": 0},
        {"test": 1},
        {"test": -0.2},
        {"test": float("nan")},
        {"by": "luck"},
        {"test": "half"},
    ],
)
def test_wrong_arguments_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        table_of(list("abc")).split(**how)


@pytest.mark.parametrize("by", ["group", "time", "column"])
def test_a_split_needs_its_column(by: str) -> None:
    with pytest.raises(TableError, match="needs the column"):
        table_of(list("abc")).split(by=by)


def test_a_split_that_leaves_a_side_empty_is_refused() -> None:
    with pytest.raises(TableError, match="no rows"):
        table_of(["same"] * 9).split(0.2)
    with pytest.raises(TableError, match="no rows"):
        table_of(list("abc"), group=["g"] * 3).split(0.2, by="group")
    with pytest.raises(TableError, match="'train' or 'test', got 'dev'"):
        table_of(list("abc"), split=["train", "test", "dev"]).split(by="column")


def test_numbers_follow_their_rows() -> None:
    rng = np.random.default_rng(0)
    table = CostTable.from_data({"score:a": rng.random(50), "score:b": rng.random(50)})
    for side in table.split(0.3):
        np.testing.assert_array_equal(
            side.scores, table.scores[[int(name) for name in side.query_ids]]
        )


def test_rows_that_share_one_text_are_named_as_the_cause() -> None:
    with pytest.raises(TableError, match="9 rows with one text, which stays on one side"):
        table_of(["same"] * 9).split(0.2)
