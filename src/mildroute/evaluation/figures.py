"""The figures in every table of results, as functions of column means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import Choice, Matrix
from mildroute.evaluation.resampling import (
    Means,
)

__all__ = ["FIGURES", "figure_columns", "gap_of_means"]

# A way to the oracle below this is a rounding error.
_ROUNDING = 1e-9
# Figures by name: a column, or a function of the means of the columns of :func:`figure_columns`.
FIGURES: Mapping[str, str | Callable[[Means], NDArray[np.float64]]] = {
    "deferral_loss": "cost",
    "regret": lambda mean: mean["cost"] - mean["oracle"],
    "best_single_loss": "base",
    "oracle_loss": "oracle",
    "difference": lambda mean: mean["cost"] - mean["base"],
    "score": "score",
}


def figure_columns(
    costs: Matrix, choice: Choice, base: int, scores: Matrix, dollars: Matrix | None = None
) -> dict[str, NDArray[Any]]:
    """Return the values per row whose means are the figures.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).
        base: The best single expert.
        scores: Scores, shape (n, p).
        dollars: Dollars, shape (n, p), or `None`.

    Returns:
        Columns of shape (n,): cost, base, oracle, score, and dollars of 1,000 such queries if
        known.
    """
    rows = np.arange(len(costs))
    columns = {
        "cost": costs[rows, choice],
        "base": costs[:, base],
        "oracle": costs.min(axis=1),
        "score": scores[rows, choice],
    }
    if dollars is not None:
        columns["dollars"] = 1000 * dollars[rows, choice]
    return columns


def gap_of_means(mean: Means) -> NDArray[np.float64]:
    """Return the share of the way from the best single expert to the oracle.

    The share is NaN if the two do not differ.
    """
    way = mean["base"] - mean["oracle"]
    return np.where(
        way > _ROUNDING, (mean["base"] - mean["cost"]) / np.where(way > _ROUNDING, way, 1.0), np.nan
    )
