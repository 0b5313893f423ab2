"""How many threads a fit may use: many small products are far slower on several threads than on one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from threadpoolctl import threadpool_limits

__all__ = ["fitting_threads"]

_WORTH_SHARING = 200_000_000
"""Multiplications of one product from which sharing it among threads pays."""


def fitting_threads(X: Any, experts: int) -> AbstractContextManager[object]:
    """A region with one thread for linear algebra, unless the products of X, shape (n, d), with weights (d, p) are large.

    Example:
        >>> import numpy as np
        >>> with fitting_threads(np.ones((10, 3)), 2):
        ...     np.ones((2, 2)) @ np.ones(2)
        array([2., 2.])
    """
    rows, columns = X.shape
    return nullcontext() if rows * columns * experts > _WORTH_SHARING else threadpool_limits(limits=1)
