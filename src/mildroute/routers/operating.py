"""Choosing a price weight by a target: a budget, a quality or a share, with intervals from held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError, UnreachableTargetError

__all__ = ["Curve", "OperatingPoint", "curve_of"]

_RESAMPLES = 1000
_ROUNDING = 1e-9


@dataclass(frozen=True)
class OperatingPoint:
    """A price weight and what it does on held-out rows; each interval has the stated confidence.

    Attributes:
        price_weight: Pass it to ``predict``.
        dollars_per_1000: Expected bill of 1,000 queries, with its interval for a batch of the stated size.
        score: Expected score, with its interval.
        shares: Share of queries that each expert answers, shape (p,).
        confidence: Of each interval.

    Example:
        >>> OperatingPoint(10.0, 1.5, (1.2, 1.8), 0.8, (0.78, 0.82), (0.9, 0.1), 0.95).price_weight
        10.0
    """

    price_weight: float
    dollars_per_1000: float
    dollars_interval: tuple[float, float]
    score: float
    score_interval: tuple[float, float]
    shares: tuple[float, ...]
    confidence: float


@dataclass(frozen=True)
class Curve:
    """Held-out dollars, errors and shares along the price weights, with bootstrap replicates.

    Attributes:
        weights: Price weights, ascending, shape (P,).
        dollars: Mean dollars a query, shape (P,).
        errors: Mean error, shape (P,).
        shares: Share of each expert, shape (P, p).
        dollars_spread: Standard deviation of a query's dollars, shape (P,).
        dollars_replicates: Bootstrap means, shape (B, P).
        error_replicates: Bootstrap means, shape (B, P).
        share_replicates: Bootstrap shares, shape (B, P, p).
        best_error: Lowest mean error of a single expert.
        best_error_replicates: The same in each bootstrap resample, shape (B,).

    Example:
        >>> curve = curve_of(np.array([0.0]), np.array([[1, 1]]), np.eye(2), np.array([[0.001, 0.002]] * 2))
        >>> round(curve.for_budget(2.5, confidence=0.95, queries=1000).dollars_per_1000, 6)
        2.0
    """

    weights: NDArray[np.float64]
    dollars: NDArray[np.float64]
    errors: NDArray[np.float64]
    shares: NDArray[np.float64]
    dollars_spread: NDArray[np.float64]
    dollars_replicates: NDArray[np.float64]
    error_replicates: NDArray[np.float64]
    share_replicates: NDArray[np.float64]
    best_error: float
    best_error_replicates: NDArray[np.float64]

    def for_budget(self, dollars_per_1000: float, confidence: float, queries: int) -> OperatingPoint:
        """Lowest held-out error among points whose bill for ``queries`` queries stays below the budget with this confidence."""
        _check_promise(confidence, queries)
        ceiling = 1000 * self._batch_quantile(confidence, queries)
        allowed = ceiling <= dollars_per_1000
        if not allowed.any():
            cheapest = int(ceiling.argmin())
            raise UnreachableTargetError(
                f"no price weight keeps 1,000 queries below {dollars_per_1000:g} dollars with confidence {confidence:g}: the cheapest "
                f"point (price weight {self.weights[cheapest]:g}) may need {ceiling[cheapest]:.4g}; raise the budget."
            )
        return self.point(_lowest(allowed, self.errors, self.dollars), confidence, queries)

    def for_quality(self, fraction_of_best: float, confidence: float, queries: int) -> OperatingPoint:
        """Cheapest point whose score is at least this fraction of the best single expert's with this confidence.

        Both scores are taken on the same resamples: what is luck of the rows for both decides nothing.
        """
        _check_promise(confidence, queries)
        target = fraction_of_best * (1 - self.best_error)
        beyond = 1 - self.error_replicates - fraction_of_best * (1 - self.best_error_replicates[:, None])
        floor = np.quantile(beyond, 1 - confidence, axis=0)
        reached = floor >= -_ROUNDING
        if not reached.any():
            raise UnreachableTargetError(
                f"no price weight reaches a score of {target:.4g}, {fraction_of_best:g} of the best single expert's, with confidence "
                f"{confidence:g}: the best point is sure of {target + floor.max():.4g}; ask for less or collect more rows."
            )
        return self.point(_lowest(reached, self.dollars, self.errors), confidence, queries)

    def for_best(self, confidence: float, queries: int) -> OperatingPoint:
        """Cheapest point whose score is not told apart from the best point's, on the same resamples with this confidence."""
        _check_promise(confidence, queries)
        best = _lowest(np.ones(len(self.weights), dtype=bool), self.errors, self.dollars)
        loss = np.quantile(self.error_replicates - self.error_replicates[:, [best]], (1 - confidence) / 2, axis=0)
        return self.point(_lowest(loss <= _ROUNDING, self.dollars, self.errors), confidence, queries)

    def for_share(self, expert: int, at_most: float, confidence: float, queries: int) -> OperatingPoint:
        """Lowest held-out error among points that send at most this share of queries to an expert with this confidence."""
        _check_promise(confidence, queries)
        ceiling = np.quantile(self.share_replicates[:, :, expert], confidence, axis=0)
        if not (ceiling <= at_most).any():
            raise UnreachableTargetError(
                f"no price weight sends at most {at_most:g} of the queries to that expert with confidence {confidence:g}: the lowest share "
                f"is {ceiling.min():.4g}; allow more or leave the expert out."
            )
        return self.point(_lowest(ceiling <= at_most, self.errors, self.dollars), confidence, queries)

    def point(self, index: int, confidence: float, queries: int) -> OperatingPoint:
        """The point at one price weight with its two-sided intervals."""
        _check_promise(confidence, queries)
        tail = (1 - confidence) / 2
        low, high = (float(1000 * self._batch_quantile(level, queries)[index]) for level in (tail, 1 - tail))
        best, worst = np.quantile(self.error_replicates[:, index], [tail, 1 - tail])
        return OperatingPoint(
            price_weight=float(self.weights[index]),
            dollars_per_1000=float(1000 * self.dollars[index]),
            dollars_interval=(max(low, 0.0), high),
            score=float(1 - self.errors[index]),
            score_interval=(float(1 - worst), float(1 - best)),
            shares=tuple(self.shares[index].tolist()),
            confidence=confidence,
        )

    def _batch_quantile(self, level: float, queries: int) -> NDArray[np.float64]:
        """Quantile of the mean dollars of a future batch: the error of our estimate and the luck of the batch."""
        luck = np.random.default_rng(0).standard_normal((len(self.dollars_replicates), 1)) * self.dollars_spread / np.sqrt(queries)
        return np.asarray(np.quantile(self.dollars_replicates + luck, level, axis=0))


def _lowest(allowed: NDArray[np.bool_], values: NDArray[np.float64], then: NDArray[np.float64]) -> int:
    """Index of the lowest allowed value; of equals, but for rounding, the one that is lowest in another column."""
    lowest = values[allowed].min()
    equal = allowed & (values <= lowest + _ROUNDING * max(abs(lowest), 1e-300))
    return int(np.where(equal, then, np.inf).argmin())


def _check_promise(confidence: float, queries: int) -> None:
    if not 0 < confidence < 1:
        raise ArgumentError(f"confidence must lie between 0 and 1, got {confidence}; 0.95 is a usual value.")
    if not queries >= 1:
        raise ArgumentError(f"queries must be at least 1, got {queries}; it is the size of the batch that the promise is about.")


def curve_of(
    weights: NDArray[np.float64],
    choices: NDArray[np.intp],
    errors: NDArray[np.float64],
    dollars: NDArray[np.float64],
    row_weights: NDArray[np.float64] | None = None,
) -> Curve:
    """Measure held-out choices along price weights.

    Args:
        weights: Price weights, shape (P,).
        choices: Expert chosen on each held-out row, shape (P, n).
        errors: Error of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p).
        row_weights: Weight of each row, shape (n,), or none.

    Returns:
        The curve.

    Example:
        >>> curve = curve_of(np.array([0.0]), np.array([[0, 1]]), np.eye(2), np.ones((2, 2)))
        >>> curve.errors, curve.dollars
        (array([1.]), array([1.]))
    """
    rows = np.arange(len(errors))
    paid_errors = np.stack([errors[rows, choice] for choice in choices], axis=1)
    paid_dollars = np.stack([dollars[rows, choice] for choice in choices], axis=1)
    used = (choices.T[:, :, None] == np.arange(errors.shape[1])).reshape(len(rows), -1).astype(np.float64)
    importance = np.ones(len(rows)) if row_weights is None else row_weights
    share = importance / importance.sum()
    points, experts = len(weights), errors.shape[1]
    replicates = _resampled_means(np.hstack([paid_dollars, paid_errors, used, errors]), importance)
    return Curve(
        weights=weights,
        dollars=share @ paid_dollars,
        errors=share @ paid_errors,
        shares=(share @ used).reshape(points, experts),
        dollars_spread=np.sqrt(share @ (paid_dollars - share @ paid_dollars) ** 2),
        dollars_replicates=replicates[:, :points],
        error_replicates=replicates[:, points : 2 * points],
        share_replicates=replicates[:, 2 * points : -experts].reshape(-1, points, experts),
        best_error=float((share @ errors).min()),
        # Best anew in each resample: who is best is a matter of luck too.
        best_error_replicates=replicates[:, -experts:].min(axis=1),
    )


def _resampled_means(columns: NDArray[Any], importance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted means of the columns over bootstrap samples of the rows, shape (B, columns)."""
    rng = np.random.default_rng(0)
    rows = len(columns)
    share = np.full(rows, 1 / rows)
    drawn = (rng.multinomial(rows, share, size=100) * importance for _ in range(_RESAMPLES // 100))
    return np.vstack([counts @ columns / counts.sum(axis=1, keepdims=True) for counts in drawn])
