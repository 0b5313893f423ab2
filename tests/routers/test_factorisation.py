from __future__ import annotations

import numpy as np
import pytest

from mildroute.exceptions import ArgumentError
from mildroute.routers import matrix_factorization as factorization
from mildroute.routers.baselines import BestSingleRouter
from mildroute.routers.matrix_factorization import MatrixFactorizationRouter
from routers.baseline_cases import noisy, separable


def test_it_beats_the_best_single_expert_where_experts_have_regions() -> None:
    X, costs = separable(600, experts=4)
    X_new, costs_new = separable(400, experts=4, seed=1)
    router = MatrixFactorizationRouter(n_components=8, learning_rate=0.02).fit(X, costs)
    assert router.score(X_new, costs_new) > -0.1
    assert BestSingleRouter().fit(X, costs).score(X_new, costs_new) < -0.6


def test_scores_are_the_written_formula() -> None:
    X, costs = noisy(200)
    router = MatrixFactorizationRouter(n_components=5, learning_rate=0.02, max_epochs=10).fit(
        X, costs
    )
    for row, scores in zip(X[:5], router.decision_function(X[:5]), strict=True):
        hidden = row @ router.projection_ + router.offset_
        expected = [
            router.mixing_ @ (embedding * hidden) + bias
            for embedding, bias in zip(router.embeddings_, router.bias_, strict=True)
        ]
        np.testing.assert_allclose(scores, expected)
    np.testing.assert_allclose(
        router.predict_proba(X),
        np.exp(s := router.decision_function(X)) / np.exp(s).sum(axis=1, keepdims=True),
    )


def test_fewer_dimensions_than_experts_give_scores_of_low_rank() -> None:
    X, costs = separable(300, experts=5)
    router = MatrixFactorizationRouter(n_components=1, learning_rate=0.02, max_epochs=10).fit(
        X, costs
    )
    assert np.linalg.matrix_rank(router.decision_function(X) - router.bias_) == 1


def test_a_large_difference_outweighs_a_frequent_one() -> None:
    random = np.random.default_rng(0)
    side, rare = random.integers(0, 2, 2000), random.random(2000) < 0.3
    costs = np.zeros((2000, 2))
    costs[np.arange(2000), np.where(rare, side, 1 - side)] = np.where(rare, 1.0, 0.1)
    X = np.stack([2.0 * side - 1, random.normal(size=2000)], axis=1)
    router = MatrixFactorizationRouter(n_components=4, learning_rate=0.01).fit(X, costs)
    np.testing.assert_array_equal(router.predict([[-1.0, 0.0], [1.0, 0.0]]), [1, 0])


def test_advantages_compare_every_pair_once() -> None:
    costs = np.array([[0.0, 0.5, 2.0]])
    np.testing.assert_allclose(
        factorization._advantages(costs)[0], [[0, 0.5, 2], [0, 0, 1.5], [0, 0, 0]]
    )
    many = np.random.default_rng(0).normal(size=(20, 6))
    np.testing.assert_allclose(
        factorization._total_advantages(many), factorization._advantages(many).sum(axis=(1, 2))
    )


def test_experts_that_never_differ_leave_the_start() -> None:
    X, _ = noisy(100)
    router = MatrixFactorizationRouter(n_components=4).fit(X, np.full((100, 3), 0.4))
    np.testing.assert_allclose(router.decision_function(X), 0, atol=1e-9)


def test_no_dimension_is_refused() -> None:
    with pytest.raises(ArgumentError, match="n_components must be at least 1"):
        MatrixFactorizationRouter(n_components=0).fit(*noisy())
