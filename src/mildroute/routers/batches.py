"""Rows of any feature matrix as small dense batches of a common scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Batches", "batches_of", "positive_spread"]


@dataclass(frozen=True)
class Batches:
    """A feature matrix from which batches are taken, each column centred and scaled on the way.

    Attributes:
        features: Shape (n, d), dense or sparse.
        centre: What is subtracted, shape (d,).
        spread: What is divided by, shape (d,).

    Example:
        >>> Batches(np.array([[3.0, 4.0]]), np.ones(2), np.full(2, 2.0)).take(np.array([0]))
        array([[1. , 1.5]], dtype=float32)
    """

    features: Any
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]

    def take(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Rows with these indices, dense, centred and scaled, shape (batch, d)."""
        taken = self.features[rows]
        dense = taken.toarray() if sparse.issparse(taken) else taken
        return ((dense - self.centre) / self.spread).astype(np.float32)

    def for_raw_rows(self, weights: NDArray[np.float64], bias: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights (d, h) and bias (h,) of a first layer for rows as they come, from those for rows as :meth:`take` gives them."""
        raw = weights / self.spread[:, None]
        return raw, bias - self.centre @ raw


def batches_of(X: Any) -> Batches:
    """Dense columns get mean 0 and variance 1, constant ones are left as they are; sparse ones are scaled together, so zeros stay.

    Args:
        X: Shape (n, d), dense or sparse.

    Example:
        >>> batches_of(np.array([[0.0, 7.0], [2.0, 7.0]])).take(np.array([1]))
        array([[1., 0.]], dtype=float32)
    """
    columns = X.shape[1]
    if sparse.issparse(X):
        spread = float(np.sqrt(X.multiply(X).sum() / max(1, X.shape[0] * columns))) or 1.0
        return Batches(X, np.zeros(columns), np.full(columns, spread))
    centre = X.mean(axis=0, dtype=np.float64)
    return Batches(X, centre, positive_spread(X.std(axis=0, dtype=np.float64), centre))


def positive_spread(spread: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """What to divide columns by: their deviation, or 1 for those that are constant but for rounding.

    Args:
        spread: Standard deviation of each column, shape (d,).
        centre: Mean of each column, shape (d,).

    Returns:
        Shape (d,), positive.

    Example:
        >>> positive_spread(np.array([2.0, 0.0, 1e-9]), np.array([0.0, 0.0, 5.0]))
        array([2., 1., 1.])
    """
    varies = spread > 1e-6 * np.abs(centre)
    return np.where(varies, np.where(spread > 0, spread, 1.0), 1.0)
