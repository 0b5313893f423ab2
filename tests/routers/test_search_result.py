"""Which candidate is taken, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.routers._search_result import (
    SearchResult,
    held_out_costs,
    select_one_se,
    to_cv_results,
)


def candidate(
    paid: list[float], view: Any = "raw", margins: str = "uniform", alpha: float = 0.01
) -> SearchResult:
    return SearchResult(
        view,
        "gap",
        margins,
        alpha,
        np.array(paid, dtype=float),
        np.zeros((len(paid), 2), np.float32),
        np.ones(2),
    )


def single(paid: list[float]) -> SearchResult:
    return candidate(paid, view="none", alpha=np.inf)


def test_the_best_single_expert_is_simplest_then_vector_topics_and_differing_margins() -> None:
    kinds = [
        single([0]),
        candidate([0]),
        candidate([0], view="topics"),
        candidate([0], margins="theory"),
    ]
    assert [kind.rank for kind in kinds] == [0, 1, 2, 3]
    assert candidate([0], view="topics", margins="theory").rank == 3


def test_a_candidate_better_by_more_than_one_standard_error_is_taken() -> None:
    """The differences 1, 0, 0, 0 have mean 1/4 and standard error sqrt(3) / 8 = 0.217."""
    better = candidate([0, 1, 1, 1])
    choice = select_one_se([single([1, 1, 1, 1]), better])
    assert choice.taken is better
    assert (
        choice.reason
        == "raw features, gap reward, uniform margins, penalty 0.01: lowest cost on held-out rows"
    )


def test_the_best_single_expert_within_one_standard_error_is_taken() -> None:
    """The differences 1, 0, 0, -1/2 have mean 1/8 and standard error 0.272."""
    flat = single([1, 1, 1, 1])
    choice = select_one_se([flat, candidate([0, 1, 1, 1.5])])
    assert choice.taken is flat
    assert choice.reason.startswith("the best single expert")


def test_differences_are_paired() -> None:
    """Costs vary by 100, but every row is better by 0.01: there is no doubt."""
    paid = np.array([0, 100, 0, 100.0])
    better = candidate(list(paid - 0.01))
    assert select_one_se([single(list(paid)), better]).taken is better


def test_of_equals_the_simpler_is_taken() -> None:
    flat = single([1, 0])
    assert (
        select_one_se(
            [
                candidate([1, 0], margins="theory"),
                candidate([1, 0], view="topics"),
                candidate([1, 0]),
                flat,
            ]
        ).taken
        is flat
    )


def test_equal_margins_within_one_standard_error_of_differing_ones_are_taken() -> None:
    flat, equal = single([9, 9, 9, 9]), candidate([1, 1, 1, 1])
    choice = select_one_se(
        [flat, candidate([2, 2, 2, 2]), equal, candidate([0, 1, 1, 1.5], margins="theory")]
    )
    assert choice.taken is equal
    assert "simpler, and within one standard error" in choice.reason
    assert "(0.125 above, error 0.2724)" in choice.reason


def test_the_vector_within_one_standard_error_of_topics_is_taken() -> None:
    vector, topics = candidate([1, 1, 1, 1]), candidate([0, 1, 1, 1.5], view="topics")
    assert select_one_se([single([9, 9, 9, 9]), topics, vector]).taken is vector
    assert select_one_se([single([9, 9, 9, 9]), topics, candidate([2, 2, 2, 2])]).taken is topics


def test_differing_margins_are_taken_where_they_are_clearly_better() -> None:
    differing = candidate([0, 0, 0, 0.1], margins="theory")
    assert (
        select_one_se([single([1, 1, 1, 1]), candidate([1, 1, 1, 1]), differing]).taken is differing
    )


def test_the_best_of_the_simpler_kind_is_compared_not_the_first() -> None:
    near = candidate([1, 1, 1, 1], alpha=0.3)
    assert (
        select_one_se(
            [candidate([5, 5, 5, 5]), near, candidate([0, 1, 1, 1.5], margins="theory")]
        ).taken
        is near
    )


def test_a_simpler_kind_does_not_replace_a_candidate_of_its_own_kind() -> None:
    best = candidate([0, 1, 1, 1], alpha=0.001)
    assert select_one_se([candidate([0, 1, 1, 1.1], alpha=0.1), best]).taken is best


def test_rows_of_weight_zero_have_no_say() -> None:
    flat, better = single([1, 1, 1, 1]), candidate([0, 0, 9, 9])
    assert select_one_se([flat, better]).taken is flat
    assert select_one_se([flat, better], np.array([1.0, 1, 0, 0])).taken is better


def test_a_row_of_large_weight_is_not_many_rows() -> None:
    """Differences 1 and -1 of weights 4 and 1.

    Mean 0.6, deviation 0.8, worth 25 / 17 rows, so the standard error is 0.66.
    """
    flat, better = single([1, 1]), candidate([0, 2])
    assert select_one_se([flat, better], np.array([4.0, 1])).taken is flat
    repeated = [single([1] * 5), candidate([0, 0, 0, 0, 2])]
    assert select_one_se(repeated).taken is repeated[1]  # five rows: the standard error is 0.36


def test_the_unit_of_the_weights_does_not_matter() -> None:
    candidates = [single([1, 1, 1, 1]), candidate([0, 1, 1, 1.5])]
    weights = np.array([1.0, 2, 3, 4])
    assert (
        select_one_se(candidates, weights).taken is select_one_se(candidates, 100 * weights).taken
    )


def test_one_candidate_that_nothing_is_known_of_is_taken() -> None:
    only = candidate([np.nan, np.nan], margins="given")
    assert select_one_se([only]).taken is only


def test_the_table_has_a_row_for_each_candidate() -> None:
    table = to_cv_results([single([1, 1]), candidate([0, 1], margins="theory", alpha=0.3)])
    assert table["view"] == ["none", "raw"]
    assert table["margins"] == ["uniform", "theory"]
    assert table["alpha"] == [np.inf, 0.3]
    assert table["mean_cost"] == [1, 0.5]
    assert table["standard_error"] == [0, pytest.approx(0.5 / np.sqrt(2))]
    assert {len(column) for column in table.values()} == {2}


@pytest.mark.parametrize(
    ("margins", "decision", "paid"),
    [([1.0, 1.0], "consistent", 7.0), ([2.0, 1.0], "argmax", 7.0), ([2.0, 1.0], "consistent", 3.0)],
)
def test_the_decision_says_which_expert_is_paid(
    margins: list[float], decision: str, paid: float
) -> None:
    """The scores 0 and 0.2 mean, with margins 2 and 1, that the first expert is the more probable
    one.
    """
    found = held_out_costs(
        np.array([[0.0, 0.2]], np.float32), np.array([[3.0, 7.0]]), np.array(margins), decision
    )
    np.testing.assert_array_equal(found, [paid])
