"""The expected costs of a new expert."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mildroute.exceptions import CostError
from mildroute.routers.known_experts import KnownExperts

Array = NDArray[np.float64]


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
