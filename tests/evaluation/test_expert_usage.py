"""Shares of the experts and their effective number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from mildroute.evaluation.expert_usage import effective_experts, expert_shares, oracle_shares
from mildroute.exceptions import ArgumentError
from tests.support.evaluation_cases import CHOICE, COSTS, tables


def test_shares_count_rows() -> None:
    assert expert_shares(CHOICE, 4).tolist() == [0.5, 0.25, 0.25, 0.0]


def test_the_oracle_splits_tied_rows_equally() -> None:
    # row 0 to the first; row 1 half to each of the last two; row 2 a third to each; row 3 to the
    # second
    assert oracle_shares(COSTS) == pytest.approx(
        [(1 + 1 / 3) / 4, (1 / 2 + 1 / 3 + 1) / 4, (1 / 2 + 1 / 3) / 4]
    )


def test_effective_experts_of_equal_shares_is_their_number_and_of_one_expert_is_one() -> None:
    assert effective_experts([0.25] * 4) == pytest.approx(4)
    assert effective_experts([1.0, 0.0]) == pytest.approx(1)
    # entropy of (3/4, 1/4) is log 4 - 3/4 log 3
    assert effective_experts([0.75, 0.25]) == pytest.approx(4 / 3**0.75)


@given(tables())
def test_shares_sum_to_one_and_their_effective_number_is_within_bounds(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    costs, choice = table
    for shares in (expert_shares(choice, costs.shape[1]), oracle_shares(costs)):
        assert shares.sum() == pytest.approx(1)
        assert 1 - 1e-9 <= effective_experts(shares) <= costs.shape[1] + 1e-9


@given(tables())
def test_shares_follow_the_experts_when_these_are_reordered(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    costs, choice = table
    assert oracle_shares(costs[:, ::-1])[::-1] == pytest.approx(oracle_shares(costs))
    experts = costs.shape[1]
    assert (
        expert_shares(experts - 1 - choice, experts)[::-1].tolist()
        == expert_shares(choice, experts).tolist()
    )


@pytest.mark.parametrize("shares", [[0.5, 0.4], [1.5, -0.5], [[1.0]]])
def test_numbers_that_are_no_shares_are_refused(shares: object) -> None:
    with pytest.raises(ArgumentError):
        effective_experts(shares)


def test_no_rows_have_no_shares() -> None:
    with pytest.raises(ArgumentError, match="at least one row"):
        expert_shares(np.zeros(0, dtype=int), 2)
