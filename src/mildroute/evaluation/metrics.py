"""What a choice of experts costs, row by row and on average, beside the best single expert and the oracle.

Every function takes ``choice``, the index of the chosen expert on each row, shape (n,), and matrices of shape (n, p). Costs are
what the router minimises, lower is better; scores lie in [0, 1], higher is better; dollars are dollars.

Experts of equal cost are told apart by dollars where these are known, then by the lower index, so that no figure depends on the order
of the columns as long as dollars differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.checks import Choice, as_choice, as_matrix

__all__ = ["best_single", "deferral_loss", "dollars_per_1000", "gap_closed", "mean_score", "oracle", "paid", "regret"]

_ROUNDING = 1e-12
"""Means closer than this are equal."""


def paid(costs: Any, choice: Any) -> NDArray[np.float64]:
    """What the chosen expert of each row costs.

    Args:
        costs: Any quantity of each expert on each row (costs, scores, dollars), shape (n, p).
        choice: Chosen experts, shape (n,).

    Returns:
        Shape (n,).

    Example:
        >>> paid([[0.1, 0.9], [0.8, 0.2]], [0, 1])
        array([0.1, 0.2])
    """
    matrix = as_matrix(costs)
    chosen = as_choice(choice, *matrix.shape)
    return np.asarray(matrix[np.arange(len(matrix)), chosen])


def deferral_loss(costs: Any, choice: Any) -> float:
    """Mean cost of the chosen experts.

    Example:
        >>> round(deferral_loss([[0.1, 0.9], [0.8, 0.2]], [0, 1]), 2)
        0.15
    """
    return float(paid(costs, choice).mean())


def mean_score(scores: Any, choice: Any) -> float:
    """Mean score of the chosen experts.

    Example:
        >>> mean_score([[1, 0], [0, 1]], [0, 0])
        0.5
    """
    return float(paid(scores, choice).mean())


def dollars_per_1000(dollars: Any, choice: Any) -> float:
    """Bill of 1,000 queries like these, in dollars.

    Example:
        >>> dollars_per_1000([[0.001, 0.01], [0.003, 0.01]], [0, 0])
        2.0
    """
    return float(1000 * paid(dollars, choice).mean())


def regret(costs: Any, choice: Any) -> NDArray[np.float64]:
    """What each row costs beyond its cheapest expert, never negative.

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
    return np.asarray(paid(matrix, choice) - matrix.min(axis=1))


def best_single(costs: Any, dollars: Any = None) -> int:
    """The expert with the lowest mean cost; of equals the one of fewest dollars, then the first.

    On the rows of a report this is the best single expert in hindsight, a reference that is a little too good; one that could have
    been chosen comes from the training rows.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p), or none.

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
    """The expert of lowest cost of each row; of equals the one of fewest dollars, then the first. No router can do better.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p), or none.

    Returns:
        Shape (n,).

    Example:
        >>> oracle([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
        array([0, 1, 0])
        >>> oracle([[0.0, 0.0]], dollars=[[0.02, 0.01]])
        array([1])
    """
    matrix = as_matrix(costs)
    bills = np.zeros(matrix.shape) if dollars is None else as_matrix(dollars, "dollars", matrix.shape)
    return np.asarray(np.where(matrix == matrix.min(axis=1, keepdims=True), bills, np.inf).argmin(axis=1))


def gap_closed(costs: Any, choice: Any, reference: int | None = None) -> float:
    """Share of the way from the best single expert to the oracle: 0 at the former, 1 at the latter, negative below both.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        choice: Chosen experts, shape (n,).
        reference: The expert that counts as best single; by default the best one in hindsight.

    Returns:
        The share; NaN where the reference is as good as the oracle, for then there is no way to go.

    Example:
        >>> gap_closed([[0, 1], [1, 0], [0, 1], [1, 0]], [0, 1, 0, 0])
        0.5
    """
    matrix = as_matrix(costs)
    start = float(matrix[:, best_single(matrix) if reference is None else reference].mean())
    way = start - float(matrix.min(axis=1).mean())
    return (start - deferral_loss(matrix, choice)) / way if way > 0 else float("nan")
