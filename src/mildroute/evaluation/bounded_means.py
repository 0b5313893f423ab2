"""Lower limits of a mean of few rows, valid even if no row has shown a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import check_confidence
from mildroute.evaluation.resampling import group_codes

__all__ = ["bounded_mean_lower"]

_DRAWS = 4000
# Number of random weights at once: few enough to stay in the cache.
_BLOCK = 2**21


def bounded_mean_lower(
    values: Any, worst: float, groups: Any = None, *, confidence: float = 0.95, seed: int = 0
) -> float:
    """Return the lower end of a two-sided interval of a mean with values bounded from below.

    Resampling shows no loss if no row has one. This method adds one row with the worst value and
    gives all rows random weights that sum to 1 (Gaffke, 2005). For losses of 0 or 1 this gives
    Clopper and Pearson's exact limit, and without any loss in n rows the rule of three.

    Args:
        values: Values per row, shape (n,).
        worst: The lowest value that a row can have.
        groups: Group of each row, shape (n,), or `None`; with groups, each whole group gets a
            weight, and the added group has their mean size.
        confidence: Confidence of the two-sided interval.
        seed: Seed of the weights.
    """
    check_confidence(confidence)
    rows = np.asarray(values, dtype=np.float64)
    sums, sizes, times = _units(rows, groups)
    sums, sizes = (
        np.append(sums, worst * sizes @ times / times.sum()),
        np.append(sizes, sizes @ times / times.sum()),
    )
    shapes = np.append(times, 1.0)
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // len(shapes))
    means = []
    for start in range(0, _DRAWS, block):
        weights = rng.standard_gamma(shapes, size=(min(block, _DRAWS - start), len(shapes)))
        means.append(weights @ sums / (weights @ sizes))
    return float(np.quantile(np.concatenate(means), (1 - confidence) / 2))


def _units(
    rows: NDArray[np.float64], groups: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return sum, number of rows and multiplicity of each group or of each distinct value."""
    if groups is not None:
        codes = group_codes(groups, len(rows))
        if codes.max() > 0:
            sums, sizes = (
                np.asarray(np.bincount(codes, each), dtype=np.float64)
                for each in (rows, np.ones(len(rows)))
            )
            return sums, sizes, np.ones(len(sums))
    values, times = np.unique(rows, return_counts=True)
    return values, np.ones(len(values)), times.astype(np.float64)
