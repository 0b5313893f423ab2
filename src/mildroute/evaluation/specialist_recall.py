"""Recall of specialists: the share of an expert's rows that are answered as well as possible.

An expert wins a row if no expert costs less; several may tie. Rows on which all experts tie have
no winner worth finding and are left out of every recall.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import as_choice, as_matrix
from mildroute.exceptions import ArgumentError

__all__ = [
    "Ties",
    "exactly_one_right_recall",
    "expert_recall",
    "recall_counts",
    "winners",
    "worst_recall",
]


# How tied rows count: right if sent to any of their winners, or not at all, so that only rows won
# alone are counted.
Ties = Literal["any", "alone"]


def winners(costs: Any) -> NDArray[np.bool_]:
    """Return which experts have the lowest cost in their row.

    Args:
        costs: Cost of each expert on each row, shape (n, p).

    Returns:
        Shape (n, p), at least one true value per row.

    Example:
        >>> winners([[0.2, 0.2, 0.7]])
        array([[ True,  True, False]])
    """
    matrix = as_matrix(costs)
    return np.asarray(matrix == matrix.min(axis=1, keepdims=True))


def recall_counts(
    costs: Any, choice: Any, ties: Ties = "any"
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Count, for each expert, the rows that it wins and those of them that are sent to a winner.

    Recall is the ratio of their sums.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).
        ties: ``"any"`` or ``"alone"``, see :data:`Ties`.

    Returns:
        Rows won and rows found, both of shape (n, p).
    """
    if ties not in ("any", "alone"):
        raise ArgumentError(f"ties must be 'any' or 'alone', got {ties!r}.")
    won = winners(costs)
    chosen = as_choice(choice, *won.shape)
    several = won.sum(axis=1)
    counted = several < won.shape[1] if ties == "any" else (several == 1) & (won.shape[1] > 1)
    won = won & counted[:, None]
    return won, won & won[np.arange(len(won)), chosen][:, None]


def expert_recall(costs: Any, choice: Any, ties: Ties = "any") -> NDArray[np.float64]:
    """Return the share of the rows an expert wins that are sent to it or another winner.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).
        ties: ``"any"``: a tied row is right when sent to any of its winners; ``"alone"``: only rows
            with one winner count.

    Returns:
        Shape (p,); NaN for an expert that wins no counted row.

    Example:
        >>> expert_recall([[0, 1, 1], [0, 0, 1], [1, 0, 1]], [0, 0, 0])
        array([1. , 0.5, nan])
    """
    won, hits = (part.sum(axis=0) for part in recall_counts(costs, choice, ties))
    return np.where(won > 0, hits / np.maximum(won, 1), np.nan)


def worst_recall(costs: Any, choice: Any, ties: Ties = "any") -> float:
    """Return the lowest recall of an expert that wins at least one row; NaN if no expert does.

    Example:
        >>> worst_recall([[0, 1, 1], [0, 0, 1], [1, 0, 1]], [0, 0, 0])
        0.5
    """
    recalls = expert_recall(costs, choice, ties)
    defined = recalls[~np.isnan(recalls)]
    return float(defined.min()) if len(defined) else float("nan")


def exactly_one_right_recall(scores: Any, choice: Any, threshold: float = 0.5) -> float:
    """Return the share of rows with exactly one right expert that are sent to that expert.

    Args:
        scores: Score of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).
        threshold: An expert is right if its score is at least this.

    Returns:
        The share; NaN without such rows.

    Example:
        >>> exactly_one_right_recall([[1, 0], [0, 1], [1, 1]], [0, 0, 1])
        0.5
    """
    right = as_matrix(scores, "scores") >= threshold
    chosen = as_choice(choice, *right.shape)
    alone = right.sum(axis=1) == 1
    return (
        float(right[np.flatnonzero(alone), chosen[alone]].mean()) if alone.any() else float("nan")
    )
