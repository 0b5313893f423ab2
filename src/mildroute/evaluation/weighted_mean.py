"""Intervals of means in which few rows of great weight decide.

With 5% exploration a rarely chosen expert has some sixty answers among 5,000 requests, each with a weight of eighty. The normal interval
then holds the truth too rarely (down to 88% where 95% are promised), above all if errors are rare. Three repairs, chosen by simulation:
Student's quantile at the number of rows that decide the variance; four more rows of great weight, two at each end of the likely costs, as
Agresti and Coull (1998) have it for shares; and the centre that goes with these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from mildroute.evaluation.checks import check_confidence
from mildroute.evaluation.replicates import Interval, group_codes

__all__ = ["Influence", "effective_rows", "interval_of"]

_LIKELY = 3.0
"""Standard deviations of all costs within which a further cost is likely."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Influence:
    """An estimate and what each row does to it.

    Attributes:
        value: The estimate.
        terms: One for each row, shape (n,), whose mean is the estimate, up to terms of lower order.
        weights: Of each row's cost, shape (n,).
        total: What the weights are divided by.

    Example:
        >>> Influence(0.5, np.array([0.0, 1.0]), np.ones(2), 2.0).value
        0.5
    """

    value: float
    terms: Vector
    weights: Vector
    total: float


def effective_rows(weights: Any) -> float:
    """How many rows of equal weight would say as much.

    Example:
        >>> effective_rows([1.0, 1.0, 0.0]), effective_rows([0.0])
        (2.0, 0.0)
    """
    values = np.abs(np.asarray(weights, dtype=np.float64))
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / squares) if squares else 0.0


def interval_of(found: Influence, costs: Any, groups: Any = None, confidence: float = 0.95, *, is_difference: bool = False) -> Interval:
    """The interval of an estimate.

    Args:
        found: The estimate.
        costs: All costs that were seen, of whatever expert: the costs that are likely.
        groups: What rows belong together, shape (n,), or none.
        confidence: Of the interval.
        is_difference: Whether the estimate is a difference of two.

    Returns:
        Value and limits; NaN for all where nothing was seen.

    Example:
        >>> costs = np.array([0.0, 1.0, 1.0, 0.0] * 10)
        >>> print(interval_of(Influence(0.5, costs, np.ones(40), 40.0), costs))
        0.5 [0.3455, 0.6545]
    """
    check_confidence(confidence)
    squares = float((found.weights**2).sum())
    if not np.isfinite(found.value) or not squares:
        still = 0.0 if is_difference and np.isfinite(found.value) else float("nan")
        return Interval(still, still, still, confidence)
    below, above = _likely(found.value, np.asarray(costs, dtype=np.float64), is_difference=is_difference)
    great = float((np.abs(found.weights) ** 3).sum()) / squares
    more = float(norm.ppf((1 + confidence) / 2)) ** 2
    total = found.total + more * great
    spread, units = _squares(found, groups)
    error = np.sqrt(spread + more / 2 * great**2 * (below**2 + above**2)) / total
    centre = found.value + more / 2 * great * (above - below) / total
    freedom = max(1.0, min(squares**2 / float((found.weights**4).sum()), units) - 1)
    half = float(t.ppf((1 + confidence) / 2, freedom)) * error
    low, high = min(centre - half, found.value), max(centre + half, found.value)
    return Interval(found.value, float(low if is_difference else max(low, min(0.0, float(np.min(costs))))), float(high), confidence)


def _likely(value: float, costs: Vector, *, is_difference: bool) -> tuple[float, float]:
    """How far below and above the estimate a cost may well lie."""
    reach = _LIKELY * float(costs.std())
    if is_difference:
        reach = min(reach, float(np.ptp(costs)) / 2)
        return reach, reach
    return min(reach, max(0.0, value - float(costs.min()))), min(reach, max(0.0, float(costs.max()) - value))


def _squares(found: Influence, groups: Any) -> tuple[float, int]:
    """Sum of squares of the terms, in units of weight times cost, and the number of rows or groups that they come from."""
    rest = (found.terms - found.terms.mean()) * found.total / len(found.terms)
    if groups is not None:
        codes = group_codes(groups, len(rest))
        if codes.max() > 0:
            rest = np.bincount(codes, rest)
    units = len(rest)
    return float((rest**2).sum()) * units / max(units - 1, 1), units
