"""The cost of a choice of experts, compared with the best single expert and the oracle.

Every function takes ``choice``, the index of the chosen expert on each row, shape (n,), and
matrices of shape (n, p). Costs are what the router minimizes, lower is better; scores lie in
[0, 1], higher is better.

Experts of equal cost are distinguished by dollars if these are known, then by the lower index. No
figure thus depends on the order of the columns as long as dollars differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import Choice, as_choice, as_matrix
from mildroute.routers import _order

__all__ = [
    "best_single",
    "chosen_costs",
    "deferral_loss",
    "dollars_per_1000",
    "gap_closed",
    "mean_score",
    "oracle",
    "regret",
]

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
    return _order.chosen_costs(matrix, as_choice(choice, *matrix.shape))


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
