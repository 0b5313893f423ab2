"""Bootstrap replicates of the means of columns, and intervals of functions of those means."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from mildroute.evaluation.arrays import check_confidence
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = ["BootstrapSamples", "Interval", "Means", "bootstrap_means", "group_codes"]

# Number of draws at once: few enough to stay in the cache, many enough to leave the loop to NumPy.
_BLOCK = 2**21

# Means by column name: of all rows, shape (1,), or of each resample, shape (B,).
Means = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Interval:
    """A figure with the interval that contains it with the stated confidence.

    Example:
        >>> str(Interval(0.83, 0.81, 0.85, 0.95))
        '0.83 [0.81, 0.85]'
    """

    value: float
    low: float
    high: float
    confidence: float = 0.95

    def __str__(self) -> str:
        """Return value and limits with four significant digits."""
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def excludes(self, number: float) -> bool:
        """Return whether a number lies outside the interval."""
        return number < self.low or number > self.high

    def times(self, factor: float) -> Interval:
        """Return the interval in another unit."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Interval(self.value * factor, low, high, self.confidence)


@dataclass(frozen=True)
class BootstrapSamples:
    """The means of columns over all rows and over each bootstrap resample.

    Attributes:
        names: Names of the columns.
        means: Means over all rows, shape (C,).
        replicates: Means over each resample, shape (B, C).
        units: Number of rows, or groups of rows, that were resampled.

    Example:
        >>> samples = bootstrap_means({"a": [1.0, 2.0, 3.0, 4.0], "b": [2.0, 4.0, 6.0, 8.0]})
        >>> samples.interval(lambda mean: mean["a"] / mean["b"])
        Interval(value=0.5, low=0.5, high=0.5, confidence=0.95)
    """

    names: tuple[str, ...]
    means: NDArray[np.float64]
    replicates: NDArray[np.float64]
    units: int

    def interval(
        self, statistic: str | Callable[[Means], NDArray[np.float64]], confidence: float = 0.95
    ) -> Interval:
        """Return the interval of a column's mean, or of a function of the means.

        It consists of percentiles of the replicates, widened for small samples so that a mean gets
        the width of Student's interval (Hesterberg, 2015, the expanded percentile interval), and
        always contains the value itself. Resamples without a value (a share of no rows) are left
        out.

        Args:
            statistic: Name of a column, or a function of the means by name, which must work on
                arrays of any length.
            confidence: Between 0 and 1.

        Returns:
            The interval; all NaN if the value is.
        """
        value = float(self._of(statistic, self.means[None, :])[0])
        replicates = self._of(statistic, self.replicates)
        replicates = replicates[np.isfinite(replicates)]
        if not np.isfinite(value) or not len(replicates):
            return Interval(value, value, value, confidence)
        tail = self.tail(confidence)
        low, high = np.quantile(replicates, [tail, 1 - tail])
        return Interval(value, min(float(low), value), max(float(high), value), confidence)

    def tail(self, confidence: float) -> float:
        """Return the quantile of the replicates at which a two-sided interval begins.

        The quantile is already widened for few rows or groups.
        """
        check_confidence(confidence)
        if self.units < 2:
            return 0.0
        width = np.sqrt(self.units / (self.units - 1)) * t.ppf((1 + confidence) / 2, self.units - 1)
        return float(norm.sf(width))

    def _of(
        self, statistic: str | Callable[[Means], NDArray[np.float64]], table: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        if isinstance(statistic, str):
            return table[:, self.names.index(statistic)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(
                statistic(dict(zip(self.names, table.T, strict=True))), dtype=np.float64
            )


def bootstrap_means(
    columns: Mapping[str, Any], groups: Any = None, resamples: int = 2000, seed: int = 0
) -> BootstrapSamples:
    """Draw the rows with replacement many times and compute the means of the columns.

    Args:
        columns: Values per row, each of shape (n,), by name.
        groups: Group of each row, shape (n,), or `None`. With groups, whole groups are drawn,
            because rows of one group resemble each other; a table with a single group is resampled
            by rows.
        resamples: Number of resamples, B.
        seed: Seed of the draws.

    Returns:
        The replicates.

    Example:
        >>> bootstrap_means({"cost": [0.0, 1.0]}, resamples=500).replicates.shape
        (500, 1)
    """
    table = _column_table(columns)
    if resamples < 1:
        raise ArgumentError(
            f"resamples must be at least 1, got {resamples}; 2000 is a usual value."
        )
    equal = np.ptp(table, axis=0) == 0
    sums, sizes = _by_group(table, groups)
    drawn = np.vstack(
        [
            (counts @ sums) / (counts @ sizes)[:, None]
            for counts in _draw_counts(len(sums), resamples, seed)
        ]
    )
    # a constant column has its value as every mean, without rounding noise
    means = np.where(equal, table[0], table.mean(axis=0))
    return BootstrapSamples(tuple(columns), means, np.where(equal, table[0], drawn), len(sums))


def group_codes(groups: Any, rows: int) -> NDArray[np.intp]:
    """Return numbers for groups in the order of each one's first row.

    Args:
        groups: Group of each row, shape (n,), of any hashable type.
        rows: Number of rows, n.

    Returns:
        Numbers from 0, shape (n,).
    """
    keys: list[Hashable] = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(keys) != rows:
        raise ShapeError(f"groups must be ({rows},), one per row, got {len(keys)}.")
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.intp)


def _column_table(columns: Mapping[str, Any]) -> NDArray[np.float64]:
    arrays = [np.asarray(values, dtype=np.float64) for values in columns.values()]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or len(arrays[0].shape) != 1 or not len(arrays[0]):
        raise ShapeError(
            f"columns must be (n,) each, of one length above 0, got shapes {sorted(shapes)}."
        )
    table = np.stack(arrays, axis=1)
    if not np.isfinite(table).all():
        raise ArgumentError(
            "columns must be finite, got NaN or infinity; for a share of some rows resample its two"
            " counts."
        )
    return table


def _by_group(
    table: NDArray[np.float64], groups: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sums of the columns and the number of rows, per group or per row."""
    if groups is not None:
        codes = group_codes(groups, len(table))
        count = int(codes.max()) + 1
        if count > 1:
            sums = np.stack(
                [np.bincount(codes, column, minlength=count) for column in table.T], axis=1
            )
            return sums.astype(np.float64), np.bincount(codes, minlength=count).astype(np.float64)
    return table, np.ones(len(table))


def _draw_counts(units: int, resamples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield how often each unit is drawn in each resample, in blocks of shape (b, units)."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // units)
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = rng.integers(0, units, size=(size, units))
        drawn += np.arange(size)[:, None] * units
        yield (
            np.bincount(drawn.ravel(), minlength=size * units)
            .reshape(size, units)
            .astype(np.float64)
        )
