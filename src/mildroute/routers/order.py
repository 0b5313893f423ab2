"""Order of the experts of a row in NumPy, with the paper's rule for ties: the highest index wins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["descending", "largest"]


def largest(values: NDArray[Any]) -> NDArray[np.intp]:
    """Column of the largest value of each row, the highest one of equals.

    Example:
        >>> largest(np.array([[1.0, 2.0, 2.0], [3.0, 0.0, 1.0]]))
        array([2, 0])
    """
    return values.shape[1] - 1 - np.argmax(values[:, ::-1], axis=1)


def descending(values: NDArray[Any]) -> NDArray[np.intp]:
    """Columns of each row from the largest value to the smallest, the highest one of equals first.

    Example:
        >>> descending(np.array([[1.0, 2.0, 2.0]]))
        array([[2, 1, 0]])
    """
    return values.shape[1] - 1 - np.argsort(-values[:, ::-1], axis=1, kind="stable")
