"""Running sums over rows of scores and dollars: who wins, how often alone, and what the oracle would do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dominance", "WinTally"]

Matrix = NDArray[np.float64]

_HEAD = 256


class WinTally:
    """Sums over rows, from which all shares and means follow.

    An expert wins a row if its cost (1 - score) + price_weight dollars is the lowest; experts that tie share the win equally. The oracle
    takes a winner, the cheapest one where several tie.

    Attributes:
        rows: Rows so far.
        decided: Rows on which not all experts tie.
        scores: Sum of scores, shape (p,).
        dollars: Sum of dollars, shape (p,).
        wins: Sum of shared wins, shape (p,).
        decided_wins: The same over decided rows, shape (p,).
        alone: Rows that only this expert wins, shape (p,).
        oracle_score: Sum of the oracle's scores.
        oracle_dollars: Sum of the oracle's dollars.

    Example:
        >>> tally = WinTally(2, price_weight=0.0)
        >>> tally.add(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), None)
        >>> tally.wins.tolist(), tally.alone.tolist(), tally.decided
        ([2.0, 1.0], [1, 0], 1)
    """

    def __init__(self, experts: int, *, price_weight: float) -> None:
        self._price_weight = price_weight
        self.rows = self.decided = 0
        self.scores, self.dollars, self.wins, self.decided_wins = (np.zeros(experts) for _ in range(4))
        self.alone = np.zeros(experts, dtype=np.int64)
        self.oracle_score = self.oracle_dollars = 0.0

    def add(self, scores: Matrix, dollars: Matrix | None) -> None:
        """Add rows; both matrices have shape (p, n), one row an expert, which is how columns lie in memory."""
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

    def _add_oracle(self, lowest: Matrix, dollars: Matrix | None, winners: NDArray[np.bool_]) -> None:
        paid = 0.0 if dollars is None else float(np.where(winners, dollars, np.inf).min(axis=0).sum())
        self.oracle_dollars += paid
        self.oracle_score += float(len(lowest) - (lowest.sum() - self._price_weight * paid))


class Dominance:
    """Which experts another one never loses to: never worse in score and never dearer, and better somewhere.

    Example:
        >>> dominance = Dominance(2)
        >>> dominance.add(np.array([[1.0, 0.5], [1.0, 0.0]]), None)
        >>> dominance.dominated()
        {1: 0}
    """

    def __init__(self, experts: int) -> None:
        self._never_worse = ~np.eye(experts, dtype=bool)
        self._better = np.zeros((experts, experts), dtype=bool)

    def add(self, scores: Matrix, dollars: Matrix | None) -> None:
        """Add rows of shape (p, n). A few rows settle most pairs; only the rest look at them all."""
        for rows in (slice(0, _HEAD), slice(_HEAD, None)):
            for one, other in zip(*np.nonzero(self._never_worse), strict=True):
                self._compare(int(one), int(other), scores[:, rows], None if dollars is None else dollars[:, rows])

    def _compare(self, one: int, other: int, scores: Matrix, dollars: Matrix | None) -> None:
        never_worse = bool((scores[one] >= scores[other]).all()) and (dollars is None or bool((dollars[one] <= dollars[other]).all()))
        self._never_worse[one, other] = never_worse
        if never_worse and not self._better[one, other]:
            self._better[one, other] = bool((scores[one] > scores[other]).any()) or (
                dollars is not None and bool((dollars[one] < dollars[other]).any())
            )

    def dominated(self) -> dict[int, int]:
        """Each dominated expert and one that dominates it."""
        pairs = self._never_worse & self._better
        return {int(other): int(pairs[:, other].argmax()) for other in np.flatnonzero(pairs.any(axis=0))}
