"""Shares of the experts, those of the oracle, and the effective number of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import as_choice, as_matrix
from mildroute.evaluation.specialist_recall import winners
from mildroute.exceptions import ArgumentError

__all__ = ["effective_experts", "expert_shares", "oracle_shares"]


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
