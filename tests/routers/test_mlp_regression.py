from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from mildroute.exceptions import ArgumentError
from mildroute.routers.regression import MLPRegressionRouter, RegressionRouter
from routers.baseline_cases import Array, noisy


def ring(rows: int, seed: int) -> tuple[Array, Array]:
    """Expert 0 is right near the center, expert 1 far from it: no linear rule can tell."""
    X = np.random.default_rng(seed).normal(size=(rows, 2))
    far = (X**2).sum(axis=1) > 1.4
    return X, np.stack([far, ~far], axis=1).astype(float)


def test_it_learns_what_no_linear_router_can() -> None:
    X, costs = ring(800, seed=0)
    X_new, costs_new = ring(500, seed=1)
    router = MLPRegressionRouter(hidden_layer_sizes=(32,), learning_rate=0.01).fit(X, costs)
    assert router.score(X_new, costs_new) > -0.1
    assert RegressionRouter().fit(X, costs).score(X_new, costs_new) < -0.3


def test_scores_are_minus_the_output_of_the_layers() -> None:
    X, costs = noisy()
    router = MLPRegressionRouter(hidden_layer_sizes=(5, 4), max_epochs=3).fit(X, costs)
    hidden = np.maximum(X @ router.weights_[0] + router.biases_[0], 0)
    hidden = np.maximum(hidden @ router.weights_[1] + router.biases_[1], 0)
    np.testing.assert_allclose(
        router.decision_function(X), -(hidden @ router.weights_[2] + router.biases_[2])
    )
    assert [array.shape for array in router.weights_] == [(4, 5), (5, 4), (4, 3)]


def test_expected_costs_have_the_unit_of_the_costs() -> None:
    X, _ = noisy(400)
    costs = np.stack([50 + 10 * X[:, 0], 45 + 0 * X[:, 0]], axis=1)
    router = MLPRegressionRouter(hidden_layer_sizes=(16,), learning_rate=0.01).fit(X, costs)
    errors = -router.decision_function(X) - costs
    assert np.sqrt((errors**2).mean()) < 3


def test_without_hidden_layers_it_is_linear() -> None:
    X, costs = noisy(300)
    router = MLPRegressionRouter(hidden_layer_sizes=(), learning_rate=0.02).fit(X, costs)
    assert len(router.weights_) == 1
    middle = router.decision_function((X[:1] + X[1:2]) / 2)
    np.testing.assert_allclose(middle, router.decision_function(X[:2]).mean(axis=0, keepdims=True))


def test_nothing_to_learn_leaves_the_best_single_expert() -> None:
    costs = np.tile([0.3, 0.1, 0.2], (100, 1))
    router = MLPRegressionRouter().fit(noisy(100)[0], costs)
    np.testing.assert_allclose(router.decision_function(noisy(5)[0]), -costs[:5])


def test_the_seed_decides_and_none_is_zero() -> None:
    X, costs = ring(200, seed=0)
    routers = [
        MLPRegressionRouter(hidden_layer_sizes=(8,), learning_rate=0.02, random_state=seed)
        for seed in (None, 0, 1)
    ]
    scores = [router.fit(X, costs).decision_function(X) for router in routers]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])


def test_wide_sparse_rows_are_trained_in_small_dense_batches() -> None:
    winner = np.random.default_rng(0).integers(0, 2, 300)
    X = sparse.csr_array((np.ones(300), (np.arange(300), 10000 * winner)), shape=(300, 20000))
    costs = 1.0 - np.eye(2)[winner]
    router = MLPRegressionRouter(hidden_layer_sizes=(8,), max_epochs=5, learning_rate=0.01).fit(
        X, costs
    )
    assert router.score(X, costs) > -0.05


def test_empty_layers_are_refused() -> None:
    with pytest.raises(ArgumentError, match="hidden_layer_sizes must be at least 1"):
        MLPRegressionRouter(hidden_layer_sizes=(8, 0)).fit(*noisy())
