"""Intervals by the bootstrap over queries, paired differences, and Holm's correction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from mildroute.evaluation.resampling import Interval, Means, bootstrap_means, group_codes
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = ["Difference", "bootstrap", "holm", "paired_difference"]

# Standard errors below this share of the mean are rounding noise.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference with its interval and the p-value under no difference.

    Example:
        >>> Difference(-0.1, -0.2, -0.01, 0.95, p_value=0.03).excludes(0)
        True
    """

    p_value: float = 1.0


def bootstrap(
    values: Any,
    statistic: Callable[[Means], NDArray[np.float64]] | str | None = None,
    groups: Any = None,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Compute the interval of a mean over queries, or of any function of several means.

    Args:
        values: Values per row, shape (n,), or several columns by name.
        statistic: Function of the means by name, or the name of one column; by default the mean of
            the only column.
        groups: Group of each row, shape (n,), or `None`; whole groups are resampled.
        resamples: Number of resamples.
        confidence: Confidence of the interval.
        seed: Seed of the draws; the same seed gives the same interval.

    Returns:
        Value and limits.

    Example:
        >>> bootstrap([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
        Interval(value=0.625, low=0.25, high=1.0, confidence=0.95)
        >>> columns = {"cost": [1.0, 0.5, 0.5, 1.0], "oracle": [0.5, 0.5, 0.0, 0.5]}
        >>> bootstrap(columns, lambda mean: mean["oracle"] / mean["cost"]).value
        0.5
    """
    columns = values if isinstance(values, Mapping) else {"value": values}
    if statistic is None:
        if len(columns) != 1:
            raise ArgumentError(
                f"statistic must say which of {len(columns)} columns to use; name one or pass a"
                " function of the means."
            )
        statistic = next(iter(columns))
    return bootstrap_means(columns, groups, resamples, seed).interval(statistic, confidence)


def paired_difference(
    ours: Any,
    theirs: Any,
    groups: Any = None,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Return the mean of ours minus theirs over the same queries.

    The interval is the bootstrap's; the p-value is that of Student's t with the standard error of
    the mean (robust to groups if passed), so the two may disagree near the limit. If all rows
    differ by the same amount, the p-value is that of flipping signs, 2 ** (1 - n).

    Args:
        ours: Values per row, shape (n,).
        theirs: Values of the other router on the same rows, shape (n,).
        groups: Group of each row, shape (n,), or `None`.
        resamples: Number of resamples.
        confidence: Confidence of the interval.
        seed: Seed of the draws.

    Returns:
        The difference.

    Example:
        >>> paired_difference([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
        Difference(value=0.0, low=0.0, high=0.0, confidence=0.95, p_value=1.0)
    """
    first, second = (np.asarray(side, dtype=np.float64) for side in (ours, theirs))
    if first.shape != second.shape or first.ndim != 1:
        raise ShapeError(
            f"both sides must be (n,) over the same rows, got shapes {first.shape} and"
            f" {second.shape}."
        )
    gaps = first - second
    interval = bootstrap(gaps, None, groups, resamples=resamples, confidence=confidence, seed=seed)
    return Difference(
        interval.value, interval.low, interval.high, confidence, _p_value(gaps, groups)
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values for their number by Holm's step-down procedure.

    Reject hypotheses whose corrected p-value is below the level.

    Args:
        p_values: P-values by name.

    Returns:
        Corrected p-values by name, in the same order.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.5})
        {'a': 0.03, 'b': 0.08, 'c': 0.5}
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for step, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_value))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def _p_value(gaps: NDArray[np.float64], groups: Any) -> float:
    """Return the two-sided p-value from the mean and its standard error over rows or groups."""
    mean = gaps.mean()
    rest = gaps - mean
    if groups is not None:
        codes = group_codes(groups, len(gaps))
        if codes.max() > 0:
            rest = np.bincount(codes, rest)
    units = len(rest)
    if units < 2 or not gaps.any():
        return 1.0
    error = np.sqrt(units / (units - 1) * (rest**2).sum()) / len(gaps)
    if error <= _ROUNDING * abs(mean):
        return float(
            2.0 ** (1 - units)
        )  # a sign test over all rows is the only one that needs no variance
    return float(2 * t.sf(abs(mean) / error, units - 1))
