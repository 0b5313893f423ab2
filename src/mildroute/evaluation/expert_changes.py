"""Changes of an expert: its observed scores, or logarithms of dollars, minus the expected ones.

The outcome model may be wrong by a constant, since the router sends an expert what it is good at.
Residuals are therefore compared with earlier residuals and not with 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Change", "find_change"]

# Number of standard deviations by which the means before and after a change must differ, at the
# most significant split. Of 1,000 simulated months of 30,000 requests and three experts, each with
# scores and dollars, checked every 100 requests, 0.7% had a false alarm.
THRESHOLD = 5.0
_FEWEST_ROWS = 40
# Number of rows between two splits that are tried.
_STEP = 5


@dataclass(frozen=True)
class Change:
    """A change of the mean of a series.

    Attributes:
        row: Estimated first row after the change.
        before: Mean before the change.
        after: Mean after the change.
        deviations: Number of standard errors by which the means differ.

    Example:
        >>> Change(300, 0.0, -0.2, 6.1).size
        -0.2
    """

    row: int
    before: float
    after: float
    deviations: float

    @property
    def size(self) -> float:
        """Return the mean after minus the mean before."""
        return self.after - self.before


def find_change(residuals: Any, *, threshold: float = THRESHOLD) -> Change | None:
    """Find the most significant change of a series, or `None`.

    The statistic is the generalized likelihood ratio over all splits that leave some rows on both
    sides.

    Args:
        residuals: Observed minus expected, in chronological order, shape (n,).
        threshold: Number of standard errors by which the means must differ. The default keeps the
            probability of a false alarm in a month below 1%.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> residuals = rng.normal(size=800) * 0.4
        >>> residuals[600:] -= 0.3
        >>> change = find_change(residuals)
        >>> change.row, round(change.size, 1), find_change(residuals[:600])
        (590, -0.3, None)
    """
    values = np.asarray(residuals, dtype=np.float64)
    rows = len(values)
    splits = np.arange(_FEWEST_ROWS, rows - _FEWEST_ROWS + 1, _STEP)
    if not len(splits):
        return None
    total, squares = np.cumsum(values), np.cumsum(values**2)
    later = rows - splits
    before, after = total[splits - 1] / splits, (total[-1] - total[splits - 1]) / later
    own = (
        squares[splits - 1] / splits - before**2,
        (squares[-1] - squares[splits - 1]) / later - (after**2),
    )
    pooled = (splits * own[0] + later * own[1]) / rows
    # Errors of a good expert are rare: a few more than usual among 40 rows are many deviations off
    # by the variance of all rows, but few by the variance of their own.
    variance = np.maximum(pooled / splits + pooled / later, own[0] / splits + own[1] / later)
    error = np.sqrt(np.maximum(variance, 0.0))
    size = after - before
    # A series without any spread has changed at the slightest difference.
    ratio = np.abs(size) / np.maximum(error, 1e-12)
    best = int(ratio.argmax())
    if ratio[best] < threshold:
        return None
    return Change(int(splits[best]), float(before[best]), float(after[best]), float(ratio[best]))
