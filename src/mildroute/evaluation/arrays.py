"""Requirements on the arrays that the public functions of this package take, checked on entry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, ShapeError

__all__ = ["Choice", "Matrix", "as_choice", "as_matrix", "check_confidence"]


# A two-dimensional array of numbers, one column per expert.
Matrix = NDArray[np.float64]

# Index of the chosen expert on each row.
Choice = NDArray[np.intp]


def as_matrix(values: Any, name: str = "costs", shape: tuple[int, ...] | None = None) -> Matrix:
    """Convert to finite numbers of shape (n, p), with at least one row and one expert.

    Args:
        values: Anything that NumPy reads as a matrix.
        name: Name of the matrix in messages.
        shape: The required shape, if another matrix has set it.

    Returns:
        Shape (n, p), float64.
    """
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ShapeError(
            f"{name} must be (n, p), one row per query and one column per expert, got shape"
            f" {matrix.shape}."
        )
    if shape is not None and matrix.shape != shape:
        raise ShapeError(
            f"{name} must be {shape} as the other matrices are, got shape {matrix.shape}; pass the"
            " same rows and experts."
        )
    bad = int((~np.isfinite(matrix)).sum())
    if bad:
        raise ArgumentError(
            f"{name} must be finite, got {bad} values that are not; drop those rows or impute them"
            " first."
        )
    return matrix


def as_choice(choice: Any, rows: int, experts: int) -> Choice:
    """Return expert indices of shape (n,), each from 0 to p - 1."""
    chosen = np.asarray(choice)
    if chosen.shape != (rows,):
        raise ShapeError(f"choice must be ({rows},), one expert per row, got shape {chosen.shape}.")
    if not np.issubdtype(chosen.dtype, np.integer):
        raise ArgumentError(
            f"choice must hold indices of experts, got {chosen.dtype}; take the index of each name"
            " first."
        )
    if rows and not (chosen.min() >= 0 and chosen.max() < experts):
        raise ArgumentError(
            f"choice must lie between 0 and {experts - 1}, got {chosen.min()} to {chosen.max()}."
        )
    return chosen.astype(np.intp, copy=False)


def check_confidence(confidence: float) -> None:
    """Reject a confidence that is not between 0 and 1."""
    if not 0 < confidence < 1:
        raise ArgumentError(
            f"confidence must lie between 0 and 1, got {confidence}; 0.95 is a usual value."
        )
