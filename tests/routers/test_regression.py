from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.routers._ridge import ridge
from mildroute.routers.regression import RegressionRouter
from tests.support.baselines import noisy, separable

X = np.linspace(0, 1, 40)[:, None]
# Expert 0 gets worse to the right, expert 1 stays as it is.
ERRORS = np.hstack([X, np.full((40, 1), 0.4)])


def test_scores_are_minus_the_regressed_costs() -> None:
    rows, costs = noisy()
    np.testing.assert_allclose(
        RegressionRouter().fit(rows, costs).decision_function(rows),
        -ridge(rows, costs).predict(rows),
    )


def test_the_lowest_expected_cost_is_chosen() -> None:
    np.testing.assert_array_equal(RegressionRouter().fit(X, ERRORS).predict([[0.2], [0.7]]), [0, 1])


def test_a_price_weight_shifts_the_choice_without_a_new_fit() -> None:
    router = RegressionRouter().fit(X, ERRORS, prices=[0.0, 0.1])
    shares = [router.predict(X, price_weight=weight).mean() for weight in (0.0, 1.0, 2.0, 4.0, 6.1)]
    np.testing.assert_allclose(shares, [0.6, 0.5, 0.4, 0.2, 0.0], atol=0.03)


def test_the_price_weight_of_the_constructor_may_change_after_the_fit() -> None:
    router = RegressionRouter().fit(X, ERRORS, prices=[0.0, 0.1])
    np.testing.assert_array_equal(router.predict(X), router.predict(X, price_weight=1.0))
    router.set_params(price_weight=4.0)
    np.testing.assert_array_equal(router.predict(X), router.predict(X, price_weight=4.0))
    np.testing.assert_array_equal(router.rank(X)[:, 0], router.predict(X))
    assert router.score(X, ERRORS) < RegressionRouter().fit(X, ERRORS).score(X, ERRORS)


def test_prices_of_each_row_are_regressed_on_the_input() -> None:
    prices = np.hstack([np.zeros((40, 1)), 2 * X])
    router = RegressionRouter().fit(X, ERRORS, prices=prices)
    expected = -(ERRORS + 0.5 * prices)
    np.testing.assert_allclose(router.decision_function(X, price_weight=0.5), expected, atol=2e-3)


def test_constant_prices_are_kept_exactly() -> None:
    rows, costs = noisy()
    router = RegressionRouter().fit(rows, costs, prices=[1.0, 2.0, 3.0])
    added = router.decision_function(rows, price_weight=0.0) - router.decision_function(
        rows, price_weight=1.0
    )
    np.testing.assert_allclose(added, np.tile([1.0, 2.0, 3.0], (len(rows), 1)), rtol=1e-12)


def test_adding_prices_to_the_costs_is_nearly_the_same_router() -> None:
    rows, costs = separable()
    together = RegressionRouter().fit(rows, costs + np.array([0.1, 0.2, 0.3]))
    apart = RegressionRouter().fit(rows, costs, prices=[0.1, 0.2, 0.3])
    np.testing.assert_allclose(
        apart.decision_function(rows), together.decision_function(rows), rtol=1e-9
    )


def test_rows_of_weight_zero_lose_their_prices_too() -> None:
    prices = np.hstack([np.zeros((40, 1)), np.where(X > 0.5, 9.0, 0.1)])
    weights = (X[:, 0] <= 0.5).astype(float)
    router = RegressionRouter().fit(X, ERRORS, sample_weight=weights, prices=prices)
    np.testing.assert_allclose(router.price_intercept_, [0.0, 0.1], atol=1e-9)


@pytest.mark.parametrize("weight", [-1.0, np.inf, np.nan])
def test_impossible_price_weights_are_refused(weight: float) -> None:
    with pytest.raises(ArgumentError, match="price_weight must be a number of at least 0"):
        RegressionRouter().fit(X, ERRORS, prices=[0.0, 0.1]).predict(X, price_weight=weight)


def test_a_price_weight_without_prices_is_refused() -> None:
    with pytest.raises(ArgumentError, match="fitted without prices; pass prices"):
        RegressionRouter().fit(X, ERRORS).predict(X, price_weight=1.0)


@pytest.mark.parametrize(
    ("prices", "error"),
    [([1.0], ShapeError), (np.ones((3, 2)), ShapeError), ([1.0, np.nan], CostError)],
)
def test_impossible_prices_are_refused(prices: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="prices must be"):
        RegressionRouter().fit(X, ERRORS, prices=prices)
