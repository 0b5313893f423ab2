"""How low a mean may be that has been seen on few rows, even where no row has shown a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.checks import check_confidence
from mildroute.evaluation.replicates import group_codes

__all__ = ["lowest_mean"]

_DRAWS = 4000
_BLOCK = 2**21
"""Random numbers drawn at once."""


def lowest_mean(values: Any, worst: float, groups: Any = None, *, confidence: float = 0.95, seed: int = 0) -> float:
    """Lower end of a two-sided interval of a mean whose values are never below the worst one.

    Resampling shows no loss where no row has one. Here one more row, of the worst value, is added, and all rows get random weights of
    sum 1 (Gaffke, 2005): of losses that are 0 or 1 this gives Clopper and Pearson's exact limit, and with none in n rows the rule of three.

    Args:
        values: Values per row, shape (n,).
        worst: The lowest value that a row can have.
        groups: Group of each row, shape (n,), or none; whole groups get a weight then, and the added group has their mean size.
        confidence: Of the two-sided interval.
        seed: Seed of the weights.

    Returns:
        The lower end.

    Example:
        >>> round(lowest_mean(np.zeros(100), worst=-1.0), 2)  # 1 - 0.025 ** (1 / 100) is .036
        -0.04
    """
    check_confidence(confidence)
    rows = np.asarray(values, dtype=np.float64)
    sums, sizes, times = _units(rows, groups)
    sums, sizes = np.append(sums, worst * sizes @ times / times.sum()), np.append(sizes, sizes @ times / times.sum())
    shapes = np.append(times, 1.0)
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // len(shapes))
    means = []
    for start in range(0, _DRAWS, block):
        weights = rng.standard_gamma(shapes, size=(min(block, _DRAWS - start), len(shapes)))
        means.append(weights @ sums / (weights @ sizes))
    return float(np.quantile(np.concatenate(means), (1 - confidence) / 2))


def _units(rows: NDArray[np.float64], groups: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Sum, number of rows, and how often they occur, of each group or of each different value."""
    if groups is not None:
        codes = group_codes(groups, len(rows))
        if codes.max() > 0:
            sums, sizes = (np.asarray(np.bincount(codes, each), dtype=np.float64) for each in (rows, np.ones(len(rows))))
            return sums, sizes, np.ones(len(sums))
    values, times = np.unique(rows, return_counts=True)
    return values, np.ones(len(values)), times.astype(np.float64)
