"""Points of money and quality, what can be had by mixing them, and the area below (AIQ)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError
from mildroute.evaluation.replicates import Interval
from mildroute.routers.operating import hull_of

__all__ = ["Point", "aiq", "convex_hull", "hull_of", "interpolate"]


@dataclass(frozen=True)
class Point:
    """What one way of choosing experts costs and scores.

    Attributes:
        name: Who chooses: an expert's name, a router's, a price weight.
        dollars_per_1000: Bill of 1,000 queries.
        score: Mean score.
        dollars_interval: Interval of the bill, where one was computed.
        score_interval: Interval of the score, where one was computed.
        price_weight: The weight at which a router was asked, for points of a frontier.

    Example:
        >>> Point("small", 0.5, 0.7).score
        0.7
    """

    name: str
    dollars_per_1000: float
    score: float
    dollars_interval: Interval | None = None
    score_interval: Interval | None = None
    price_weight: float | None = None


def convex_hull(points: Iterable[Point]) -> tuple[Point, ...]:
    """The upper left edge of the points: no mix of others is cheaper at the same score.

    Args:
        points: Any points, at least one.

    Returns:
        Points by ascending dollars, from the cheapest to the one of highest score; scores rise, ever more slowly.

    Example:
        >>> points = [Point("a", 1, 0.5), Point("b", 2, 0.6), Point("c", 3, 0.9), Point("d", 4, 0.8)]
        >>> [point.name for point in convex_hull(points)]
        ['a', 'c']
    """
    candidates = list(points)
    if not candidates:
        raise ArgumentError("a hull needs at least one point, got none.")
    kept = hull_of([point.dollars_per_1000 for point in candidates], [point.score for point in candidates])
    return tuple(candidates[index] for index in kept)


def interpolate(hull: Sequence[Point], dollars_per_1000: Any) -> NDArray[np.float64]:
    """Score that a mix of neighbouring points of a hull has at a given bill.

    Args:
        hull: Points by ascending dollars, see :func:`convex_hull`.
        dollars_per_1000: One bill or several, any shape.

    Returns:
        Scores of the same shape; NaN below the cheapest point, the best score above the dearest.

    Example:
        >>> interpolate([Point("a", 1, 0.5), Point("c", 3, 0.9)], [0.5, 1.5, 9]).round(3)
        array([nan, 0.6, 0.9])
    """
    x, y = [point.dollars_per_1000 for point in hull], [point.score for point in hull]
    return np.asarray(np.interp(dollars_per_1000, x, y, left=np.nan))


def aiq(
    points: Iterable[Point],
    *,
    lowest: float | None = None,
    highest: float | None = None,
    normalise: Literal["range", "maximum"] = "range",
) -> float:
    """Average improvement in quality (RouterBench, Hu et al., 2024): mean height of the hull over a range of bills.

    Figures compare only over the same range: pass the same ``lowest`` and ``highest`` for all routers of a report.

    Args:
        points: Points of one router.
        lowest: Where the range begins; by default at the cheapest point. It must not be below it, where no mix exists.
        highest: Where the range ends; by default at the dearest point. Beyond the hull the best score goes on.
        normalise: ``"range"`` divides the area by the length of the range, as the paper defines it; ``"maximum"`` divides it by
            ``highest``, as RouterBench's program does, which counts everything below ``lowest`` as 0.

    Returns:
        A score. Of a single bill it is the score there.

    Example:
        >>> points = [Point("a", 1, 0.5), Point("c", 3, 0.9)]
        >>> round(aiq(points), 6), round(aiq(points, normalise="maximum"), 6)
        (0.7, 0.466667)
    """
    every = list(points)
    hull = convex_hull(every)
    start = hull[0].dollars_per_1000 if lowest is None else lowest
    end = max(point.dollars_per_1000 for point in every) if highest is None else highest
    if start < hull[0].dollars_per_1000 or end < start:
        raise ArgumentError(
            f"the range must begin at {hull[0].dollars_per_1000:g} dollars or above and not end before it begins, got {start:g} to {end:g}."
        )
    if normalise not in ("range", "maximum"):
        raise ArgumentError(f"normalise must be 'range' or 'maximum', got {normalise!r}.")
    inner = [point.dollars_per_1000 for point in hull if start < point.dollars_per_1000 < end]
    x = np.array([start, *inner, end])
    y = interpolate(hull, x)
    area = float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())
    length = end if normalise == "maximum" else end - start
    return area / length if end > start else float(y[0])
