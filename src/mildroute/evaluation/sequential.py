"""Comparisons of two routers that may be checked every day.

A test of fixed size errs more often the more often its result is checked. Here the evidence for a
gain is the wealth of gamblers that bet on it: without a gain, the probability that their wealth
ever reaches ``1 / alpha`` is at most ``alpha``, whenever and however often it is checked
(Waudby-Smith and Ramdas, 2024). Each gambler always bets the same fraction, so the wealth depends
on which decisions have a score and not on the order in which scores arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from mildroute.evaluation.resampling import Interval
from mildroute.exceptions import ArgumentError

__all__ = [
    "SequentialComparison",
    "compare_sequentially",
    "explored_gain",
    "share_of_alpha",
]


Vector = NDArray[np.float64]

# Fractions of the worst possible loss that the gamblers bet. The best one is the mean gain times
# the bound over the variance: 0.05 to 0.8 for gains of 1 to 20 points at the usual shares.
_FRACTIONS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
_PRIOR = np.log(np.array([1, 2, 3, 2, 1]) / 9)
_BISECTIONS = 25


def explored_gain(
    cost: float,
    is_choice: Sequence[bool],
    propensities: Sequence[float],
    forecasts: Sequence[float],
) -> float:
    """Return an unbiased, doubly robust estimate of a candidate's saving on one explored request.

    The expert that answered was drawn at random. If it is a router's choice, the answer's cost
    minus its forecast, weighted with the inverse probability of the draw, corrects the forecast.
    Where both routers choose the same expert nothing is saved, whatever the answer was worth: the
    gain is 0 there, and this function is not needed.

    Args:
        cost: Cost of the answer, from 0 to some bound.
        is_choice: Whether the expert that answered is the choice of the router in use and of the
            candidate; at most one of both.
        propensities: Probability of each router's choice to be drawn.
        forecasts: Expected cost of each router's choice, from 0 to the bound, learned from other
            requests.

    Returns:
        The gain; above 0 the candidate is cheaper. Its absolute value is at most the bound over the
        smaller probability.

    Example:
        >>> explored_gain(1.0, [True, False], [0.9, 0.1], [1.0, 0.4])
        0.6
        >>> explored_gain(0.0, [False, True], [0.9, 0.1], [1.0, 0.4])
        4.6
    """
    if is_choice[0] and is_choice[1]:
        raise ArgumentError(
            "an answer must be the choice of one router, got both; their gain is 0."
        )
    if not 0 < min(propensities) <= max(propensities) <= 1:
        raise ArgumentError(
            f"propensities must lie between 0 and 1, got {min(propensities):g} to"
            f" {max(propensities):g}; without a draw nothing can be compared."
        )
    gain = forecasts[0] - forecasts[1]
    if is_choice[0]:
        gain += (cost - forecasts[0]) / propensities[0]
    if is_choice[1]:
        gain -= (cost - forecasts[1]) / propensities[1]
    return gain


@dataclass(frozen=True)
class SequentialComparison:
    """The evidence on the mean gain of one router over another after some decisions.

    Args:
        gains: As for ``compare_sequentially``.
        bounds: As for ``compare_sequentially``, shape (n,).
        alpha: As for ``compare_sequentially``.

    Example:
        >>> comparison = compare_sequentially([0.5, 0.0, 0.5] * 40, 1.0, alpha=0.05)
        >>> comparison.is_better(0.05), comparison.is_worse(0.05), comparison.gain.low > 0
        (True, False, True)
    """

    gains: Vector
    bounds: Vector
    alpha: float

    @cached_property
    def gain(self) -> Interval:
        """Return the mean, with an interval that holds for all checks together."""
        mean = float(self.gains.mean()) if len(self.gains) else 0.0
        low = -_highest_mean(-self.gains, self.bounds, self.alpha)
        high = _highest_mean(self.gains, self.bounds, self.alpha)
        return Interval(mean, low, high, 1 - 2 * self.alpha)

    @cached_property
    def evidence(self) -> float:
        """Return the logarithm of the wealth of the gamblers that bet on a gain."""
        return _log_wealth(self.gains, self.bounds)

    @cached_property
    def harm(self) -> float:
        """Return the logarithm of the wealth of the gamblers that bet on a loss."""
        return _log_wealth(-self.gains, self.bounds)

    @property
    def rows(self) -> int:
        """Return the number of decisions that were counted."""
        return len(self.gains)

    @property
    def differing(self) -> int:
        """Return the number of decisions on which the routers differ."""
        return int(np.count_nonzero(self.gains))

    def is_better(self, alpha: float) -> bool:
        """Return whether the gain is above 0, with error probability ``alpha`` over all checks."""
        return self.evidence >= -math.log(alpha)

    def is_worse(self, alpha: float) -> bool:
        """Return whether the gain is below 0, with error probability ``alpha`` over all checks."""
        return self.harm >= -math.log(alpha)


def compare_sequentially(gains: Any, bounds: Any, *, alpha: float = 0.05) -> SequentialComparison:
    """Return the evidence for and against a gain in all decisions so far.

    Args:
        gains: One gain per decision, shape (n,); 0 if both routers make the same choice.
        bounds: Largest possible loss or gain, shape (n,) or one for all. A bound must not depend on
            the request, only on what was fixed earlier, such as a minimum propensity.
        alpha: Probability that the interval misses the mean at any check, on each side.

    Returns:
        The comparison.

    Example:
        >>> compare_sequentially([0.0, 0.0], 1.0).is_better(0.05)
        False
    """
    values = np.asarray(gains, dtype=np.float64)
    limits = np.broadcast_to(np.asarray(bounds, dtype=np.float64), values.shape)
    if (np.abs(values) > limits * (1 + 1e-9)).any():
        raise ArgumentError(
            "gains must keep within their bounds, got"
            f" {np.abs(values).max():g}; clip costs at their highest before."
        )
    return SequentialComparison(values, limits, alpha)


def share_of_alpha(alpha: float, candidate: int) -> float:
    """Return the part of an error probability for a candidate, numbered from 1.

    The shares of any number of candidates sum to at most ``alpha``.

    Example:
        >>> [round(share_of_alpha(0.05, candidate), 4) for candidate in (1, 2, 3)]
        [0.0304, 0.0076, 0.0034]
    """
    return alpha * 6 / (math.pi * candidate) ** 2


def _log_wealth(gains: Vector, bounds: Vector, mean: float = 0.0, counts: Any = 1.0) -> float:
    """Return the log mean wealth of the gamblers if the mean gain is at most ``mean``."""
    if not len(gains):
        return 0.0
    relative = (gains - mean) / (bounds + abs(mean))
    each = np.broadcast_to(counts, gains.shape) @ np.log1p(np.outer(relative, _FRACTIONS))
    return float(logsumexp(each + _PRIOR))


def _highest_mean(gains: Vector, bounds: Vector, alpha: float) -> float:
    """Return the upper end of the interval, the highest mean that the gains do not exclude."""
    if not len(gains):
        return 1.0
    # The routers agree on most decisions, and those are all alike.
    differs = gains != 0
    limits, alike = np.unique(bounds[~differs], return_counts=True)
    signed = np.concatenate([-gains[differs], np.zeros(len(limits))])
    limits = np.concatenate([bounds[differs], limits])
    counts = np.concatenate([np.ones(len(signed) - len(alike)), alike])

    def is_refuted(mean: float) -> bool:
        return _log_wealth(signed, limits, -mean, counts) >= -math.log(alpha)

    return _bisect(is_refuted, float(gains.mean()), float(bounds.max()))


def _bisect(is_refuted: Callable[[float], bool], low: float, high: float) -> float:
    if not is_refuted(high):
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_refuted(middle) else (middle, high)
    return high
