from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.baselines import (
    BestSingleRouter,
    CheapestRouter,
    MostExpensiveRouter,
    RandomRouter,
)

X = np.arange(3.0)[:, None]
COSTS = np.array([[0.1, 0.5, 0.9], [0.1, 0.0, 0.2], [1.0, 0.2, 0.3]])
NEW = np.array([[10.0], [20.0]])


def test_the_best_single_expert_has_the_lowest_mean_cost() -> None:
    router = BestSingleRouter().fit(X, COSTS)
    np.testing.assert_array_equal(router.predict(NEW), [1, 1])
    np.testing.assert_allclose(router.decision_function(NEW)[0], -COSTS.mean(axis=0))
    np.testing.assert_array_equal(router.rank(NEW)[0], [1, 0, 2])


def test_weights_decide_which_single_expert_is_best() -> None:
    assert BestSingleRouter().fit(X, COSTS, sample_weight=[5, 1, 1]).predict(NEW)[0] == 0


def test_equal_experts_give_the_highest_index() -> None:
    for kind in (BestSingleRouter, CheapestRouter, MostExpensiveRouter):
        assert kind().fit(X, np.ones((3, 4))).predict(NEW)[0] == 3


def test_prices_name_the_cheapest_and_the_most_expensive() -> None:
    assert CheapestRouter(prices=[3, 1, 2]).fit(X, COSTS).predict(NEW)[0] == 1
    assert MostExpensiveRouter(prices=[3, 1, 2]).fit(X, COSTS).predict(NEW)[0] == 0


def test_without_prices_the_lowest_cost_ever_seen_counts() -> None:
    assert CheapestRouter().fit(X, COSTS).predict(NEW)[0] == 1
    assert MostExpensiveRouter().fit(X, COSTS).predict(NEW)[0] == 2
    assert CheapestRouter().fit(X, COSTS, sample_weight=[1, 0, 0]).predict(NEW)[0] == 0


@pytest.mark.parametrize(
    "router",
    [
        CheapestRouter(prices=[1, 2]),
        MostExpensiveRouter(prices=[[1, 2, 3]]),
        RandomRouter(shares=[1]),
    ],
)
def test_one_number_per_expert_is_asked_for(router: Any) -> None:
    with pytest.raises(ShapeError, match=r"must be \(3,\), one per expert"):
        router.fit(X, COSTS)


@pytest.mark.parametrize(
    "router",
    [
        CheapestRouter(prices=[1, 2, np.nan]),
        RandomRouter(shares=[1, -1, 1]),
        RandomRouter(shares=[0, 0, 0]),
    ],
)
def test_impossible_prices_and_shares_are_refused(router: Any) -> None:
    with pytest.raises(ArgumentError, match=r"must (be finite|not be negative)"):
        router.fit(X, COSTS)


def test_random_choices_have_the_shares_asked_for() -> None:
    rows = np.random.default_rng(0).normal(size=(20000, 3))
    shares = np.array([0.5, 0.0, 0.3, 0.2])
    router = RandomRouter(shares=10 * shares, random_state=1).fit(rows, np.zeros((20000, 4)))
    np.testing.assert_allclose(
        np.bincount(router.predict(rows), minlength=4) / 20000, shares, atol=0.012
    )
    np.testing.assert_allclose(router.predict_proba(rows[:2]), [shares, shares])


def test_second_choices_are_random_too() -> None:
    rows = np.random.default_rng(0).normal(size=(9000, 3))
    ranked = RandomRouter().fit(rows, np.zeros((9000, 3))).rank(rows)
    for place in range(3):
        np.testing.assert_allclose(np.bincount(ranked[:, place]) / 9000, 1 / 3, atol=0.02)


def test_a_random_choice_belongs_to_the_row_and_the_seed() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 3))
    router = RandomRouter(random_state=7).fit(rows, np.zeros((300, 5)))
    choice = router.predict(rows)
    np.testing.assert_array_equal(router.predict(rows[::-1])[::-1], choice)
    np.testing.assert_array_equal(router.predict(sparse.csr_matrix(rows)), choice)
    np.testing.assert_array_equal(
        RandomRouter(random_state=7).fit(rows[:1], np.zeros((1, 5))).predict(rows), choice
    )
    assert (
        RandomRouter(random_state=8).fit(rows, np.zeros((300, 5))).predict(rows) != choice
    ).mean() > 0.5
