from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import RidgeCV

from mildroute.routers import _ridge as module
from mildroute.routers._folds import assign_folds
from mildroute.routers._ridge import RIDGE_ALPHAS, ridge
from mildroute.routers._whitening import whiten
from tests.support.baselines import Array, noisy


def least_squares(
    X: Array, target: Array, weights: Array, absolute_penalty: float
) -> tuple[Array, float]:
    """Weighted ridge of one target, the intercept free, by numpy's least squares on added rows."""
    root = np.sqrt(weights)[:, None]
    left = np.vstack(
        [
            root * np.hstack([X, np.ones((len(X), 1))]),
            np.sqrt(absolute_penalty) * np.eye(X.shape[1], X.shape[1] + 1),
        ]
    )
    solution = np.linalg.lstsq(
        left, np.concatenate([root[:, 0] * target, np.zeros(X.shape[1])]), rcond=None
    )[0]
    return solution[:-1], float(solution[-1])


def total_variance(X: Array, weights: Array) -> float:
    share = weights / weights.sum()
    return float((share @ (X - share @ X) ** 2).sum())


def left_out_error(X: Array, target: Array, weights: Array, absolute_penalty: float) -> float:
    error = 0.0
    for row in range(len(X)):
        others = np.arange(len(X)) != row
        slope, intercept = least_squares(
            X[others], target[others], weights[others], absolute_penalty
        )
        error += weights[row] * (target[row] - X[row] @ slope - intercept) ** 2
    return error / weights.sum()


def test_weights_are_those_of_least_squares_at_the_penalty_taken() -> None:
    X, targets = noisy(50)
    weights = np.random.default_rng(1).uniform(0.2, 3, 50)
    fit = ridge(X, targets, weights)
    for expert in range(3):
        absolute = fit.alphas[expert] * total_variance(X, weights) * weights.sum()
        slope, intercept = least_squares(X, targets[:, expert], weights, absolute)
        np.testing.assert_allclose(fit.weights[:, expert], slope, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(fit.intercept[expert], intercept, rtol=1e-8)


def test_the_penalty_has_the_lowest_true_leave_one_out_error() -> None:
    X, targets = noisy(25, columns=6)
    weights = np.random.default_rng(1).uniform(0.2, 3, 25)
    unit = total_variance(X, weights) * weights.sum()
    slow = np.array(
        [
            [left_out_error(X, target, weights, alpha * unit) for target in targets.T]
            for alpha in RIDGE_ALPHAS
        ]
    )
    design, share = whiten(X, weights), weights / weights.sum()
    centered = targets - share @ targets
    fast = module._left_out_errors(
        design, centered, design.columns.T @ (share[:, None] * centered), share
    )
    np.testing.assert_allclose(fast, slow, rtol=1e-8)
    np.testing.assert_array_equal(
        ridge(X, targets, weights).alphas, np.array(RIDGE_ALPHAS)[slow.argmin(axis=0)]
    )


@pytest.mark.parametrize("wrap", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_are_solved_as_dense_ones_are(wrap: type) -> None:
    X, targets = noisy(50)
    X[:, 1] += 2
    weights = np.random.default_rng(1).uniform(0.2, 3, 50)
    fit = ridge(wrap(X), targets, weights)
    absolute = fit.alphas[0] * (weights @ X**2).sum()
    for expert in range(3):
        slope, intercept = least_squares(X, targets[:, expert], weights, absolute)
        np.testing.assert_allclose(fit.weights[:, expert], slope, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(fit.intercept[expert], intercept, rtol=1e-4)


def test_rows_wider_than_an_eigenbasis_pays_for_are_solved_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mildroute.routers._whitening._LARGEST_ROTATION", 3)
    X, targets = noisy(80)
    targets[:, 0] = X @ np.arange(4.0)
    fit = ridge(X, targets)
    assert fit.weights.shape == (4, 3)
    np.testing.assert_allclose(fit.predict(X)[:, 0], targets[:, 0], atol=0.1)


def test_pure_noise_gets_a_strong_penalty_and_a_plain_line_a_weak_one() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(100, 20))
    targets = np.stack([random.normal(size=100), X[:, 0]], axis=1)
    noise, line = ridge(X, targets).alphas
    assert noise >= 1
    assert line == RIDGE_ALPHAS[-1]


def test_a_single_row_gives_its_own_values() -> None:
    for X in (np.ones((1, 3)), sparse.csr_array(np.ones((1, 3)))):
        np.testing.assert_allclose(
            ridge(X, np.array([[1.0, 2.0]])).predict(np.full((1, 3), 1.0)), [[1.0, 2.0]]
        )


def test_penalties_and_weights_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 40))
    targets = 0.3 * X[:, :5] + random.normal(size=(300, 5))
    unit = whiten(X).scale * len(X)
    theirs = RidgeCV(alphas=unit * np.array(RIDGE_ALPHAS), alpha_per_target=True).fit(X, targets)
    ours = ridge(X, targets)
    np.testing.assert_allclose(ours.alphas, theirs.alpha_ / unit)
    np.testing.assert_allclose(ours.weights, theirs.coef_.T, atol=1e-12)


def left_out_cluster_error(X: Array, target: Array, folds: Array, penalty: float) -> float:
    """Squared error of regressions without a fold, each refitted from scratch."""
    error = 0.0
    for fold in np.unique(folds):
        out = folds == fold
        slope, intercept = least_squares(
            X[~out], target[~out], np.full(int((~out).sum()), 1 / len(X)), penalty * (~out).mean()
        )
        error += float(((target[out] - X[out] @ slope - intercept) ** 2).sum())
    return error / len(X)


def test_with_clusters_the_penalty_is_that_of_folds_of_whole_clusters() -> None:
    """Each row three times: leaving one copy out would take the weakest penalty."""
    X, targets = noisy(25)
    X, targets = np.repeat(X, 3, axis=0), np.repeat(targets, 3, axis=0)
    clusters = np.repeat(np.arange(25), 3)
    folds = assign_folds(75, 10, 0, clusters=clusters)
    assert all(len(np.unique(folds[clusters == each])) == 1 for each in range(25))
    variance = total_variance(X, np.ones(75))
    fit = ridge(X, targets, clusters=clusters)
    for column, taken in zip(targets.T, fit.alphas, strict=True):
        errors = [
            left_out_cluster_error(X, column, folds, alpha * variance) for alpha in RIDGE_ALPHAS
        ]
        best = int(np.argmin(errors))
        assert errors[list(RIDGE_ALPHAS).index(taken)] == pytest.approx(errors[best], rel=1e-6)
    # A copy that stays gives a row away: the penalty of most targets is then weaker.
    assert (fit.alphas > ridge(X, targets).alphas).sum() == 2


def test_one_cluster_takes_the_strongest_penalty() -> None:
    X, targets = noisy(20)
    fit = ridge(X, targets, clusters=np.zeros(20, dtype=np.intp))
    assert (fit.alphas == max(RIDGE_ALPHAS)).all()
