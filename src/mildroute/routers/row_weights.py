"""Rows of weight zero are no rows: what was learnt must not depend on them, nor on how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["positive_rows"]


def positive_rows(
    X: Any, costs: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64] | None]:
    """Drop the rows of weight zero.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        costs: Shape (n, p).
        sample_weight: Weight of each row, shape (n,), or none.

    Returns:
        The same three, of the rows with a positive weight.

    Example:
        >>> positive_rows(np.eye(2), np.eye(2), np.array([0.0, 3.0]))
        (array([[0., 1.]]), array([[0., 1.]]), array([3.]))
    """
    if sample_weight is None or bool((sample_weight > 0).all()):
        return X, costs, sample_weight
    kept = np.flatnonzero(sample_weight > 0)
    return X[kept], costs[kept], sample_weight[kept]
