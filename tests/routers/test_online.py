"""Routers from partial costs: the algebra, what is learned, and estimates without bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, CostError
from mildroute.routers.online import KnownExperts, OnlineRouter, SharedRidge, impute_costs

Array = NDArray[np.float64]


def partial(rows: int, seed: int, experts: int = 3, share: float = 0.5) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(rows, 4)), np.ones(rows)])
    costs = X @ rng.normal(size=(5, experts)) + rng.normal(size=(rows, experts))
    costs[rng.random(costs.shape) > share] = np.nan
    return X, costs


def by_hand(X: Array, costs: Array, common: float, special: float) -> tuple[Array, Array]:
    """One large system for the common part and all special ones, and its inverse."""
    experts, columns = costs.shape[1], X.shape[1]
    design, target = [], []
    for expert in range(experts):
        at = ~np.isnan(costs[:, expert])
        blocks = np.zeros((at.sum(), (experts + 1) * columns))
        blocks[:, :columns] = X[at]
        blocks[:, (expert + 1) * columns : (expert + 2) * columns] = X[at]
        design.append(blocks)
        target.append(costs[at, expert])
    penalty = np.full(((experts + 1), columns), special)
    penalty[0] = common
    penalty[:, -1] = 0.01
    rows = np.vstack(design)
    inverse = np.linalg.inv(rows.T @ rows + np.diag(penalty.ravel()))
    theta = (inverse @ rows.T @ np.concatenate(target)).reshape(experts + 1, columns)
    # W_k = common + special_k
    pick = np.hstack([np.tile(np.eye(columns), (experts, 1)), np.eye(experts * columns)])
    return theta[0] + theta[1:], pick @ inverse @ pick.T


@pytest.mark.parametrize("experts", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_solve_what_one_large_system_does(experts: int, seed: int) -> None:
    X, costs = partial(60, seed, experts)
    sums = SharedRidge(5, experts)
    sums.add(X[:20], costs[:20])
    sums.add(X[20:], costs[20:])
    weights, factors, inverses = sums.solve(3.0, 7.0)
    expected, covariance = by_hand(X, costs, 3.0, 7.0)
    np.testing.assert_allclose(weights, expected, atol=1e-9)
    found = np.einsum("kdc,lec->kdle", factors, factors)
    found[np.arange(experts), :, np.arange(experts)] += inverses
    np.testing.assert_allclose(found.reshape(covariance.shape), covariance, atol=1e-9)
    rest = sums.without(sums)
    assert not rest.gram.any()
    residuals = costs - X @ weights.T
    assert sums.noise(weights) == pytest.approx(np.nanmean(residuals**2))


def test_an_expert_that_was_never_asked_is_expected_to_cost_what_others_do() -> None:
    X, costs = partial(200, 0)
    costs[:, 2] = np.nan
    sums = SharedRidge(5, 3)
    sums.add(X, costs)
    weights, _, _ = sums.solve(1.0, 1.0)
    expected, _ = by_hand(X, costs, 1.0, 1.0)
    np.testing.assert_allclose(weights, expected, atol=1e-8)


def stream(rows: int, seed: int) -> tuple[Array, Array]:
    """Each of three experts is best in its own direction."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    chance = 1 / (1 + np.exp(2 * X[:, :3]))
    return X, (rng.random((rows, 3)) < chance).astype(float)


def test_rows_in_parts_teach_what_rows_at_once_do() -> None:
    X, costs = stream(300, 0)
    costs[np.arange(100, 300), np.arange(200) % 3] = np.nan
    parts = OnlineRouter(random_state=0).fit(X[:150], costs[:150])
    parts.partial_fit(X[150:220], costs[150:220]).partial_fit(X[220:], costs[220:])
    once = OnlineRouter(random_state=0).fit(X[:150], costs[:150])
    once.partial_fit(X[150:], costs[150:])
    np.testing.assert_allclose(parts.weights_, once.weights_, atol=1e-10)
    np.testing.assert_allclose(parts.expected(X)[1], once.expected(X)[1], atol=1e-10)
    assert parts.counts_.tolist() == (~np.isnan(costs)).sum(axis=0).tolist()
    first = OnlineRouter().partial_fit(X, costs)
    np.testing.assert_array_equal(first.weights_, OnlineRouter().fit(X, costs).weights_)


def test_it_learns_from_one_cost_a_row_of_its_own_choice() -> None:
    X, costs = stream(4000, 1)
    router = OnlineRouter(random_state=0).fit(X[:60], costs[:60])
    alone = costs[2000:].mean(axis=0).min()
    start = costs[np.arange(2000, 4000), router.predict(X[2000:])].mean()
    for low in range(60, 2000, 100):
        rows = np.arange(low, min(low + 100, 2000))
        seen = np.full((len(rows), 3), np.nan)
        tried = router.explore(X[rows])
        seen[np.arange(len(rows)), tried] = costs[rows, tried]
        router.partial_fit(X[rows], seen)
    end = costs[np.arange(2000, 4000), router.predict(X[2000:])].mean()
    known = OnlineRouter(random_state=0).fit(X[:2000], costs[:2000])
    best = costs[np.arange(2000, 4000), known.predict(X[2000:])].mean()
    assert best < end < min(start, alone)
    assert alone - end > 0.9 * (alone - best)


def test_optimism_tries_what_is_little_known() -> None:
    X, costs = stream(400, 2)
    costs[:, 2] = 0.9
    costs[10:, 2] = np.nan
    careful = OnlineRouter(optimism=0.0, random_state=0).fit(X, costs)
    np.testing.assert_array_equal(careful.explore(X), careful.predict(X))
    bold = OnlineRouter(optimism=20.0, random_state=0).fit(X, costs)
    assert (bold.explore(X) == 2).mean() > 0.9 > 0.2 > (bold.predict(X) == 2).mean()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"components": -1}, "components"), ({"expert_penalty": 0.0}, "expert_penalty")],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        OnlineRouter(**settings).fit(*stream(50, 0))


def test_another_number_of_experts_is_refused() -> None:
    X, costs = stream(50, 0)
    with pytest.raises(ArgumentError, match="fit again"):
        OnlineRouter().fit(X, costs).partial_fit(X, costs[:, :2])


def test_estimates_have_no_bias_though_the_regression_is_wrong() -> None:
    """Costs that no linear regression knows, experts asked the more the worse they are."""
    rng = np.random.default_rng(0)
    means, direct = [], []
    for _ in range(40):
        X = rng.normal(size=(500, 2))
        truth = np.column_stack([X[:, 0] ** 2, X[:, 0] * X[:, 1]]) + rng.normal(size=(500, 2))
        chance = np.clip(np.column_stack([X[:, 0] ** 2, 1 - X[:, 0] ** 2]), 0.15, 0.85)
        asked = rng.random((500, 2)) < chance
        seen = np.where(asked, truth, np.nan)
        if asked.sum(axis=0).min() < 20:
            continue
        found = impute_costs(X, seen, chance, max_weight=100.0, random_state=0)
        means.append(found.mean(axis=0) - truth.mean(axis=0))
        direct.append(np.nanmean(seen, axis=0) - truth.mean(axis=0))
    errors = np.std(means, axis=0) / np.sqrt(len(means))
    assert (np.abs(np.mean(means, axis=0)) < 3.5 * errors).all()
    assert np.abs(np.mean(direct, axis=0))[0] > 0.2


def test_full_rows_keep_their_costs() -> None:
    X, costs = stream(200, 3)
    costs[100:, 1] = np.nan
    chances = np.where(np.isnan(costs), 0.0, 1.0)
    found = impute_costs(X, costs, chances, random_state=0)
    np.testing.assert_allclose(found[:100], costs[:100], atol=1e-12)
    assert np.isfinite(found).all()


def test_experts_that_are_always_asked_tell_of_the_others() -> None:
    """What makes a query hard is not in its vector, but in the costs of the first expert."""
    rng = np.random.default_rng(1)
    hard = rng.normal(size=2000)
    truth = np.column_stack([hard, hard + 0.3 * rng.normal(size=2000)])
    costs = truth.copy()
    costs[200:, 1] = np.nan
    found = impute_costs(rng.normal(size=(2000, 3)), costs, max_weight=1.0, random_state=0)
    assert np.corrcoef(found[200:, 1], truth[200:, 1])[0, 1] > 0.9


def test_a_row_does_not_help_to_expect_its_own_group() -> None:
    """Rows of a group share a secret number; without groups it would be known."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(150), 8)
    X = rng.normal(size=(150, 40))[group]
    truth = rng.normal(size=(150, 2))[group]
    costs = truth.copy()
    costs[::2, 0] = np.nan
    costs[1::2, 1] = np.nan
    half = np.full(costs.shape, 0.5)
    left = costs - impute_costs(X, costs, half, group, max_weight=0.0, random_state=0)
    known = costs - impute_costs(X, costs, half, max_weight=0.0, random_state=0)
    assert np.nanmean(left**2) > 0.95 * np.nanvar(costs) > 1.1 * np.nanmean(known**2)


def test_an_expert_that_was_hardly_asked_is_refused() -> None:
    X, costs = stream(200, 3)
    costs[19:, 1] = np.nan
    with pytest.raises(CostError, match="at least 20 rows, got 19 for expert 1"):
        impute_costs(X, costs)


@pytest.mark.parametrize("chance", [-0.1, 1.2, 0.0])
def test_chances_that_cannot_be_are_refused(chance: float) -> None:
    X, costs = stream(60, 3)
    with pytest.raises(ArgumentError, match="propensities"):
        impute_costs(X, costs, np.full(costs.shape, chance))
    with pytest.raises(ArgumentError, match="shape"):
        impute_costs(X, costs, np.full((60, 2), 0.5))


def known_and_new(rows: int = 800) -> tuple[NDArray[np.float64], KnownExperts, NDArray[np.float64]]:
    """Two known experts, and what a third costs that is a mix of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 6))
    luck = rng.normal(size=rows)
    costs = X[:, :2] + 0.5 * luck[:, None] + 0.5 * rng.normal(size=(rows, 2))
    new = 0.5 * costs.sum(axis=1) + 0.1 * rng.normal(size=rows)
    return X, KnownExperts.learn(X, costs, random_state=0), new


def test_few_scores_place_a_new_expert_among_known_ones() -> None:
    X, known, new = known_and_new()
    seen = np.full(len(new), np.nan)
    seen[:60] = new[:60]
    found = known.costs_of_new(seen, caution=0.0)
    # Of a row, the surprises of the others tell more than its vector can.
    assert np.var(new - found) < 0.2 * np.var(new - 0.5 * X[:, :2].sum(axis=1))


def test_a_new_expert_looks_the_worse_the_less_is_known_of_it() -> None:
    _, known, new = known_and_new()
    raised = []
    for count in (30, 120, 480):
        seen = np.full(len(new), np.nan)
        seen[:count] = new[:count]
        raised.append(known.costs_of_new(seen) - known.costs_of_new(seen, caution=0.0))
    assert all((each > 0).all() for each in raised)
    assert raised[0].mean() > 2 * raised[1].mean() > 4 * raised[2].mean()


def test_further_rows_tell_of_a_new_expert_too() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    known = KnownExperts.learn(X[:600], X[:600, :2], X[600:], random_state=0)
    assert known.expected.shape == known.residuals.shape == (1000, 2)
    assert not known.residuals[600:].any()
    assert np.corrcoef(known.expected[600:, 0], X[600:, 0])[0, 1] > 0.95
    seen = np.full(1000, np.nan)
    seen[600:] = X[600:, 0] - X[600:, 1]
    found = known.costs_of_new(seen, caution=0.0)[:600]
    assert np.corrcoef(found, X[:600, 0] - X[:600, 1])[0, 1] > 0.95


def test_queries_to_score_are_those_that_lower_the_variance_most() -> None:
    _, known, _ = known_and_new(200)
    chosen = known.order_queries(40)
    assert len(set(chosen.tolist())) == 40
    np.testing.assert_array_equal(known.order_queries(10), chosen[:10])
    standard = (known.expected - known.expected.mean(axis=0)) / known.expected.std(axis=0)
    features = np.hstack([standard, known.components, np.ones((200, 1))])
    precision = np.diag([1.0, 1.0, *[60.0] * known.components.shape[1], 0.01])

    def variance(rows: list[int]) -> float:
        information = precision + features[rows].T @ features[rows]
        return float(np.einsum("nd,de,ne->", features, np.linalg.inv(information), features))

    taken: list[int] = []
    for row in chosen[:5].tolist():
        others = [variance([*taken, each]) for each in range(200) if each not in taken]
        taken.append(row)
        assert variance(taken) == pytest.approx(min(others), rel=1e-6)


def test_a_new_expert_that_was_hardly_scored_is_refused() -> None:
    _, known, new = known_and_new()
    with pytest.raises(CostError, match="at least 20 rows, got 19"):
        known.costs_of_new(np.where(np.arange(len(new)) < 19, new, np.nan))
