"""Ridge regression of several targets, each penalty chosen by leave-one-out squared error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from mildroute.routers._folds import assign_folds, count_units
from mildroute.routers._whitening import WhitenedFeatures, whiten

# Ridge regression is written by hand because the features are whitened once for all losses and
# targets that are tried on them. On 10,000 rows, 384 columns and 11 targets, it takes 0.3 s on
# whitened features and 1.3 s on raw ones, and RidgeCV(alpha_per_target=True) takes 4.9 s, with the
# same penalties and weights to 5e-16 (one core). tests/routers/test_ridge.py compares the two.

# Penalties tried, from strong to weak, in units of the features' variance; ties go to the first.
RIDGE_ALPHAS: tuple[float, ...] = (
    10.0,
    3.0,
    1.0,
    0.3,
    0.1,
    0.03,
    0.01,
    3e-3,
    1e-3,
    3e-4,
    1e-4,
    1e-5,
)

_COARSE_ALPHAS = (10.0, 1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
_FOLDS = 3
_CLUSTER_FOLDS = 10
# Minimum ratio of clusters to rows at which single rows are left out instead of clusters. This
# takes a fifth of the time, and so few copies do not change the penalties.
_MIN_CLUSTER_RATIO = 0.95


@dataclass(frozen=True)
class RidgeFit:
    """A fitted ridge regression.

    Attributes:
        alphas: Penalty selected for each target, shape (q,).
    """

    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]
    alphas: NDArray[np.float64]

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return expected targets of rows, shape (n, q)."""
        return np.asarray(X @ self.weights) + self.intercept


def ridge(
    X: Any,
    targets: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None = None,
    *,
    contrasts: bool = False,
    clusters: NDArray[np.intp] | None = None,
) -> RidgeFit:
    """Minimize ``mean (target - x w - b)^2 + penalty * variance of x * |w|^2`` for each target.

    With up to 2,048 dense columns, all penalties are solved and evaluated in closed form. Sparse
    and wider features are solved by conjugate gradients, with one penalty for all targets, which is
    chosen by squared error in three folds.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        targets: Shape (n, q).
        sample_weight: Weight of each row, shape (n,), positive.
        contrasts: Choose penalties for the principal components of the targets instead of the
            targets themselves. A router uses the differences between experts, and their penalty
            then no longer depends on the common part (the difficulty of a query). On four routing
            tasks, this raises the area above random mixing by a fifth to a third.
        clusters: Index of each row's cluster, shape (n,), or `None`. With clusters, penalties are
            chosen in ten folds of whole clusters, since a copy of a row would leak its targets.
    """
    design = whiten(X, sample_weight)
    return ridge_on(design, targets, sample_weight, contrasts=contrasts, clusters=clusters)


def ridge_on(
    design: WhitenedFeatures,
    targets: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None = None,
    *,
    contrasts: bool = False,
    clusters: NDArray[np.intp] | None = None,
) -> RidgeFit:
    """Fit like :func:`ridge`, on features that are already prepared."""
    share = (
        np.full(len(targets), 1 / len(targets))
        if sample_weight is None
        else sample_weight / sample_weight.sum()
    )
    solve = _by_gradients if design.basis is None else _in_closed_form
    if not contrasts or targets.shape[1] == 1:
        return solve(design, targets, share, clusters)
    # Eigenvectors of a covariance matrix have a sign and order that do not depend on the number of
    # rows.
    centered = targets - share @ targets
    rotation = np.linalg.eigh(centered.T @ (share[:, None] * centered))[1]
    fit = solve(design, targets @ rotation, share, clusters)
    return RidgeFit(fit.weights @ rotation.T, fit.intercept @ rotation.T, fit.alphas)


def _in_closed_form(
    design: WhitenedFeatures,
    targets: NDArray[np.float64],
    share: NDArray[np.float64],
    clusters: NDArray[np.intp] | None,
) -> RidgeFit:
    mean = share @ targets
    centered = targets - mean
    moments = np.asarray(
        design.columns.T @ (share[:, None] * centered).astype(design.columns.dtype),
        dtype=np.float64,
    )
    errors = (
        _left_out_errors(design, centered, moments, share)
        if clusters is None or count_units(clusters, len(share)) >= _MIN_CLUSTER_RATIO * len(share)
        else _left_out_cluster_errors(design, centered, moments, share, clusters)
    )
    alphas = np.array(RIDGE_ALPHAS)[np.argmin(errors, axis=0)]
    weights = design.weights_of(moments / (design.variances[:, None] + alphas * design.scale))
    return RidgeFit(weights, mean - design.mean @ weights, alphas)


def _left_out_errors(
    design: WhitenedFeatures,
    centered: NDArray[np.float64],
    moments: NDArray[np.float64],
    share: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the mean squared error of regressions that leave out one row at a time.

    The result has shape (penalties, q), with one error for each penalty and target.
    """
    errors = np.empty((len(RIDGE_ALPHAS), centered.shape[1]))
    kind = design.columns.dtype
    shrink = 1 / (design.variances + np.array(RIDGE_ALPHAS)[:, None] * design.scale)
    # Compute one product for all penalties, in the precision of the columns: separate products in
    # float64 took five times as long.
    fitted = design.columns @ (shrink[:, :, None] * moments).transpose(1, 0, 2).reshape(
        len(moments), errors.size
    ).astype(kind)
    leverages = share[:, None] * (1 + (design.columns**2) @ shrink.T.astype(kind))
    for step in range(len(RIDGE_ALPHAS)):
        residuals = centered - fitted[:, step * centered.shape[1] : (step + 1) * centered.shape[1]]
        errors[step] = share @ (residuals / np.maximum(1 - leverages[:, [step]], 1e-9)) ** 2
    return errors


def _left_out_cluster_errors(
    design: WhitenedFeatures,
    centered: NDArray[np.float64],
    moments: NDArray[np.float64],
    share: NDArray[np.float64],
    clusters: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Return the mean squared error of regressions that leave out one fold of clusters at a time.

    The result has shape (penalties, q), with one error for each penalty and target. The moments of
    the training rows are the moments of all rows minus those of the fold.
    """
    fold = assign_folds(len(share), _CLUSTER_FOLDS, seed=0, clusters=clusters)
    errors = np.zeros((len(RIDGE_ALPHAS), centered.shape[1]))
    if fold.max() == 0:
        return errors
    columns = np.asarray(design.columns, dtype=np.float64)
    for current in range(fold.max() + 1):
        out = fold == current
        weighted = share[out][:, None] * columns[out]
        remaining = 1 - share[out].sum()
        mean = -weighted.sum(axis=0) / remaining
        target_mean = -(share[out] @ centered[out]) / remaining
        covariance = (np.diag(design.variances) - columns[out].T @ weighted) / remaining
        covariance -= np.outer(mean, mean)
        together = (moments - weighted.T @ centered[out]) / remaining - np.outer(mean, target_mean)
        values, axes = np.linalg.eigh(covariance)
        turned, away = axes.T @ together, (columns[out] - mean) @ axes
        for step, alpha in enumerate(RIDGE_ALPHAS):
            shrunk = turned / (np.maximum(values, 0.0)[:, None] + alpha * design.scale)
            residuals = centered[out] - target_mean - away @ shrunk
            errors[step] += share[out] @ residuals**2
    return errors


def _by_gradients(
    design: WhitenedFeatures,
    targets: NDArray[np.float64],
    share: NDArray[np.float64],
    clusters: NDArray[np.intp] | None,
) -> RidgeFit:
    alpha = _COARSE_ALPHAS[0]
    if count_units(clusters, len(targets)) > 1:
        fold = assign_folds(len(targets), _FOLDS, seed=0, clusters=clusters)
        alpha = _COARSE_ALPHAS[
            int(
                np.argmin(
                    [_folded_error(design, targets, share, fold, alpha) for alpha in _COARSE_ALPHAS]
                )
            )
        ]
    weights, intercept = _solve(design.columns, targets, share, alpha * design.scale)
    return RidgeFit(weights, intercept, np.full(targets.shape[1], alpha))


def _folded_error(
    design: WhitenedFeatures,
    targets: NDArray[np.float64],
    share: NDArray[np.float64],
    fold: NDArray[np.intp],
    alpha: float,
) -> float:
    error = 0.0
    for current in np.unique(fold):
        seen, held_out = np.flatnonzero(fold != current), np.flatnonzero(fold == current)
        weights, intercept = _solve(
            design.columns[seen], targets[seen], share[seen], alpha * design.scale
        )
        residuals = targets[held_out] - design.columns[held_out] @ weights - intercept
        error += float(share[held_out] @ (residuals**2).sum(axis=1))
    return error


def _solve(
    columns: Any, targets: NDArray[np.float64], share: NDArray[np.float64], alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = np.average(targets, axis=0, weights=share)
    model = Ridge(alpha=alpha * share.sum(), solver="sparse_cg", tol=1e-6).fit(
        columns, targets - mean, sample_weight=share
    )
    return (
        np.asarray(model.coef_).reshape(targets.shape[1], -1).T.copy(),
        np.asarray(model.intercept_) + mean,
    )
