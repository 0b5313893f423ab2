"""Calibration of the posterior over experts: calibration error and Brier score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import as_matrix
from mildroute.evaluation.specialist_recall import winners
from mildroute.exceptions import ArgumentError
from mildroute.routers._order import argmax_last

__all__ = ["brier_score", "calibration_error", "reliability"]


def reliability(
    posterior: Any, costs: Any, bins: int = 10
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Compare confidence in the top expert with how often it wins, in bins of equal width.

    Args:
        posterior: Posterior over experts, shape (n, p).
        costs: Cost of each expert on each row, shape (n, p).
        bins: Number of bins of [0, 1]; each includes its upper edge.

    Returns:
        Rows, mean confidence and share of rows whose top expert wins (ties count as won), each of
        shape (bins,); NaN in empty bins.

    Example:
        >>> rows, confidence, won = reliability([[0.9, 0.1], [0.3, 0.7]], [[0, 1], [0, 1]], bins=2)
        >>> rows, confidence, won
        (array([0, 2]), array([nan, 0.8]), array([nan, 0.5]))
    """
    believed, won = _check_posterior(posterior, costs)
    if bins < 1:
        raise ArgumentError(f"bins must be at least 1, got {bins}; 10 is a usual value.")
    top = argmax_last(believed)
    every = np.arange(len(top))
    sure = believed[every, top]
    bin_of_row = np.clip(np.ceil(sure * bins).astype(np.intp) - 1, 0, bins - 1)
    rows = np.bincount(bin_of_row, minlength=bins)
    sums = [
        np.bincount(bin_of_row, values, minlength=bins)
        for values in (sure, won[every, top].astype(np.float64))
    ]
    confidence, hits = (np.where(rows > 0, total / np.maximum(rows, 1), np.nan) for total in sums)
    return rows, confidence, hits


def calibration_error(posterior: Any, costs: Any, bins: int = 10) -> float:
    """Return the expected calibration error.

    It is the mean distance between confidence in the top expert and how often it wins.

    A posterior that splits belief among tied experts is not wrong, but its confidence is below the
    top expert's win rate: read the figure together with the share of tied rows.

    Args:
        posterior: Posterior over experts, shape (n, p).
        costs: Cost of each expert on each row, shape (n, p).
        bins: Number of bins of equal width.

    Returns:
        Between 0 and 1.

    Example:
        >>> round(calibration_error([[0.9, 0.1], [0.3, 0.7]], [[0, 1], [0, 1]], bins=2), 6)
        0.3
    """
    rows, confidence, won = reliability(posterior, costs, bins)
    used = rows > 0
    return float((rows[used] * np.abs(confidence[used] - won[used])).sum() / rows.sum())


def brier_score(posterior: Any, costs: Any) -> float:
    """Return the squared distance of the posterior from the winner, summed over experts.

    Tied winners share the target equally.

    Args:
        posterior: Posterior over experts, shape (n, p).
        costs: Cost of each expert on each row, shape (n, p).

    Returns:
        Between 0 and 2, lower is better.

    Example:
        >>> round(brier_score([[0.9, 0.1]], [[0, 1]]), 6)
        0.02
    """
    believed, won = _check_posterior(posterior, costs)
    target = won / won.sum(axis=1, keepdims=True)
    return float(((believed - target) ** 2).sum(axis=1).mean())


def _check_posterior(posterior: Any, costs: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    won = winners(costs)
    believed = as_matrix(posterior, "posterior", (won.shape[0], won.shape[1]))
    if (believed < 0).any() or not np.allclose(believed.sum(axis=1), 1, atol=1e-4):
        raise ArgumentError(
            "posterior must not be negative and its rows must sum to 1; pass predict_proba, not"
            " decision_function."
        )
    return believed, won
