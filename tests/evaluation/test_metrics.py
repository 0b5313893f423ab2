"""Mean cost, score, dollars, regret and the share of the gap closed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mildroute.evaluation.metrics import (
    best_single,
    chosen_costs,
    deferral_loss,
    dollars_per_1000,
    gap_closed,
    mean_score,
    oracle,
    regret,
)
from mildroute.exceptions import ArgumentError, ShapeError
from tests.support.evaluation_cases import CHOICE, COSTS, tables


def test_the_chosen_expert_of_each_row_is_paid() -> None:
    assert chosen_costs(COSTS, CHOICE).tolist() == [0.0, 1.0, 0.5, 0.25]
    assert deferral_loss(COSTS, CHOICE) == 1.75 / 4


def test_score_and_dollars_are_means_over_rows() -> None:
    assert mean_score(1 - COSTS, CHOICE) == 2.25 / 4
    assert dollars_per_1000(COSTS / 1000, CHOICE) == pytest.approx(1.75 / 4)


def test_regret_is_what_is_paid_beyond_the_cheapest_expert() -> None:
    assert regret(COSTS, CHOICE).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_best_single_and_oracle_by_hand() -> None:
    # column sums 2.5, 1.25, 2.25; lowest of each row 0, 0, .5, .25, ties to the lowest index
    assert best_single(COSTS) == 1
    assert oracle(COSTS).tolist() == [0, 1, 0, 1]


def test_equal_costs_are_distinguished_by_dollars_whatever_the_order_of_columns() -> None:
    costs, dollars = (
        np.array([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]),
        np.array([[3.0, 1.0, 0.0], [1.0, 3.0, 5.0]]),
    )
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        chosen = oracle(costs[:, order], dollars[:, order])
        assert dollars_per_1000(dollars[:, order], chosen) == 1000 * (1 + 5) / 2
    # the first two cost .25 each on average, the more expensive one 6 dollars in all and the
    # cheaper one 4
    cheaper = dollars + np.array([[2.0, 0, 0], [0.0, 0, 0]])
    assert [best_single(costs[:, order], cheaper[:, order]) for order in ([0, 1], [1, 0])] == [1, 0]
    assert best_single(costs) == 0


def test_gap_closed_by_hand() -> None:
    # best single 1.25, oracle .75, ours 1.75, each over four rows
    assert gap_closed(COSTS, CHOICE) == pytest.approx(-1.0)
    # from the first expert: 2.5 to .75
    assert gap_closed(COSTS, CHOICE, reference=0) == pytest.approx(0.75 / 1.75)


def test_gap_closed_has_no_value_where_one_expert_is_the_oracle() -> None:
    assert np.isnan(gap_closed([[0.0, 1.0], [0.0, 1.0]], [0, 1]))


@given(tables())
def test_regret_is_never_negative_and_the_oracle_has_none(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    costs, choice = table
    assert (regret(costs, choice) >= 0).all()
    assert (regret(costs, oracle(costs)) == 0).all()


@given(tables())
def test_the_gap_runs_from_the_best_single_to_the_oracle(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    costs, _ = table
    ends = [
        gap_closed(costs, np.full(len(costs), best_single(costs))),
        gap_closed(costs, oracle(costs)),
    ]
    assert ends == [0, 1] or np.isnan(ends).all()


@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_experts_does_not_matter(
    table: tuple[np.ndarray, np.ndarray], random: object
) -> None:
    costs, choice = table
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    rows, experts = rng.permutation(len(costs)), rng.permutation(costs.shape[1])
    mixed, moved = costs[rows][:, experts], np.argsort(experts)[choice[rows]]
    assert deferral_loss(mixed, moved) == pytest.approx(deferral_loss(costs, choice))
    assert gap_closed(mixed, moved) == pytest.approx(gap_closed(costs, choice), nan_ok=True)
    assert regret(mixed, moved).tolist() == regret(costs, choice)[rows].tolist()


@pytest.mark.parametrize(
    ("costs", "choice", "error"),
    [
        ([0.0, 1.0], [0, 1], ShapeError),
        (np.zeros((0, 2)), [], ShapeError),
        ([[0.0, np.nan]], [0], ArgumentError),
        ([[0.0, 1.0]], [0, 1], ShapeError),
        ([[0.0, 1.0]], [2], ArgumentError),
        ([[0.0, 1.0]], [-1], ArgumentError),
        ([[0.0, 1.0]], [0.5], ArgumentError),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    costs: object, choice: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        chosen_costs(costs, choice)
