"""The upper convex hull of points in the plane of cost and score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

__all__ = ["convex_hull_indices"]


def convex_hull_indices(
    dollars: Sequence[float] | NDArray[Any], scores: Sequence[float] | NDArray[Any]
) -> list[int]:
    """Return indices of the points on the upper convex hull, by ascending dollars.

    Among equal points, the first is returned.
    """
    # Use plain floats: a loop over a few points is several times faster without NumPy's scalars.
    x, y = [float(value) for value in dollars], [float(value) for value in scores]
    hull: list[int] = []
    for index in sorted(range(len(x)), key=lambda position: (x[position], -y[position])):
        if hull and y[index] <= y[hull[-1]]:
            continue
        while len(hull) > 1 and _is_below(hull[-2], hull[-1], index, x, y):
            hull.pop()
        hull.append(index)
    return hull


def _is_below(left: int, middle: int, right: int, x: Sequence[float], y: Sequence[float]) -> bool:
    """Return whether the middle point lies on or below the line between its neighbors."""
    return (y[middle] - y[left]) * (x[right] - x[left]) <= (y[right] - y[left]) * (
        x[middle] - x[left]
    )
