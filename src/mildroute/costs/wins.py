"""Row-by-row comparison of experts: wins, the oracle, and dominated experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Wins", "count_wins", "dominated_experts"]

Matrix = NDArray[np.float64]

_HEAD_ROWS = 256


@dataclass(frozen=True)
class Wins:
    """The rows that each expert wins, and the choices of an oracle.

    An expert wins a row if its cost (1 - score) + price_weight dollars is the lowest; tied experts
    share the win equally. The oracle chooses a winner, and the cheapest one if several tie.

    Attributes:
        wins: Sum of shared wins of each expert, shape (p,).
        decided_wins: Sum of shared wins over decided rows, shape (p,).
        alone: Number of rows that only this expert wins, shape (p,).
        decided: Number of rows on which not all experts tie.
        oracle_cost: Mean cost of the oracle.
        oracle_score: Mean score of the oracle.
        oracle_dollars: Mean dollars of the oracle; 0 without dollars.
    """

    wins: Matrix
    decided_wins: Matrix
    alone: NDArray[np.intp]
    decided: int
    oracle_cost: float
    oracle_score: float
    oracle_dollars: float


def count_wins(scores: Matrix, dollars: Matrix | None, price_weight: float) -> Wins:
    """Count the wins in scores and dollars, both of shape (n, p)."""
    costs = 1.0 - scores
    if dollars is not None and price_weight:
        costs += price_weight * dollars
    lowest = costs.min(axis=1)
    winners = costs == lowest[:, None]
    tied = winners.sum(axis=1)
    shared = winners / tied[:, None]
    is_decided = tied < scores.shape[1]
    paid = 0.0 if dollars is None else np.where(winners, dollars, np.inf).min(axis=1).mean()
    return Wins(
        wins=shared.sum(axis=0),
        decided_wins=shared[is_decided].sum(axis=0),
        alone=winners[tied == 1].sum(axis=0),
        decided=int(is_decided.sum()),
        oracle_cost=float(lowest.mean()),
        oracle_score=float(1.0 - (lowest.mean() - price_weight * paid)),
        oracle_dollars=float(paid),
    )


def dominated_experts(scores: Matrix, dollars: Matrix | None) -> dict[int, int]:
    """Return each dominated expert with the first expert that dominates it.

    An expert dominates another if it is never worse in score, never more expensive, and better on
    some row.
    """
    # Larger values are better in every column.
    values = scores if dollars is None else np.vstack([scores, -dollars])
    # The first rows decide most pairs of experts.
    head = values[:_HEAD_ROWS]
    dominated: dict[int, int] = {}
    for expert in range(values.shape[1]):
        for other in range(values.shape[1]):
            if (
                (head[:, other] >= head[:, expert]).all()
                and (values[:, other] >= values[:, expert]).all()
                and (values[:, other] > values[:, expert]).any()
            ):
                dominated[expert] = other
                break
    return dominated
