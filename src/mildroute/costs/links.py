"""Numberings of rows, and the components of rows that two numberings link."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["link", "number_by_first_row"]


def link(left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the connected components of two numberings: rows equal under either share a number.

    Example:
        >>> link(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]))
        array([0, 0, 0, 1])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes = int(left.max()) + int(right.max()) + 2
    edges = (np.ones(len(left), dtype=np.int8), (left, right + int(left.max()) + 1))
    number = connected_components(coo_array(edges, shape=(nodes, nodes)), directed=False)[1]
    return number_by_first_row(number[left].tolist())


def number_by_first_row(keys: Sequence[Hashable]) -> NDArray[np.intp]:
    """Return a number for each key, in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
