"""Intervals of means that depend on few rows of great weight.

With 5% exploration, a rarely chosen expert has some sixty answers among 5,000 requests, each with a
weight of eighty. The normal interval then contains the truth too rarely (down to 88% instead of
95%), above all if errors are rare. Three corrections were chosen by simulation: Student's quantile
at the number of rows that decide the variance; four more rows of great weight, two at each end of
the likely costs, as Agresti and Coull (1998) add them for shares; and the center that goes with
these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from mildroute.evaluation.arrays import check_confidence
from mildroute.evaluation.resampling import Interval, group_codes

__all__ = ["WeightedEstimate", "effective_rows", "weighted_interval"]

# Number of standard deviations of all costs within which another cost is likely.
_LIKELY = 3.0

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class WeightedEstimate:
    """An estimate with the contribution of each row.

    Attributes:
        terms: One term per row, shape (n,), whose mean is the estimate, up to terms of lower order.
        weights: Weight of each row's cost, shape (n,).
    """

    value: float
    terms: Vector
    weights: Vector
    total: float


def effective_rows(weights: Any) -> float:
    """Return the number of equally weighted rows with the same information."""
    values = np.abs(np.asarray(weights, dtype=np.float64))
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / squares) if squares else 0.0


def weighted_interval(
    estimate: WeightedEstimate,
    costs: Any,
    groups: Any = None,
    confidence: float = 0.95,
    *,
    is_difference: bool = False,
) -> Interval:
    """Return the interval of an estimate.

    Args:
        estimate: The estimate.
        costs: All observed costs, of any expert, as the range of likely costs.
        groups: Group of each row, shape (n,), or `None`.
        confidence: Confidence of the interval.
        is_difference: Whether the estimate is the difference of two estimates.

    Returns:
        Value and limits; all NaN if nothing was observed.
    """
    check_confidence(confidence)
    squares = float((estimate.weights**2).sum())
    if not np.isfinite(estimate.value) or not squares:
        still = 0.0 if is_difference and np.isfinite(estimate.value) else float("nan")
        return Interval(still, still, still, confidence)
    below, above = _likely(
        estimate.value, np.asarray(costs, dtype=np.float64), is_difference=is_difference
    )
    great = float((np.abs(estimate.weights) ** 3).sum()) / squares
    more = float(norm.ppf((1 + confidence) / 2)) ** 2
    total = estimate.total + more * great
    spread, units = _sum_of_squares(estimate, groups)
    error = np.sqrt(spread + more / 2 * great**2 * (below**2 + above**2)) / total
    center = estimate.value + more / 2 * great * (above - below) / total
    freedom = max(1.0, min(squares**2 / float((estimate.weights**4).sum()), units) - 1)
    half = float(t.ppf((1 + confidence) / 2, freedom)) * error
    low, high = min(center - half, estimate.value), max(center + half, estimate.value)
    return Interval(
        estimate.value,
        float(low if is_difference else max(low, min(0.0, float(np.min(costs))))),
        float(high),
        confidence,
    )


def _likely(value: float, costs: Vector, *, is_difference: bool) -> tuple[float, float]:
    """Return how far below and above the estimate a cost is likely to lie."""
    reach = _LIKELY * float(costs.std())
    if is_difference:
        reach = min(reach, float(np.ptp(costs)) / 2)
        return reach, reach
    return min(reach, max(0.0, value - float(costs.min()))), min(
        reach, max(0.0, float(costs.max()) - value)
    )


def _sum_of_squares(estimate: WeightedEstimate, groups: Any) -> tuple[float, int]:
    """Return the sum of squares of the terms, and the number of rows or groups behind it.

    The terms are in units of weight times cost.
    """
    rest = (estimate.terms - estimate.terms.mean()) * estimate.total / len(estimate.terms)
    if groups is not None:
        codes = group_codes(groups, len(rest))
        if codes.max() > 0:
            rest = np.bincount(codes, rest)
    units = len(rest)
    return float((rest**2).sum()) * units / max(units - 1, 1), units
