"""Running sums over rows of scores and dollars: wins, wins alone, dominance and the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["DominanceMatrix", "WinCounts"]


Matrix = NDArray[np.float64]

_HEAD = 256


class WinCounts:
    """The sums over rows that determine all shares and means.

    An expert wins a row if its cost (1 - score) + price_weight dollars is the lowest; tied experts
    share the win equally. The oracle chooses a winner, and the cheapest one if several tie.

    Attributes:
        scores: Sum of scores, shape (p,).
        dollars: Sum of dollars, shape (p,).
        wins: Sum of shared wins, shape (p,).
        decided_wins: Sum of shared wins over decided rows, shape (p,).
        alone: Number of rows that only this expert wins, shape (p,).
        oracle_dollars: Sum of the oracle's dollars.
    """

    def __init__(self, experts: int, *, price_weight: float) -> None:
        self._price_weight = price_weight
        self.rows = 0
        self.decided = 0
        self.scores = np.zeros(experts)
        self.dollars = np.zeros(experts)
        self.wins = np.zeros(experts)
        self.decided_wins = np.zeros(experts)
        self.alone = np.zeros(experts, dtype=np.int64)
        self.oracle_score = 0.0
        self.oracle_dollars = 0.0

    def add(self, scores: Matrix, dollars: Matrix | None) -> None:
        """Add rows.

        Both matrices have shape (p, n), one row per expert, which is how columns lie in memory.
        """
        costs = 1.0 - scores
        if dollars is not None:
            self.dollars += dollars.sum(axis=1)
            costs += self._price_weight * dollars if self._price_weight else 0.0
        lowest = costs.min(axis=0)
        winners = costs == lowest
        tied = np.add.reduce(winners, axis=0, dtype=np.int32)
        undecided = int(np.count_nonzero(tied == len(scores)))
        shared = winners.astype(np.float64) @ (1.0 / tied)
        self.rows += scores.shape[1]
        self.decided += scores.shape[1] - undecided
        self.scores += scores.sum(axis=1)
        self.wins += shared
        self.decided_wins += shared - undecided / len(scores)
        self.alone += np.count_nonzero(winners & (tied == 1), axis=1)
        self._add_oracle(lowest, dollars, winners)

    def _add_oracle(
        self, lowest: Matrix, dollars: Matrix | None, winners: NDArray[np.bool_]
    ) -> None:
        paid = (
            0.0 if dollars is None else float(np.where(winners, dollars, np.inf).min(axis=0).sum())
        )
        self.oracle_dollars += paid
        self.oracle_score += float(len(lowest) - (lowest.sum() - self._price_weight * paid))


class DominanceMatrix:
    """The pairs of experts in which the first dominates the second.

    The first is never worse in score, never more expensive, and better on some row.
    """

    def __init__(self, experts: int) -> None:
        self._never_worse = ~np.eye(experts, dtype=bool)
        self._better = np.zeros((experts, experts), dtype=bool)

    def add(self, scores: Matrix, dollars: Matrix | None) -> None:
        """Add rows of shape (p, n).

        A few rows settle most pairs; only the remaining pairs are compared on all rows.
        """
        for rows in (slice(0, _HEAD), slice(_HEAD, None)):
            for one, other in zip(*np.nonzero(self._never_worse), strict=True):
                self._compare(
                    int(one),
                    int(other),
                    scores[:, rows],
                    None if dollars is None else dollars[:, rows],
                )

    def _compare(self, one: int, other: int, scores: Matrix, dollars: Matrix | None) -> None:
        never_worse = bool((scores[one] >= scores[other]).all()) and (
            dollars is None or bool((dollars[one] <= dollars[other]).all())
        )
        self._never_worse[one, other] = never_worse
        if never_worse and not self._better[one, other]:
            self._better[one, other] = bool((scores[one] > scores[other]).any()) or (
                dollars is not None and bool((dollars[one] < dollars[other]).any())
            )

    def dominated(self) -> dict[int, int]:
        """Return each dominated expert and one that dominates it."""
        pairs = self._never_worse & self._better
        return {
            int(other): int(pairs[:, other].argmax()) for other in np.flatnonzero(pairs.any(axis=0))
        }
