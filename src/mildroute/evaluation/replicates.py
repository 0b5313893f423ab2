"""Bootstrap replicates of the means of columns, from which any function of those means gets an interval."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from mildroute.errors import ArgumentError, ShapeError
from mildroute.evaluation.checks import check_confidence

__all__ = ["Interval", "Means", "Replicates", "group_codes", "resample"]

_BLOCK = 2**21
"""Draws made at once: few enough to stay in the cache, many enough to leave the loop to NumPy."""

Means = Mapping[str, NDArray[np.float64]]
"""Means by the name of their column: of all rows, shape (1,), or of each resample, shape (B,)."""


@dataclass(frozen=True)
class Interval:
    """A figure with the interval that holds it with the stated confidence.

    Example:
        >>> str(Interval(0.83, 0.81, 0.85, 0.95))
        '0.83 [0.81, 0.85]'
    """

    value: float
    low: float
    high: float
    confidence: float = 0.95

    def __str__(self) -> str:
        """Value and limits with four significant digits."""
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def excludes(self, number: float) -> bool:
        """Whether a number lies outside."""
        return number < self.low or number > self.high

    def times(self, factor: float) -> Interval:
        """The interval in another unit."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Interval(self.value * factor, low, high, self.confidence)


@dataclass(frozen=True)
class Replicates:
    """Means of columns over all rows and over each bootstrap resample.

    Attributes:
        names: Names of the columns.
        means: Means over all rows, shape (C,).
        replicates: Means over each resample, shape (B, C).
        units: How many rows, or groups of rows, were resampled.

    Example:
        >>> found = resample({"a": [1.0, 2.0, 3.0, 4.0], "b": [2.0, 4.0, 6.0, 8.0]})
        >>> found.interval(lambda mean: mean["a"] / mean["b"])
        Interval(value=0.5, low=0.5, high=0.5, confidence=0.95)
    """

    names: tuple[str, ...]
    means: NDArray[np.float64]
    replicates: NDArray[np.float64]
    units: int

    def interval(self, statistic: str | Callable[[Means], NDArray[np.float64]], confidence: float = 0.95) -> Interval:
        """Interval of a column's mean, or of a function of the means.

        Percentiles of the replicates, widened for small samples so that a mean gets the width of Student's interval (Hesterberg,
        2015, the expanded percentile interval), and never without the value itself. Resamples without a value (a share of no rows)
        are left out.

        Args:
            statistic: Name of a column, or a function of the means by name, which must work on arrays of any length.
            confidence: Between 0 and 1.

        Returns:
            The interval; all NaN where the value is.
        """
        value = float(self._of(statistic, self.means[None, :])[0])
        found = self._of(statistic, self.replicates)
        found = found[np.isfinite(found)]
        if not np.isfinite(value) or not len(found):
            return Interval(value, value, value, confidence)
        tail = self.tail(confidence)
        low, high = np.quantile(found, [tail, 1 - tail])
        return Interval(value, min(float(low), value), max(float(high), value), confidence)

    def tail(self, confidence: float) -> float:
        """Quantile of the replicates at which a two-sided interval begins, already widened for few rows or groups."""
        check_confidence(confidence)
        if self.units < 2:
            return 0.0
        width = np.sqrt(self.units / (self.units - 1)) * t.ppf((1 + confidence) / 2, self.units - 1)
        return float(norm.sf(width))

    def _of(self, statistic: str | Callable[[Means], NDArray[np.float64]], table: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(statistic, str):
            return table[:, self.names.index(statistic)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(statistic(dict(zip(self.names, table.T, strict=True))), dtype=np.float64)


def resample(columns: Mapping[str, Any], groups: Any = None, resamples: int = 2000, seed: int = 0) -> Replicates:
    """Draw the rows with replacement many times and take the means of the columns.

    Args:
        columns: Values per row, each of shape (n,), by name.
        groups: Group of each row, shape (n,), or none. Whole groups are drawn then, since rows of one group resemble each other; a
            table with a single group is resampled by rows.
        resamples: Number of resamples, B.
        seed: Seed of the draws.

    Returns:
        The replicates.

    Example:
        >>> resample({"cost": [0.0, 1.0]}, resamples=500).replicates.shape
        (500, 1)
    """
    table = _table(columns)
    if resamples < 1:
        raise ArgumentError(f"resamples must be at least 1, got {resamples}; 2000 is a usual value.")
    equal = np.ptp(table, axis=0) == 0
    sums, sizes = _by_group(table, groups)
    drawn = np.vstack([(counts @ sums) / (counts @ sizes)[:, None] for counts in _counts(len(sums), resamples, seed)])
    # a column of equal values has its value as every mean, without rounding noise
    means = np.where(equal, table[0], table.mean(axis=0))
    return Replicates(tuple(columns), means, np.where(equal, table[0], drawn), len(sums))


def group_codes(groups: Any, rows: int) -> NDArray[np.intp]:
    """Number each group in the order of its first row.

    Args:
        groups: Group of each row, shape (n,), of anything that can be a key.
        rows: Number of rows, n.

    Returns:
        Shape (n,), from 0 on.

    Example:
        >>> group_codes(["law", "art", "law"], rows=3)
        array([0, 1, 0])
    """
    keys: list[Hashable] = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(keys) != rows:
        raise ShapeError(f"groups must be ({rows},), one per row, got {len(keys)}.")
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.intp)


def _table(columns: Mapping[str, Any]) -> NDArray[np.float64]:
    arrays = [np.asarray(values, dtype=np.float64) for values in columns.values()]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or len(arrays[0].shape) != 1 or not len(arrays[0]):
        raise ShapeError(f"columns must be (n,) each, of one length above 0, got shapes {sorted(shapes)}.")
    table = np.stack(arrays, axis=1)
    if not np.isfinite(table).all():
        raise ArgumentError("columns must be finite, got NaN or infinity; for a share of some rows resample its two counts.")
    return table


def _by_group(table: NDArray[np.float64], groups: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of the columns and number of rows, per group or per row."""
    if groups is not None:
        codes = group_codes(groups, len(table))
        count = int(codes.max()) + 1
        if count > 1:
            sums = np.stack([np.bincount(codes, column, minlength=count) for column in table.T], axis=1)
            return sums.astype(np.float64), np.bincount(codes, minlength=count).astype(np.float64)
    return table, np.ones(len(table))


def _counts(units: int, resamples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """How often each unit is drawn in each resample, in blocks of shape (b, units)."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // units)
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = rng.integers(0, units, size=(size, units))
        drawn += np.arange(size)[:, None] * units
        yield np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units).astype(np.float64)
