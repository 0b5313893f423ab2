"""Routers from partial costs: the algebra, what is learned, and estimates without bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from mildroute.routers._shared_ridge import SharedRidge
from mildroute.routers.online import OnlineRouter

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
