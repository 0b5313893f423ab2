"""Rows of any feature matrix as small dense batches on a common scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True)
class StandardizedBatches:
    """A feature matrix that yields batches with centered and scaled columns.

    Attributes:
        features: Shape (n, d), dense or sparse.
        center: Subtracted from each row, shape (d,).
        spread: Divides each centered row, shape (d,).
    """

    features: Any
    center: NDArray[np.float64]
    spread: NDArray[np.float64]

    def take(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the rows with these indices, dense, centered and scaled, shape (batch, d)."""
        batch = self.features[rows]
        dense = batch.toarray() if sparse.issparse(batch) else batch
        return ((dense - self.center) / self.spread).astype(np.float32)

    def for_raw_rows(
        self, weights: NDArray[np.float64], bias: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Convert a first layer for the rows of :meth:`take` to one for unscaled rows.

        Returns:
            Weights (d, h) and bias (h,).
        """
        raw = weights / self.spread[:, None]
        return raw, bias - self.center @ raw


def batches_of(X: Any) -> StandardizedBatches:
    """Scale dense columns to mean 0 and variance 1; leave constant columns as they are.

    Sparse columns share one factor and are not centered, so zeros stay zeros.

    Args:
        X: Shape (n, d), dense or sparse.
    """
    columns = X.shape[1]
    if sparse.issparse(X):
        spread = float(np.sqrt(X.multiply(X).sum() / max(1, X.shape[0] * columns))) or 1.0
        return StandardizedBatches(X, np.zeros(columns), np.full(columns, spread))
    center = X.mean(axis=0, dtype=np.float64)
    return StandardizedBatches(X, center, positive_spread(X.std(axis=0, dtype=np.float64), center))


def positive_spread(
    spread: NDArray[np.float64], center: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the divisor of each column.

    The divisor is the standard deviation, or 1 if the column is constant up to rounding.

    Args:
        spread: Standard deviation of each column, shape (d,).
        center: Mean of each column, shape (d,).
    """
    varies = spread > 1e-6 * np.abs(center)
    return np.where(varies, np.where(spread > 0, spread, 1.0), 1.0)
