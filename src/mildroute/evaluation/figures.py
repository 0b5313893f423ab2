"""The figures that every table of results shows, as functions of means of columns, so that each gets an interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.checks import Choice, Matrix
from mildroute.evaluation.replicates import Means

__all__ = ["FIGURES", "figure_columns", "gap_of_means"]

FIGURES: Mapping[str, str | Callable[[Means], NDArray[np.float64]]] = {
    "deferral_loss": "cost",
    "regret": lambda mean: mean["cost"] - mean["oracle"],
    "best_single_loss": "base",
    "oracle_loss": "oracle",
    "difference": lambda mean: mean["cost"] - mean["base"],
    "score": "score",
}
"""Figures by name: a column, or a function of the means of the columns of :func:`figure_columns`."""


def figure_columns(costs: Matrix, choice: Choice, base: int, scores: Matrix, dollars: Matrix | None = None) -> dict[str, NDArray[Any]]:
    """What the figures are means of, per row.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).
        base: The best single expert.
        scores: Scores, shape (n, p).
        dollars: Dollars, shape (n, p), or none.

    Returns:
        Columns of shape (n,): cost, base, oracle, score, and dollars of 1,000 such queries where known.

    Example:
        >>> sorted(figure_columns(np.zeros((1, 2)), np.array([0]), 1, np.ones((1, 2))))
        ['base', 'cost', 'oracle', 'score']
    """
    rows = np.arange(len(costs))
    columns = {"cost": costs[rows, choice], "base": costs[:, base], "oracle": costs.min(axis=1), "score": scores[rows, choice]}
    if dollars is not None:
        columns["dollars"] = 1000 * dollars[rows, choice]
    return columns


def gap_of_means(mean: Means) -> NDArray[np.float64]:
    """Share of the way from the best single expert to the oracle; NaN where there is no way to go.

    Example:
        >>> gap_of_means({"base": np.array([0.5]), "oracle": np.array([0.1]), "cost": np.array([0.3])})
        array([0.5])
    """
    way = mean["base"] - mean["oracle"]
    return np.where(way > 0, (mean["base"] - mean["cost"]) / np.where(way > 0, way, 1.0), np.nan)
