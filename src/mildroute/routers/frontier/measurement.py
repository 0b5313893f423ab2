"""Measurement of a router's held-out choices as a curve of cost against quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.frontier.curve import CostQualityCurve

__all__ = ["effective_number", "measure_curve"]

_RESAMPLES = 1000


def measure_curve(
    weights: Sequence[float] | NDArray[np.float64],
    choices: NDArray[np.intp],
    errors: NDArray[np.float64],
    dollars: NDArray[np.float64],
    row_weights: NDArray[np.float64] | None = None,
    refit_dollars: NDArray[np.float64] | None = None,
    looks: int = 0,
    clusters: NDArray[np.intp] | None = None,
) -> CostQualityCurve:
    """Measure held-out choices along price weights, alongside the single experts.

    Args:
        weights: Price weights, shape (P,).
        choices: Expert chosen on each held-out row, shape (P, n).
        errors: Error of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p).
        row_weights: Weight of each row, shape (n,), or `None`.
        refit_dollars: Mean dollars of each fold's router at each price weight, shape (K, P), or
            `None`.
        looks: Number of looks of a cascade, which are the last experts.
        clusters: Index of each row's cluster, shape (n,), or `None`; whole clusters are resampled.
    """
    rows, experts = errors.shape
    choices = np.vstack([choices, np.tile(np.arange(experts)[:, None], (1, rows))])
    paid_errors = np.take_along_axis(errors, choices.T, axis=1)
    paid_dollars = np.take_along_axis(dollars, choices.T, axis=1)
    used = (choices.T[:, :, None] == np.arange(experts)).reshape(rows, -1).astype(np.float64)
    importance = np.ones(rows) if row_weights is None else row_weights
    share = importance / importance.sum()
    points = len(choices)
    replicates = _resampled_means(
        np.hstack([paid_dollars, paid_errors, used]), importance, clusters
    )
    means, mean_errors = share @ paid_dollars, share @ paid_errors
    refits = np.zeros((0, points - experts)) if refit_dollars is None else np.asarray(refit_dollars)
    return CostQualityCurve(
        weights=np.asarray(weights, dtype=np.float64),
        dollars=means,
        errors=mean_errors,
        shares=(share @ used).reshape(points, experts),
        dollars_spread=np.sqrt(share @ (paid_dollars - means) ** 2),
        error_spread=np.sqrt(share @ (paid_errors - mean_errors) ** 2),
        dollars_replicates=replicates[:, :points],
        error_replicates=replicates[:, points : 2 * points],
        share_replicates=replicates[:, 2 * points :].reshape(-1, points, experts),
        refit_dollars=np.hstack([refits, np.tile(means[points - experts :], (len(refits), 1))]),
        rows=rows,
        looks=looks,
        units=None if clusters is None else effective_number(clusters),
    )


def effective_number(clusters: NDArray[np.intp]) -> float:
    """Return the number of equally large clusters with the same amount of information."""
    sizes = np.bincount(clusters).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def _resampled_means(
    columns: NDArray[Any],
    importance: NDArray[np.float64],
    clusters: NDArray[np.intp] | None,
) -> NDArray[np.float64]:
    """Return weighted means of the columns over bootstrap samples, shape (B, columns).

    Whole clusters are drawn, or rows if every row is its own cluster.
    """
    sums, sizes = importance[:, None] * columns, importance
    if clusters is not None:
        order = np.argsort(clusters, kind="stable")
        starts = np.searchsorted(clusters[order], np.arange(int(clusters.max()) + 1))
        sums = np.add.reduceat(sums[order], starts, axis=0)
        sizes = np.add.reduceat(importance[order], starts)
    rng = np.random.default_rng(0)
    units = len(sums)
    share = np.full(units, 1 / units)
    drawn = (rng.multinomial(units, share, size=100) for _ in range(_RESAMPLES // 100))
    return np.vstack([counts @ sums / (counts @ sizes)[:, None] for counts in drawn])
