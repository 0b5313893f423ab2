"""Doubly robust costs of experts that were not asked."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, CostError
from mildroute.routers.imputation import impute_costs

Array = NDArray[np.float64]


def stream(rows: int, seed: int) -> tuple[Array, Array]:
    """Each of three experts is best in its own direction."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    chance = 1 / (1 + np.exp(2 * X[:, :3]))
    return X, (rng.random((rows, 3)) < chance).astype(float)


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
