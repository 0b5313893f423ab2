"""Points of cost and quality, their hull, mixes of them, and the area below (AIQ)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._format import names_of
from mildroute.evaluation.arrays import as_matrix
from mildroute.evaluation.metrics import dollars_per_1000, mean_score, oracle
from mildroute.evaluation.resampling import Interval
from mildroute.exceptions import ArgumentError
from mildroute.routers.frontier.hull import convex_hull_indices

__all__ = [
    "Point",
    "aiq",
    "convex_hull",
    "interpolate",
    "mix_shares",
    "oracle_point",
    "random_mixture",
    "single_points",
]


@dataclass(frozen=True)
class Point:
    """The cost and score of one way of choosing experts.

    Attributes:
        name: Name of the expert, router or price weight that chooses.
        dollars_per_1000: Bill of 1,000 queries.
        score: Mean score.
        dollars_interval: Interval of the bill, if computed.
        score_interval: Interval of the score, if computed.
        price_weight: Weight at which a router decided, for points of a frontier.

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
    """Return the upper left edge of the points: no mix of others is cheaper at the same score.

    Args:
        points: Any points, at least one.

    Returns:
        Points by ascending dollars, from the cheapest to the one with the highest score; scores
        rise with decreasing slope.

    Example:
        >>> points = [Point("a", 1, 0.5), Point("b", 2, 0.6),
        ...           Point("c", 3, 0.9), Point("d", 4, 0.8)]
        >>> [point.name for point in convex_hull(points)]
        ['a', 'c']
    """
    candidates = list(points)
    if not candidates:
        raise ArgumentError("a hull needs at least one point, got none.")
    vertices = convex_hull_indices(
        [point.dollars_per_1000 for point in candidates], [point.score for point in candidates]
    )
    return tuple(candidates[index] for index in vertices)


def interpolate(hull: Sequence[Point], dollars_per_1000: Any) -> NDArray[np.float64]:
    """Return the score of a mix of neighboring points of a hull at a given bill.

    Args:
        hull: Points by ascending dollars, see :func:`convex_hull`.
        dollars_per_1000: One bill or several, any shape.

    Returns:
        Scores of the same shape; NaN below the cheapest point, the best score above the most
        expensive.

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
    normalize: Literal["range", "maximum"] = "range",
) -> float:
    """Return the average improvement in quality (RouterBench, Hu et al., 2024).

    This is the mean height of the hull over a range of bills.

    Figures are comparable only over the same range: pass the same ``lowest`` and ``highest`` for
    all routers of a report.

    Args:
        points: Points of one router.
        lowest: Start of the range; defaults to the cheapest point. It must not be below that point,
            where no mix exists.
        highest: End of the range; defaults to the most expensive point. Beyond the hull the best
            score continues.
        normalize: ``"range"`` divides the area by the length of the range, as the paper defines it;
            ``"maximum"`` divides it by ``highest``, as RouterBench's code does, which counts
            everything below ``lowest`` as 0.

    Returns:
        A score. For a range of a single bill it is the score there.

    Example:
        >>> points = [Point("a", 1, 0.5), Point("c", 3, 0.9)]
        >>> round(aiq(points), 6), round(aiq(points, normalize="maximum"), 6)
        (0.7, 0.466667)
    """
    every = list(points)
    hull = convex_hull(every)
    start = hull[0].dollars_per_1000 if lowest is None else lowest
    end = max(point.dollars_per_1000 for point in every) if highest is None else highest
    if start < hull[0].dollars_per_1000 or end < start:
        raise ArgumentError(
            f"the range must begin at {hull[0].dollars_per_1000:g} dollars or above and not end"
            f" before it begins, got {start:g} to {end:g}."
        )
    if normalize not in ("range", "maximum"):
        raise ArgumentError(f"normalize must be 'range' or 'maximum', got {normalize!r}.")
    inner = [point.dollars_per_1000 for point in hull if start < point.dollars_per_1000 < end]
    x = np.array([start, *inner, end])
    y = interpolate(hull, x)
    area = float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())
    length = end if normalize == "maximum" else end - start
    return area / length if end > start else float(y[0])


def single_points(
    scores: Any, dollars: Any, experts: Sequence[str] | None = None
) -> tuple[Point, ...]:
    """Return one point per expert: its cost and score if it answers everything.

    Args:
        scores: Score of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p).
        experts: Names of the experts.

    Returns:
        p points.

    Example:
        >>> points = single_points([[1, 0]], [[0.1, 0.2]], ["large", "small"])
        >>> [(point.name, point.score) for point in points]
        [('large', 1.0), ('small', 0.0)]
    """
    quality = as_matrix(scores, "scores").mean(axis=0)
    money = 1000 * as_matrix(dollars, "dollars").mean(axis=0)
    return tuple(
        Point(name, float(money[k]), float(quality[k]))
        for k, name in enumerate(names_of(experts, len(quality)))
    )


def oracle_point(scores: Any, dollars: Any) -> Point:
    """Choose the expert with the highest score on each row, the cheapest of equals.

    This is the highest possible score at the lowest possible cost.

    Example:
        >>> oracle_point([[1, 1], [0, 1]], [[0.001, 0.003], [0.001, 0.003]])
        Point(name='oracle', dollars_per_1000=2.0, score=1.0,
              dollars_interval=None, score_interval=None, price_weight=None)
    """
    quality, money = as_matrix(scores, "scores"), as_matrix(dollars, "dollars")
    choice = oracle(-quality, money)
    return Point("oracle", dollars_per_1000(money, choice), mean_score(quality, choice))


def mix_shares(singles: Sequence[Point], dollars: float) -> NDArray[np.float64]:
    """Return the shares of the experts in the best random mix with a given bill.

    Args:
        singles: One point per expert, p of them.
        dollars: Bill of 1,000 queries; below the cheapest expert's no mix exists, above the best
            expert's the mix is that expert alone.

    Returns:
        Shape (p,); at most two experts have a share.
    """
    x = [point.dollars_per_1000 for point in singles]
    vertices = convex_hull_indices(x, [point.score for point in singles])
    if dollars < x[vertices[0]]:
        raise ArgumentError(
            f"no mix costs less than the cheapest expert, {x[vertices[0]]:g} dollars per 1,000"
            f" queries, got {dollars:g}."
        )
    shares = np.zeros(len(x))
    position = np.interp(dollars, [x[k] for k in vertices], np.arange(len(vertices)))
    low = int(position)
    shares[vertices[low]] = 1 - (position - low)
    if position > low:
        shares[vertices[low + 1]] = position - low
    return shares


def random_mixture(singles: Sequence[Point], dollars: float) -> Point:
    """Return the best mix of single experts with a given bill, drawn regardless of the query.

    Example:
        >>> random_mixture([Point("a", 1, 0.5), Point("c", 3, 0.9)], 1.5).score
        0.6
    """
    shares = mix_shares(singles, dollars)
    bill, score = (
        float(shares @ values)
        for values in zip(*((s.dollars_per_1000, s.score) for s in singles), strict=True)
    )
    return Point("random mix", bill, score)
