"""The recovered share of the gap between a weak and a strong expert, by calls to the strong one.

The figures are those of RouteLLM (Ong et al., 2024): the performance gap recovered, PGR = (score -
weak) / (strong - weak); APGR, its mean over the share of calls to the strong expert; CPT(x), the
lowest share whose PGR is x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import as_matrix
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = ["PairCurve", "pgr_curve"]


@dataclass(frozen=True)
class PairCurve:
    """The mean score along the share of calls to the strong expert.

    Attributes:
        shares: Shares of calls to the strong expert, ascending from 0 to 1, shape (m,).
        scores: Mean score at each share, shape (m,); the first is the weak expert's, the last the
            strong one's.

    Example:
        >>> curve = PairCurve(np.array([0.0, 0.5, 1.0]), np.array([0.4, 0.7, 0.8]))
        >>> curve.recovered().round(2)
        array([0.  , 0.75, 1.  ])
        >>> round(curve.average_recovered(), 4), round(curve.calls_for(0.5), 4)
        (0.625, 0.3333)
    """

    shares: NDArray[np.float64]
    scores: NDArray[np.float64]

    def recovered(self) -> NDArray[np.float64]:
        """Return the PGR at each share, shape (m,); NaN if both experts score the same."""
        gap = self.scores[-1] - self.scores[0]
        return np.asarray((self.scores - self.scores[0]) / (gap if gap != 0 else np.nan))

    def average_recovered(
        self, rule: Literal["trapezium", "grid"] = "trapezium", points: int = 10
    ) -> float:
        """Return the APGR: PGR averaged over the share of strong calls.

        Args:
            rule: ``"trapezium"``, the area under PGR, is what RouteLLM's code computes, and gives
                random choice exactly one half; ``"grid"`` is the mean over shares 1/points,
                2/points, ..., 1, as in its paper.
            points: Size of the grid.

        Returns:
            1 if the first strong call recovers everything, 0.5 for random choice under the first
            rule, NaN if the experts score the same.
        """
        if rule not in ("trapezium", "grid"):
            raise ArgumentError(f"rule must be 'trapezium' or 'grid', got {rule!r}.")
        recovered = self.recovered()
        if rule == "grid":
            return float(
                np.interp(np.arange(1, points + 1) / points, self.shares, recovered).mean()
            )
        return float((np.diff(self.shares) * (recovered[1:] + recovered[:-1]) / 2).sum())

    def calls_for(self, recovered: float) -> float:
        """Return the CPT.

        It is the lowest share of strong calls whose PGR is at least this, linear between the points
        of the curve.

        Args:
            recovered: The target PGR, such as 0.5 for CPT(50%).

        Returns:
            The share; NaN if it is never reached.
        """
        reached = self.recovered()
        at = np.flatnonzero(reached >= recovered)
        if not len(at):
            return float("nan")
        if at[0] == 0:
            return float(self.shares[0])
        before, after = at[0] - 1, at[0]
        way = (recovered - reached[before]) / (reached[after] - reached[before])
        return float(self.shares[before] + way * (self.shares[after] - self.shares[before]))


def pgr_curve(preference: Any, scores: Any, weak: int = 0, strong: int = 1) -> PairCurve:
    """Send more and more rows to the strong expert, beginning with those that need it most.

    Args:
        preference: How much each row needs the strong expert, shape (n,): the posterior of the
            strong expert, or a difference of scores. Rows of equal preference switch together.
        scores: Score of each expert on each row, shape (n, p).
        weak: Index of the weak expert.
        strong: Index of the strong expert.

    Returns:
        The curve, one point for each distinct preference and one for no strong call.

    Example:
        >>> pgr_curve([0.9, 0.1, 0.5], [[0, 1], [1, 1], [1, 0]]).scores.round(3)
        array([0.667, 1.   , 0.667, 0.667])
    """
    matrix = as_matrix(scores, "scores")
    preferences = np.asarray(preference, dtype=np.float64)
    if preferences.shape != (len(matrix),):
        raise ShapeError(
            f"preference must be ({len(matrix)},), one per row, got shape {preferences.shape}."
        )
    if np.isnan(preferences).any():
        raise ArgumentError(
            "preference must not be NaN; say for each row how much it needs the strong expert."
        )
    order = np.argsort(-preferences, kind="stable")
    gained = np.cumsum((matrix[:, strong] - matrix[:, weak])[order])
    ends = np.append(np.flatnonzero(np.diff(preferences[order])), len(order) - 1)
    start = matrix[:, weak].mean()
    curve = np.concatenate([[start], start + gained[ends] / len(matrix)])
    return PairCurve(np.concatenate([[0.0], (ends + 1) / len(matrix)]), curve)
