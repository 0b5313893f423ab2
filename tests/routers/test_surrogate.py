"""Each router against the formula of its loss, written out in NumPy and minimized by scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.model_selection import KFold
from torch import Tensor

from mildroute.exceptions import ArgumentError
from mildroute.losses.functional import deferral_loss
from mildroute.losses.loss_module import LossModule
from mildroute.losses.rewards import sum_rewards
from mildroute.routers._rewards import THEORY, margins_by
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    CustomLossRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)
from tests.support.baselines import Array, noisy

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
    rewards = costs.sum(axis=1, keepdims=True) - costs
    shares = (WEIGHTS @ (rewards / rewards.sum(axis=1, keepdims=True))) ** (1 / 3)
    return np.asarray(shares / shares.sum())


def margins_of_wins(costs: Array) -> Array:
    shares = (WEIGHTS @ winners(costs)) ** (1 / 3)
    return np.asarray(shares / shares.sum())


def mild(costs: Array, margins: Array) -> Callable[[Array], Array]:
    rewards = to_one(costs.sum(axis=1, keepdims=True) - costs)

    def rows(scores: Array) -> Array:
        pairs = (scores[:, None, :] - scores[:, :, None]) / margins[:, None]
        return np.asarray((rewards * logsumexp(pairs, axis=2)).sum(axis=1))

    return rows


def paper(costs: Array) -> Callable[[Array], Array]:
    return mild(costs, theory_margins(costs))


def paper_of_wins(costs: Array) -> Callable[[Array], Array]:
    return mild(costs, margins_of_wins(costs))


CASES: dict[str, tuple[Any, Callable[[Array], Callable[[Array], Array]]]] = {
    "tdef": (TDEFRouter(alpha=PENALTY), tdef),
    "tdef, sum": (TDEFRouter(alpha=PENALTY, reward="sum"), tdef_sum),
    "cross-entropy": (CrossEntropyRouter(alpha=PENALTY), cross_entropy),
    "weighted cross-entropy": (WeightedCrossEntropyRouter(alpha=PENALTY), weighted_cross_entropy),
    "ldam": (LDAMRouter(alpha=PENALTY, s=4.0, max_margin=0.7), ldam),
    "paper": (PaperMILDRouter(alpha=PENALTY), paper),
    "paper, winner counts": (
        PaperMILDRouter(alpha=PENALTY, margins="winner_counts"),
        paper_of_wins,
    ),
}
MARGINS_OF = {"paper": theory_margins, "paper, winner counts": margins_of_wins}


@pytest.mark.parametrize("case", CASES)
def test_scores_minimise_the_written_formula(case: str) -> None:
    router, formula = CASES[case]
    X, costs = noisy(40, columns=2)
    rows, share = formula(costs), WEIGHTS / WEIGHTS.sum()
    variance = float((share @ (X - share @ X) ** 2).sum())
    unit = MARGINS_OF[case](costs).mean() if case in MARGINS_OF else 1.0

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
    assert np.ptp(router.offsets_) == 0
    assert router.offsets_[0] in (1.0, 2.0, 3.0, 4.0, 5.0)
    np.testing.assert_allclose(router.margins_.sum(), 1 + 2 * router.offsets_[0])


def test_without_a_search_no_offset_is_added() -> None:
    router = PaperMILDRouter().fit(*rare_but_dear())
    np.testing.assert_array_equal(router.offsets_, [0, 0])
    assert not router.at_edge_.any()
    assert router.selection_ == "theory margins, not tuned: as configured"


def mild_loss(scores: Tensor, costs: Tensor, **settings: Any) -> Tensor:
    return deferral_loss(scores, sum_rewards(costs), **settings)


def held_out_cost(offsets: Array, folds: Any) -> float:
    """What untuned MILD with these offsets pays on held-out rows, by its definition."""
    X, costs = noisy(40, columns=2)
    paid = 0.0
    for seen, held_out in folds:
        margins = margins_by(THEORY, costs[seen].sum(axis=1, keepdims=True) - costs[seen]) + offsets
        loss = LossModule(
            mild_loss, margins=torch.from_numpy(margins / margins.mean()), reduction="none"
        )
        router = CustomLossRouter(loss, alpha=PENALTY).fit(X[seen], costs[seen])
        paid += float(costs[held_out, router.predict(X[held_out])].sum())
    return paid / len(costs)


def test_offsets_per_expert_are_no_worse_than_a_common_one_and_cannot_be_improved_one_by_one() -> (
    None
):
    X, costs = noisy(40, columns=2)
    folds = list(KFold(2, shuffle=True, random_state=0).split(X))
    settings: dict[str, Any] = {"alpha": PENALTY, "cv": folds, "largest_offset": 2}
    common = PaperMILDRouter(offsets="search", **settings).fit(X, costs)
    each = PaperMILDRouter(offsets="per_expert", **settings).fit(X, costs)
    grid = (0.0, 1.0, 2.0)
    paid = {offset: held_out_cost(np.full(3, offset), folds) for offset in grid}
    assert paid[common.offsets_[0]] == pytest.approx(min(paid.values()))
    best = held_out_cost(each.offsets_, folds)
    assert best <= min(paid.values()) + 1e-12
    for expert in range(3):
        for offset in grid:
            changed = each.offsets_.copy()
            changed[expert] = offset
            assert held_out_cost(changed, folds) >= best - 1e-12
    shares = margins_by(THEORY, costs.sum(axis=1, keepdims=True) - costs)
    np.testing.assert_allclose(each.margins_, shares + each.offsets_)


@pytest.mark.parametrize("offsets", ["search", "per_expert"])
def test_the_edge_of_the_grid_is_told(offsets: Any) -> None:
    """With one offset to choose from beside none, the chosen one is at the edge."""
    router = PaperMILDRouter(alpha=0.01, offsets=offsets, largest_offset=1, cv=2)
    router.fit(*rare_but_dear())
    np.testing.assert_array_equal(router.at_edge_, router.offsets_ == 1)
    assert router.at_edge_.any()
    assert "at the edge of the grid" in router.selection_
    inside = PaperMILDRouter(alpha=0.01, offsets=offsets, largest_offset=30, cv=2)
    inside.fit(*rare_but_dear())
    assert not inside.at_edge_.any()
    assert "edge" not in inside.selection_


def test_one_row_and_one_expert_need_no_search() -> None:
    costs = np.array([[0.0, 1.0]])
    router = PaperMILDRouter(offsets="per_expert").fit(np.ones((1, 1)), costs)
    np.testing.assert_array_equal(router.offsets_, [0, 0])
    alone = PaperMILDRouter(offsets="search").fit(np.ones((3, 1)), np.ones((3, 1)))
    np.testing.assert_array_equal(alone.margins_, [1])


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
        (PaperMILDRouter(margins="uniform"), "margins"),
        (PaperMILDRouter(largest_offset=0), "largest_offset"),
        (PaperMILDRouter(largest_offset=True), "largest_offset"),
    ],  # type: ignore[arg-type]
)
def test_impossible_options_are_refused(router: Any, name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        router.fit(*noisy())
