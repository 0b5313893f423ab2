from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mildroute.exceptions import ArgumentError
from mildroute.routers import knn
from mildroute.routers.knn import KNNRouter
from tests.support.baselines import Array, noisy, separable

SIZES = (5, 10, 20, 40)


def brute_force(
    X: Array,
    costs: Array,
    weights: Array,
    query: Array,
    k: int,
    weighting: str,
    metric: str = "euclidean",
) -> Array:
    """Expected costs of one query by a plain loop."""
    if metric == "cosine":
        X, query = X / np.linalg.norm(X, axis=1, keepdims=True), query / np.linalg.norm(query)
    distances = np.array([np.sqrt(((row - query) ** 2).sum()) for row in X])
    total, mass = np.zeros(costs.shape[1]), 0.0
    for row in np.argsort(distances, kind="stable")[:k]:
        weight = weights[row] / (distances[row] if weighting == "distance" else 1.0)
        total, mass = total + weight * costs[row], mass + weight
    return np.asarray(total / mass)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("weighting", ["uniform", "distance"])
def test_scores_are_those_of_a_plain_loop(weighting: Any, metric: Any) -> None:
    X, costs = noisy(70)
    new, _ = noisy(8, seed=5)
    weights = np.random.default_rng(2).uniform(0.1, 2, 70)
    router = KNNRouter(n_neighbors=9, weights=weighting, metric=metric).fit(
        X, costs, sample_weight=weights
    )
    expected = [-brute_force(X, costs, weights, query, 9, weighting, metric) for query in new]
    np.testing.assert_allclose(router.decision_function(new), expected, rtol=1e-6)
    sparsely = KNNRouter(n_neighbors=9, weights=weighting, metric=metric).fit(
        sparse.csr_matrix(X), costs, sample_weight=weights
    )
    np.testing.assert_allclose(
        sparsely.decision_function(sparse.csr_matrix(new)), expected, rtol=1e-6
    )


def test_size_and_weighting_have_the_lowest_leave_one_out_deferral_loss() -> None:
    X, costs = noisy(60)
    weights = np.random.default_rng(2).uniform(0.1, 2, 60)
    risks = {}
    for weighting in ("uniform", "distance"):
        for k in SIZES:
            paid = 0.0
            for row in range(60):
                others = np.arange(60) != row
                expected = brute_force(
                    X[others], costs[others], weights[others], X[row], k, weighting
                )
                paid += weights[row] * costs[row, expected.argmin()]
            risks[k, weighting] = paid / weights.sum()
    router = KNNRouter().fit(X, costs, sample_weight=weights)
    assert (router.n_neighbors_, router.weights_) == min(risks, key=lambda choice: risks[choice])
    found = router._risks(list(SIZES), ("uniform", "distance"))
    np.testing.assert_allclose(found, list(risks.values()), rtol=1e-9)


def test_a_fixed_size_leaves_the_weighting_to_choose() -> None:
    X, costs = separable()
    assert KNNRouter(n_neighbors=200, weights="cv").fit(X, costs).weights_ == "distance"
    assert KNNRouter(n_neighbors="cv", weights="distance").fit(X, costs).weights_ == "distance"


def test_no_more_neighbors_are_asked_for_than_there_are_rows() -> None:
    X, costs = noisy(4)
    assert KNNRouter(n_neighbors=50).fit(X, costs).n_neighbors_ == 4
    assert KNNRouter().fit(X, costs).n_neighbors_ == 3
    np.testing.assert_allclose(
        KNNRouter(n_neighbors=50, weights="uniform").fit(X, costs).decision_function(X[:1])[0],
        -costs.mean(axis=0),
    )


def test_where_nothing_tells_sizes_apart_the_smoothest_is_taken() -> None:
    X, _ = noisy(200)
    router = KNNRouter().fit(X, np.ones((200, 3)))
    assert (router.n_neighbors_, router.weights_) == (160, "uniform")


def test_a_large_table_is_tried_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "_MAX_TRIAL_ROWS", 50)
    X, costs = separable(300)
    router = KNNRouter().fit(X, costs)
    assert router.score(X, costs) > -0.1


def test_a_known_row_answers_for_itself_when_distance_counts() -> None:
    X, costs = noisy(50)
    router = KNNRouter(n_neighbors=10, weights="distance").fit(X, costs)
    np.testing.assert_allclose(router.decision_function(X), -costs, atol=1e-3)


def test_features_far_from_zero_lose_no_digits() -> None:
    X, costs = noisy(50)
    near, far = (
        KNNRouter(n_neighbors=5, weights="uniform").fit(X + shift, costs) for shift in (0.0, 1e6)
    )
    np.testing.assert_allclose(far.decision_function(X + 1e6), near.decision_function(X))


def test_a_row_of_zeros_has_a_cosine_neighbor() -> None:
    X, costs = noisy(50)
    assert np.isfinite(
        KNNRouter(metric="cosine").fit(X, costs).decision_function(np.zeros((1, 4)))
    ).all()


@pytest.mark.parametrize("options", [{"n_neighbors": 0}, {"weights": "square"}, {"metric": "taxi"}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        KNNRouter(**options).fit(*noisy(10))
