"""Random mixes of neighboring points of a curve, with quantiles of their bills and errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mildroute.routers.frontier.curve import CostQualityCurve

__all__ = ["ROUNDING", "Mix", "MixPath", "index_of_lowest"]

ROUNDING = 1e-9
# Probabilities tried for the mix of two vertices.
_STEPS = 64


@dataclass(frozen=True)
class Mix:
    """A random mix of two points of a curve, with its expected error and bill per query.

    Attributes:
        low: Index of the first point.
        high: Index of the second point.
        share: Share of the queries that the second point answers.
        optimism: Part of the error that corrects for the choice of the hull on the same rows.
    """

    low: int
    high: int
    share: float
    error: float
    bill: float
    optimism: float


class MixPath:
    """The mixes of neighboring vertices, at a grid of shares, by ascending dollars."""

    def __init__(
        self,
        curve: CostQualityCurve,
        vertices: NDArray[np.intp],
        optimism: NDArray[np.float64],
        shares: NDArray[np.float64] | None = None,
    ) -> None:
        self._curve = curve
        self._vertices = vertices
        count = len(vertices)
        if shares is None:
            positions = np.linspace(0, count - 1, _STEPS * (count - 1) + 1)
            self._lower = np.minimum(positions.astype(np.intp), max(count - 2, 0))
            self._share = positions - self._lower
        else:
            self._lower = np.zeros(len(shares), dtype=np.intp)
            self._share = shares
        self._upper = np.minimum(self._lower + 1, count - 1)
        self.optimism = (1 - self._share) * optimism[self._lower] + self._share * optimism[
            self._upper
        ]
        self.dollars = self.mix(curve.dollars)
        self.errors = self.mix(curve.errors) + self.optimism

    @cached_property
    def error_replicates(self) -> NDArray[np.float64]:
        """Return errors, shape (B, positions), without the optimism."""
        return self.mix(self._curve.error_replicates)

    @property
    def is_best(self) -> NDArray[np.bool_]:
        """Return whether each position is the best single expert alone."""
        best = self._curve.singles[self._curve.best]
        low, high = self._vertices[self._lower], self._vertices[self._upper]
        return np.asarray(
            ((low == best) & (self._share == 0)) | ((high == best) & (self._share == 1))
        )

    def mix(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mix values of the points along their last axis."""
        vertex_values = values[..., self._vertices]
        return np.asarray(
            (1 - self._share) * vertex_values[..., self._lower]
            + self._share * vertex_values[..., self._upper]
        )

    def bill_quantile(self, level: float, queries: int) -> NDArray[np.float64]:
        """Return the quantile of the mean dollars of a future batch.

        The quantile covers sampling of the rows, refitting of the router, and chance in the batch.
        """
        spread = np.hypot(self._batch_spread_of_bill(queries), self._refit_spread)
        return np.asarray(np.quantile(self._noisy_bills(spread), level, axis=0))

    def error_quantile(self, level: float, queries: int) -> NDArray[np.float64]:
        """Return the quantile of the mean error of a future batch.

        The quantile covers sampling of the rows and chance in the batch.
        """
        spread = self._batch_spread(self._curve.errors, self._curve.error_spread, queries)
        noisy = _with_noise(self.error_replicates, spread) + self.optimism
        return np.asarray(np.quantile(noisy, level, axis=0))

    def _batch_spread_of_bill(self, queries: int) -> NDArray[np.float64]:
        return self._batch_spread(self._curve.dollars, self._curve.dollars_spread, queries)

    def _batch_spread(
        self, means: NDArray[np.float64], spread: NDArray[np.float64], queries: int
    ) -> NDArray[np.float64]:
        """Return the standard deviation of the mean of a batch, including the draws of a mix."""
        squares = self.mix(spread**2 + means**2)
        return np.asarray(np.sqrt(np.maximum(squares - self.mix(means) ** 2, 0.0) / queries))

    def kept_quantiles(self, tail: float) -> tuple[float, float]:
        """Return the interval of the kept share of the best expert's score.

        It is that of the first position, minus the optimism of its score.
        """
        scores = 1 - self.error_replicates[:, 0] - self.optimism[0]
        best = 1 - self._curve.best_error_replicates
        if not (best > ROUNDING).all():
            return float("nan"), float("nan")
        low, high = np.quantile(scores / best, [tail, 1 - tail])
        return float(low), float(high)

    def saved_replicates(self, base: int, queries: int) -> NDArray[np.float64]:
        """Return the saved share of the bill of the point at ``base``, shape (B, positions).

        Both bills are for a batch like the resampled rows and a refitted router.
        """
        spread = np.hypot(self._batch_spread_of_bill(queries), self._refit_spread)
        bills = np.maximum(self._noisy_bills(spread), 0.0)
        base_bills = self._curve.dollars_replicates[:, [base]]
        return np.asarray(1 - bills / np.where(base_bills > 0, base_bills, np.inf))

    @property
    def _refit_spread(self) -> NDArray[np.float64]:
        # The spread between the folds' routers. A jackknife would be 1.8 times as wide, although
        # this spread already covers 99.7% of bills instead of 95%.
        refits = self.mix(self._curve.refit_dollars)
        return (
            np.asarray(refits.std(axis=0, ddof=1))
            if len(refits) > 1
            else np.zeros(len(self._share))
        )

    def _noisy_bills(self, spread: NDArray[np.float64]) -> NDArray[np.float64]:
        return _with_noise(self.mix(self._curve.dollars_replicates), spread)

    def at(self, position: int) -> Mix:
        """Return the mix at one position."""
        low, high = (int(self._vertices[index[position]]) for index in (self._lower, self._upper))
        share = float(self._share[position])
        return Mix(
            low,
            high,
            share,
            float(self.errors[position]),
            float(self.dollars[position]),
            float(self.optimism[position]),
        )


def _with_noise(
    replicates: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add normal noise to replicates, shape (B, positions), with one draw per replicate."""
    draws = np.random.default_rng(0).standard_normal((len(replicates), 1))
    return np.asarray(replicates + draws * spread)


def index_of_lowest(
    allowed: NDArray[np.bool_], values: NDArray[np.float64], then: NDArray[np.float64]
) -> int:
    """Return the index of the lowest allowed value.

    Among values that are equal up to rounding, take the one that is lowest in another column.
    """
    lowest = values[allowed].min()
    equal = allowed & (values <= lowest + ROUNDING * max(abs(lowest), 1e-300))
    return int(np.where(equal, then, np.inf).argmin())
