"""Metrics of choices: deferral loss, regret, gap closed, recall and shares."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers import _decision

__all__ = [
    "Choice",
    "Matrix",
    "Ties",
    "as_choice",
    "as_matrix",
    "best_single",
    "brier_score",
    "calibration_error",
    "check_confidence",
    "chosen_costs",
    "deferral_loss",
    "dollars_per_1000",
    "effective_experts",
    "exactly_one_right_recall",
    "expert_recall",
    "expert_shares",
    "gap_closed",
    "mean_score",
    "oracle",
    "oracle_shares",
    "recall_counts",
    "regret",
    "reliability",
    "winners",
    "worst_recall",
]


# Requirements on the arrays passed to the public functions of this package, checked once on entry.


# A two-dimensional array of numbers, one column per expert.
Matrix = NDArray[np.float64]

# Index of the chosen expert on each row.
Choice = NDArray[np.intp]


def as_matrix(values: Any, name: str = "costs", shape: tuple[int, ...] | None = None) -> Matrix:
    """Convert to finite numbers of shape (n, p), with at least one row and one expert.

    Args:
        values: Anything that NumPy reads as a matrix.
        name: Name of the matrix in messages.
        shape: The required shape, if another matrix has set it.

    Returns:
        Shape (n, p), float64.
    """
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ShapeError(
            f"{name} must be (n, p), one row per query and one column per expert, got shape"
            f" {matrix.shape}."
        )
    if shape is not None and matrix.shape != shape:
        raise ShapeError(
            f"{name} must be {shape} as the other matrices are, got shape {matrix.shape}; pass the"
            " same rows and experts."
        )
    bad = int((~np.isfinite(matrix)).sum())
    if bad:
        raise ArgumentError(
            f"{name} must be finite, got {bad} values that are not; drop those rows or impute them"
            " first."
        )
    return matrix


def as_choice(choice: Any, rows: int, experts: int) -> Choice:
    """Return expert indices of shape (n,), each from 0 to p - 1."""
    chosen = np.asarray(choice)
    if chosen.shape != (rows,):
        raise ShapeError(f"choice must be ({rows},), one expert per row, got shape {chosen.shape}.")
    if not np.issubdtype(chosen.dtype, np.integer):
        raise ArgumentError(
            f"choice must hold indices of experts, got {chosen.dtype}; take the index of each name"
            " first."
        )
    if rows and not (chosen.min() >= 0 and chosen.max() < experts):
        raise ArgumentError(
            f"choice must lie between 0 and {experts - 1}, got {chosen.min()} to {chosen.max()}."
        )
    return chosen.astype(np.intp, copy=False)


def check_confidence(confidence: float) -> None:
    """Reject a confidence that is not between 0 and 1."""
    if not 0 < confidence < 1:
        raise ArgumentError(
            f"confidence must lie between 0 and 1, got {confidence}; 0.95 is a usual value."
        )


# The cost of a choice of experts, row by row and on average, alongside the best single expert and
# the oracle.
#
# Every function takes ``choice``, the index of the chosen expert on each row, shape (n,), and
# matrices of shape (n, p). Costs are what the router minimizes, lower is better; scores lie in
# [0, 1], higher is better; dollars are dollars.
#
# Experts of equal cost are distinguished by dollars where these are known, then by the lower index,
# so that no figure depends on the order of the columns as long as dollars differ.


# Means closer than this are equal.
_ROUNDING = 1e-12


def chosen_costs(costs: Any, choice: Any) -> NDArray[np.float64]:
    """Return the cost of the chosen expert of each row.

    Args:
        costs: Any quantity of each expert on each row (costs, scores, dollars), shape (n, p).
        choice: Chosen experts, shape (n,).

    Returns:
        Shape (n,).

    Example:
        >>> chosen_costs([[0.1, 0.9], [0.8, 0.2]], [0, 1])
        array([0.1, 0.2])
    """
    matrix = as_matrix(costs)
    return _decision.chosen_costs(matrix, as_choice(choice, *matrix.shape))


def deferral_loss(costs: Any, choice: Any) -> float:
    """Return the mean cost of the chosen experts.

    Example:
        >>> round(deferral_loss([[0.1, 0.9], [0.8, 0.2]], [0, 1]), 2)
        0.15
    """
    return float(chosen_costs(costs, choice).mean())


def mean_score(scores: Any, choice: Any) -> float:
    """Return the mean score of the chosen experts.

    Example:
        >>> mean_score([[1, 0], [0, 1]], [0, 0])
        0.5
    """
    return float(chosen_costs(scores, choice).mean())


def dollars_per_1000(dollars: Any, choice: Any) -> float:
    """Return the bill of 1,000 queries like these, in dollars.

    Example:
        >>> dollars_per_1000([[0.001, 0.01], [0.003, 0.01]], [0, 0])
        2.0
    """
    return float(1000 * chosen_costs(dollars, choice).mean())


def regret(costs: Any, choice: Any) -> NDArray[np.float64]:
    """Return the extra cost of each row over its cheapest expert, never negative.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).

    Returns:
        Shape (n,).

    Example:
        >>> regret([[0.25, 1.0], [0.75, 0.25]], [0, 0])
        array([0. , 0.5])
    """
    matrix = as_matrix(costs)
    return np.asarray(chosen_costs(matrix, choice) - matrix.min(axis=1))


def best_single(costs: Any, dollars: Any = None) -> int:
    """Return the expert with the lowest mean cost; ties go to the fewest dollars, then the first.

    On the rows of a report this is the best single expert in hindsight, a slightly optimistic
    reference; choose it on the training rows for a realistic one.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p), or `None`.

    Returns:
        Index of the expert.

    Example:
        >>> best_single([[0.1, 0.3], [0.6, 0.2]])
        1
        >>> best_single([[0.0, 0.0]], dollars=[[0.02, 0.01]])
        1
    """
    means = as_matrix(costs).mean(axis=0)
    bills = np.zeros(len(means)) if dollars is None else as_matrix(dollars, "dollars").mean(axis=0)
    return int(np.where(means <= means.min() + _ROUNDING, bills, np.inf).argmin())


def oracle(costs: Any, dollars: Any = None) -> Choice:
    """Return the cheapest expert of each row; ties go to the fewest dollars, then the first.

    No router can do better.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p), or `None`.

    Returns:
        Shape (n,).

    Example:
        >>> oracle([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
        array([0, 1, 0])
        >>> oracle([[0.0, 0.0]], dollars=[[0.02, 0.01]])
        array([1])
    """
    matrix = as_matrix(costs)
    bills = (
        np.zeros(matrix.shape) if dollars is None else as_matrix(dollars, "dollars", matrix.shape)
    )
    return np.asarray(
        np.where(matrix == matrix.min(axis=1, keepdims=True), bills, np.inf).argmin(axis=1)
    )


def gap_closed(costs: Any, choice: Any, reference: int | None = None) -> float:
    """Return the share of the way from the best single expert to the oracle.

    The share is 0 at the best single expert, 1 at the oracle, and negative if worse than both.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).
        reference: The expert that counts as best single; defaults to the best one in hindsight.

    Returns:
        The share; NaN if the reference is as good as the oracle, which leaves no gap to close.

    Example:
        >>> gap_closed([[0, 1], [1, 0], [0, 1], [1, 0]], [0, 1, 0, 0])
        0.5
    """
    matrix = as_matrix(costs)
    start = float(matrix[:, best_single(matrix) if reference is None else reference].mean())
    way = start - float(matrix.min(axis=1).mean())
    return (start - deferral_loss(matrix, choice)) / way if way > 1e-9 else float("nan")


# Recall of specialists: of the rows that an expert wins, how many are answered as well as possible.
#
# An expert wins a row when no expert costs less; several may tie. Rows on which all experts tie
# have no winner worth finding and are left out of every recall.


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
    won, found = (part.sum(axis=0) for part in recall_counts(costs, choice, ties))
    return np.where(won > 0, found / np.maximum(won, 1), np.nan)


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


# Shares of the experts, those of the oracle, and the effective number of experts.


def expert_shares(choice: Any, experts: int) -> NDArray[np.float64]:
    """Return the share of the rows that each expert answers.

    Args:
        choice: Chosen experts, shape (n,).
        experts: Number of experts, p.

    Returns:
        Shape (p,); they sum to 1.

    Example:
        >>> expert_shares([0, 0, 2, 0], experts=3)
        array([0.75, 0.  , 0.25])
    """
    chosen = as_choice(choice, len(choice), experts)
    if not len(chosen):
        raise ArgumentError(
            "shares need at least one row, got none; pass the choices of a table that is not empty."
        )
    return np.bincount(chosen, minlength=experts) / len(chosen)


def oracle_shares(costs: Any) -> NDArray[np.float64]:
    """Return the share of the rows on which each expert is the cheapest.

    Tied experts share the row equally.

    Args:
        costs: Cost of each expert on each row, shape (n, p).

    Returns:
        Shape (p,); they sum to 1.

    Example:
        >>> oracle_shares([[0, 1, 1], [0, 0, 1]])
        array([0.75, 0.25, 0.  ])
    """
    won = winners(as_matrix(costs))
    return np.asarray((won / won.sum(axis=1, keepdims=True)).mean(axis=0))


def effective_experts(shares: Any) -> float:
    """Return the effective number of experts.

    It is the exponential of the entropy of the shares: 1 on collapse and p at equal shares.

    Args:
        shares: Shares of the experts, shape (p,); they sum to 1.

    Returns:
        Between 1 and p.

    Example:
        >>> round(effective_experts([0.5, 0.5, 0.0]), 6)
        2.0
    """
    used = np.asarray(shares, dtype=np.float64)
    if used.ndim != 1 or (used < 0).any() or not np.isclose(used.sum(), 1):
        raise ArgumentError(
            f"shares must be (p,), not negative, and sum to 1, got {used.tolist()}; see"
            " expert_shares."
        )
    used = used[used > 0]
    return float(np.exp(-(used * np.log(used)).sum()))


# Calibration of the posterior over experts: calibration error and Brier score.


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
    believed, won = _checked(posterior, costs)
    if bins < 1:
        raise ArgumentError(f"bins must be at least 1, got {bins}; 10 is a usual value.")
    top = _decision.argmax_last(believed)
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
    believed, won = _checked(posterior, costs)
    target = won / won.sum(axis=1, keepdims=True)
    return float(((believed - target) ** 2).sum(axis=1).mean())


def _checked(posterior: Any, costs: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    won = winners(costs)
    believed = as_matrix(posterior, "posterior", (won.shape[0], won.shape[1]))
    if (believed < 0).any() or not np.allclose(believed.sum(axis=1), 1, atol=1e-4):
        raise ArgumentError(
            "posterior must not be negative and its rows must sum to 1; pass predict_proba, not"
            " decision_function."
        )
    return believed, won
