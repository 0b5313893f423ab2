"""Each router against the formula of its loss, written out in NumPy and minimized by scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from mildroute.exceptions import ArgumentError
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)
from routers.baseline_cases import Array, noisy

WEIGHTS = np.random.default_rng(9).uniform(0.3, 2, 40)
PENALTY = 0.01


def winners(costs: Array) -> Array:
    best = (costs == costs.min(axis=1, keepdims=True)).astype(float)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def to_one(rewards: Array) -> Array:
    return np.asarray(rewards / np.average(rewards.sum(axis=1), weights=WEIGHTS))


def logistic(scores: Array, rewards: Array) -> Array:
    return (rewards * (logsumexp(scores, axis=1, keepdims=True) - scores)).sum(axis=1)


def tdef(costs: Array) -> Callable[[Array], Array]:
    return lambda scores: logistic(scores, to_one(1 - costs / max(1.0, costs.max())))


def tdef_sum(costs: Array) -> Callable[[Array], Array]:
    return lambda scores: logistic(scores, to_one(costs.sum(axis=1, keepdims=True) - costs))


def cross_entropy(costs: Array) -> Callable[[Array], Array]:
    return lambda scores: logistic(scores, winners(costs))


def weighted_cross_entropy(costs: Array) -> Callable[[Array], Array]:
    counts = WEIGHTS @ winners(costs)
    return lambda scores: logistic(scores, winners(costs) * counts.sum() / (len(counts) * counts))


def ldam(costs: Array) -> Callable[[Array], Array]:
    margins = (WEIGHTS @ winners(costs)) ** -0.25
    margins *= 0.7 * 4 / margins.max()

    def rows(scores: Array) -> Array:
        lowered = scores[:, None, :] - margins[:, None] * np.eye(len(margins))
        losses = logsumexp(lowered, axis=2) - np.diagonal(lowered, axis1=1, axis2=2)
        return np.asarray((winners(costs) * losses).sum(axis=1))

    return rows


def theory_margins(costs: Array) -> Array:
    shares = (WEIGHTS @ winners(costs)) ** (1 / 3)
    return np.asarray(shares / shares.sum())


def paper(costs: Array) -> Callable[[Array], Array]:
    margins = theory_margins(costs)
    rewards = to_one(costs.sum(axis=1, keepdims=True) - costs)

    def rows(scores: Array) -> Array:
        pairs = (scores[:, None, :] - scores[:, :, None]) / margins[:, None]
        return np.asarray((rewards * logsumexp(pairs, axis=2)).sum(axis=1))

    return rows


CASES: dict[str, tuple[Any, Callable[[Array], Callable[[Array], Array]]]] = {
    "tdef": (TDEFRouter(alpha=PENALTY), tdef),
    "tdef, sum": (TDEFRouter(alpha=PENALTY, reward="sum"), tdef_sum),
    "cross-entropy": (CrossEntropyRouter(alpha=PENALTY), cross_entropy),
    "weighted cross-entropy": (WeightedCrossEntropyRouter(alpha=PENALTY), weighted_cross_entropy),
    "ldam": (LDAMRouter(alpha=PENALTY, s=4.0, max_margin=0.7), ldam),
    "paper": (PaperMILDRouter(alpha=PENALTY), paper),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_minimise_the_written_formula(case: str) -> None:
    router, formula = CASES[case]
    X, costs = noisy(40, columns=2)
    rows, share = formula(costs), WEIGHTS / WEIGHTS.sum()
    variance = float((share @ (X - share @ X) ** 2).sum())
    unit = theory_margins(costs).mean() if case == "paper" else 1.0

    def objective(flat: Array) -> float:
        table = flat.reshape(3, 3)
        return float(
            share @ rows(X @ table[:2] + table[2])
            + PENALTY * variance * (table[:2] ** 2).sum() / unit**2
        )

    slow = minimize(objective, np.zeros(9), method="BFGS", options={"gtol": 1e-7}).x.reshape(3, 3)
    expected = X @ slow[:2] + slow[2]
    scores = router.fit(X, costs, sample_weight=WEIGHTS).decision_function(X)
    centered = scores - scores.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(centered, expected - expected.mean(axis=1, keepdims=True), atol=2e-4)


@pytest.mark.parametrize(
    "router",
    [
        TDEFRouter(reward="sum", alpha=0.01),
        PaperMILDRouter(alpha=0.01),
        CrossEntropyRouter(alpha=0.01),
    ],
)
def test_the_unit_of_the_costs_does_not_matter(router: Any) -> None:
    X, costs = noisy()
    np.testing.assert_allclose(
        router.fit(X, costs).decision_function(X),
        router.fit(X, 50 * costs).decision_function(X),
        atol=1e-5,
    )


def test_sum_rewards_of_negative_costs_are_those_of_costs_raised_to_zero() -> None:
    X, costs = noisy()
    shifted = TDEFRouter(reward="sum", alpha=0.01).fit(X, costs - 9).decision_function(X)
    raised = TDEFRouter(reward="sum", alpha=0.01).fit(X, costs - costs.min()).decision_function(X)
    np.testing.assert_allclose(shifted, raised, atol=1e-5)


def rare_but_dear(rows: int = 200) -> tuple[Array, Array]:
    """Expert 0 is best on nine rows of ten, and in the mean; no feature tells which."""
    costs = np.tile([0.0, 0.15], (rows, 1))
    costs[::10] = [1.0, 0.0]
    return np.zeros((rows, 1)), costs


def test_theory_margins_with_the_largest_score_prefer_the_rare_winner_wrongly() -> None:
    X, costs = rare_but_dear()
    assert TDEFRouter(alpha=0.01, reward="sum").fit(X, costs).predict(X[:1])[0] == 0
    router = PaperMILDRouter(alpha=0.01).fit(X, costs)
    assert router.predict(X[:1])[0] == 1
    np.testing.assert_allclose(router.margins_, np.array([9 ** (1 / 3), 1]) / (9 ** (1 / 3) + 1))


def test_a_searched_offset_evens_the_margins_out() -> None:
    X, costs = rare_but_dear()
    router = PaperMILDRouter(alpha=0.01, offsets="search", cv=2).fit(X, costs)
    assert router.predict(X[:1])[0] == 0
    assert router.offset_ in (1.0, 2.0, 3.0, 4.0, 5.0)
    np.testing.assert_allclose(router.margins_.sum(), 1 + 2 * router.offset_)


def test_the_papers_probabilities_are_the_softmax_over_the_mean_margin() -> None:
    X, costs = noisy()
    router = PaperMILDRouter(alpha=0.01).fit(X, costs)
    scaled = np.exp(router.decision_function(X) / router.margins_.mean())
    np.testing.assert_allclose(router.predict_proba(X), scaled / scaled.sum(axis=1, keepdims=True))


def test_ldam_without_margins_is_cross_entropy() -> None:
    X, costs = noisy()
    plain = CrossEntropyRouter(alpha=0.01).fit(X, costs).decision_function(X)
    np.testing.assert_allclose(
        LDAMRouter(max_margin=0.0, alpha=0.01).fit(X, costs).decision_function(X),
        plain,
        atol=1e-4,
    )


def test_rare_winners_gain_by_class_weights() -> None:
    X, costs = rare_but_dear()
    assert CrossEntropyRouter(alpha=0.01).fit(X, costs).predict_proba(X[:1])[0, 1] == pytest.approx(
        0.1, abs=1e-3
    )
    assert WeightedCrossEntropyRouter(alpha=0.01).fit(X, costs).predict_proba(X[:1])[
        0, 1
    ] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("router", "name"),
    [
        (TDEFRouter(reward="gap"), "reward"),
        (LDAMRouter(s=0.0), "s > 0"),
        (PaperMILDRouter(offsets="box"), "offsets"),
    ],  # type: ignore[arg-type]
)
def test_impossible_options_are_refused(router: Any, name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        router.fit(*noisy())
