from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from mildroute.exceptions import ArgumentError
from mildroute.routers._cross_validation import ALPHAS
from mildroute.routers._folds import assign_folds
from mildroute.routers.surrogate import SurrogateRouter, TDEFRouter
from tests.support.baselines import noisy, separable


def held_out_cost(X: Any, costs: Any, alpha: float, folds: int) -> float:
    fold, paid = assign_folds(len(X), folds, seed=0), 0.0
    for current in range(folds):
        router = TDEFRouter(alpha=alpha).fit(X[fold != current], costs[fold != current])
        paid -= router.score(X[fold == current], costs[fold == current]) * (fold == current).sum()
    return paid / len(X)


def test_the_penalty_has_the_lowest_held_out_cost() -> None:
    X, costs = noisy(150, columns=10)
    risks = {alpha: held_out_cost(X, costs, alpha, folds=3) for alpha in ALPHAS}
    chosen = TDEFRouter(cv=3).fit(X, costs).alpha_
    assert risks[chosen] <= min(risks.values()) + 2e-3


def test_of_equal_penalties_the_strongest_is_taken() -> None:
    X, _ = noisy()
    assert TDEFRouter().fit(X, np.ones((60, 2))).alpha_ == ALPHAS[0]


def test_the_problem_is_solved_to_optimality() -> None:
    assert TDEFRouter(alpha=1e-3).fit(*separable()).gradient_norm_ < 1e-5


def test_a_chosen_penalty_gives_the_router_of_that_penalty() -> None:
    X, costs = noisy()
    chosen = TDEFRouter(cv=2, random_state=1).fit(X, costs)
    fixed = TDEFRouter(alpha=chosen.alpha_).fit(X, costs)
    np.testing.assert_array_equal(chosen.weights_, fixed.weights_)


def test_the_scale_of_the_features_does_not_matter() -> None:
    X, costs = noisy()
    one, other = (
        TDEFRouter(alpha=1e-3).fit(scale * X + 7, costs).decision_function(scale * X + 7)
        for scale in (1.0, 1e3)
    )
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_probabilities_are_the_softmax_of_the_scores() -> None:
    X, costs = noisy()
    router = TDEFRouter(alpha=1e-3).fit(X, costs)
    scores = X @ router.weights_ + router.intercept_
    np.testing.assert_allclose(router.decision_function(X), scores)
    np.testing.assert_allclose(
        router.predict_proba(X), np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    )


def test_the_base_class_names_no_loss_and_cannot_be_built() -> None:
    assert inspect.isabstract(SurrogateRouter)


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": "best"}, {"alpha": -1}, {"cv": 1}])
def test_impossible_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        TDEFRouter(**wrong).fit(*noisy())
