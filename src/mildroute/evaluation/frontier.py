"""The cost and quality of a router along its price weights, compared with single experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute._format import names_of
from mildroute.evaluation.arrays import Choice, Matrix, as_choice, as_matrix
from mildroute.evaluation.cost_quality import (
    Point,
    aiq,
    convex_hull,
    interpolate,
    oracle_point,
    random_mixture,
)
from mildroute.evaluation.resampling import BootstrapSamples, bootstrap_means
from mildroute.exceptions import ShapeError
from mildroute.routers.frontier.hull import convex_hull_indices

__all__ = [
    "Band",
    "Frontier",
    "measure_frontier",
]

# Number of bills at which the band is drawn.
_GRID = 50


@dataclass(frozen=True)
class Band:
    """The score of the hull along bills, each with its interval."""

    dollars_per_1000: tuple[float, ...]
    score: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    confidence: float


@dataclass(frozen=True)
class Frontier:
    """The cost and score of a router along its price weights on held-out rows.

    Attributes:
        points: One point per price weight, with intervals, in the given order.
        singles: One point per expert, with intervals.
        oracle: The best expert of each row by score, the cheapest of equals.
        band: Hull of the points, or the path in operation, with its interval.
        path: The path in operation, if it was named: points and single experts by ascending
            dollars; a random draw decides between neighbors.

    Example:
        >>> scores = np.array([[0.0, 1.0], [1.0, 1.0]])
        >>> dollars = np.array([[0.001, 0.01], [0.001, 0.01]])
        >>> frontier = measure_frontier([[1, 1], [1, 0], [0, 0]], scores, dollars)
        >>> [(round(point.dollars_per_1000, 3), point.score) for point in frontier.hull]
        [(1.0, 0.5), (5.5, 1.0)]
        >>> round(frontier.random_mixture(5.5).score, 3)
        0.75
    """

    points: tuple[Point, ...]
    singles: tuple[Point, ...]
    oracle: Point
    band: Band
    path: tuple[Point, ...] = ()

    @property
    def hull(self) -> tuple[Point, ...]:
        """Return the points that no mix of others beats.

        They are chosen on the rows on which they are measured, so they are slightly optimistic.
        """
        return convex_hull(self.points)

    def random_mixture(self, dollars: float) -> Point:
        """Return the best mix of single experts for the same bill.

        The experts are drawn regardless of the query.
        """
        return random_mixture(self.singles, dollars)

    def aiq(self) -> tuple[float, float]:
        """Return the AIQ of the router and of random mixes.

        Both cover the range of bills that the router and the single experts share.
        """
        bills = [point.dollars_per_1000 for point in self.singles]
        lowest = max(self.hull[0].dollars_per_1000, min(bills))
        highest = max(max(bills), lowest)
        ours, mixes = (
            aiq(points, lowest=lowest, highest=highest) for points in (self.points, self.singles)
        )
        return ours, mixes


def measure_frontier(
    choices: Any,
    scores: Any,
    dollars: Any,
    groups: Any = None,
    *,
    price_weights: Sequence[float] | None = None,
    experts: Sequence[str] | None = None,
    path: Sequence[int] | None = None,
    looks: int = 0,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Frontier:
    """Measure the choices of a router at many price weights on rows it was not trained on.

    Args:
        choices: Expert chosen on each row at each price weight, shape (W, n).
        scores: Score of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p).
        groups: Group of each row, shape (n,), or `None`; whole groups are resampled.
        price_weights: The weights, shape (W,), to store with the points.
        experts: Names of the experts.
        path: The path in operation, chosen on other rows: indices of rows of ``choices`` or, from W
            on, of single experts; or `None`.
        looks: Number of experts at the end that are looks of a cascade: they may be on the path,
            but are not single experts.
        resamples: Number of bootstrap resamples.
        confidence: Confidence of each interval and of the band at each bill.
        seed: Seed of the draws.

    Returns:
        The frontier.

    Example:
        >>> scores, dollars = [[1, 0], [0, 1]], [[0.001, 0.002]] * 2
        >>> (point,) = measure_frontier([[0, 1]], scores, dollars, price_weights=[10]).points
        >>> point.price_weight, round(point.dollars_per_1000, 3), point.score
        (10.0, 1.5, 1.0)
    """
    quality = as_matrix(scores, "scores")
    money = as_matrix(dollars, "dollars", (quality.shape[0], quality.shape[1]))
    chosen = _as_choices(choices, quality.shape)
    labels = _labels(price_weights, len(chosen))
    columns = _columns(chosen, quality, money)
    samples = bootstrap_means(columns, groups, resamples, seed)
    points = tuple(
        _point(samples, f"{index}", name, weight, confidence)
        for index, (name, weight) in enumerate(labels)
    )
    names = names_of(experts, quality.shape[1])
    columns_alone = tuple(
        _point(samples, f"single{index}", name, None, confidence)
        for index, name in enumerate(names)
    )
    singles = columns_alone[: len(names) - looks]
    if path is None:
        return Frontier(
            points, singles, oracle_point(quality, money), _band(samples, points, confidence)
        )
    every = [
        *((point, f"{index}") for index, point in enumerate(points)),
        *((s, f"single{k}") for k, s in enumerate(columns_alone)),
    ]
    along = sorted(
        (every[position] for position in path), key=lambda entry: entry[0].dollars_per_1000
    )
    taken, keys = tuple(point for point, _ in along), [key for _, key in along]
    return Frontier(
        points,
        singles,
        oracle_point(quality, money),
        _path_band(samples, taken, keys, confidence),
        taken,
    )


def _as_choices(choices: Any, shape: tuple[int, ...]) -> list[Choice]:
    chosen = np.asarray(choices)
    if chosen.ndim != 2 or not len(chosen):
        raise ShapeError(
            f"choices must be (W, n), one row per price weight, got shape {chosen.shape}."
        )
    return [as_choice(choice, shape[0], shape[1]) for choice in chosen]


def _labels(price_weights: Sequence[float] | None, count: int) -> list[tuple[str, float | None]]:
    if price_weights is None:
        return [(f"point {index}", None) for index in range(count)]
    if len(price_weights) != count:
        raise ShapeError(
            f"price_weights must be ({count},), one per row of choices, got {len(price_weights)}."
        )
    return [(f"price weight {weight:g}", float(weight)) for weight in price_weights]


def _columns(
    chosen: Sequence[Choice], scores: Matrix, dollars: Matrix
) -> dict[str, NDArray[np.float64]]:
    rows = np.arange(len(scores))
    columns = {}
    for index, choice in enumerate(chosen):
        columns[f"dollars {index}"], columns[f"score {index}"] = (
            1000 * dollars[rows, choice],
            scores[rows, choice],
        )
    for index in range(scores.shape[1]):
        columns[f"dollars single{index}"], columns[f"score single{index}"] = (
            1000 * dollars[:, index],
            scores[:, index],
        )
    return columns


def _point(
    samples: BootstrapSamples, key: str, name: str, price_weight: float | None, confidence: float
) -> Point:
    bill, score = (
        samples.interval(f"dollars {key}", confidence),
        samples.interval(f"score {key}", confidence),
    )
    return Point(name, bill.value, score.value, bill, score, price_weight)


def _band(samples: BootstrapSamples, points: Sequence[Point], confidence: float) -> Band:
    """Return the hull of the points, and quantiles of the same points' hulls in the resamples.

    The vertices are determined on all rows: choosing them again in each resample would only add
    noise.
    """
    vertices = convex_hull_indices(
        [point.dollars_per_1000 for point in points], [point.score for point in points]
    )
    hull = [points[index] for index in vertices]
    grid = np.linspace(
        hull[0].dollars_per_1000, hull[-1].dollars_per_1000, _GRID if len(hull) > 1 else 1
    )
    bills, scores = (
        [samples.names.index(f"{kind} {index}") for index in vertices]
        for kind in ("dollars", "score")
    )
    heights = np.empty((len(samples.replicates), len(grid)))
    for index, means in enumerate(samples.replicates):
        x, y = means[bills], means[scores]
        edge = convex_hull_indices(x, y)
        heights[index] = np.interp(grid, x[edge], y[edge])
    return _band_around(
        grid, interpolate(hull, grid), heights, samples.tail(confidence), confidence
    )


def _path_band(
    samples: BootstrapSamples, path: Sequence[Point], keys: Sequence[str], confidence: float
) -> Band:
    """Return the lines between neighbors of a path, and quantiles of them in the resamples.

    The path was chosen on other rows.
    """
    grid = np.linspace(
        path[0].dollars_per_1000, path[-1].dollars_per_1000, _GRID if len(path) > 1 else 1
    )
    # Include the vertices themselves, so that the drawn line has its corners at operable points;
    # add points for a logarithmic axis.
    even = np.geomspace(grid[0], grid[-1], len(grid)) if grid[0] > 0 else grid
    inside = np.clip(
        np.concatenate([grid, even, [point.dollars_per_1000 for point in path]]), grid[0], grid[-1]
    )
    grid = np.unique(inside)
    bills, scores = (
        samples.replicates[:, [samples.names.index(f"{kind} {key}") for key in keys]]
        for kind in ("dollars", "score")
    )
    order = np.argsort(bills, axis=1)
    bills, scores = (
        np.take_along_axis(bills, order, axis=1),
        np.take_along_axis(scores, order, axis=1),
    )
    heights = np.stack([np.interp(grid, x, y) for x, y in zip(bills, scores, strict=True)])
    return _band_around(
        grid, interpolate(path, grid), heights, samples.tail(confidence), confidence
    )


def _band_around(
    grid: NDArray[np.float64],
    middle: NDArray[np.float64],
    heights: NDArray[np.float64],
    tail: float,
    confidence: float,
) -> Band:
    low, high = np.quantile(heights, [tail, 1 - tail], axis=0)
    return Band(
        _as_floats(grid),
        _as_floats(middle),
        _as_floats(np.minimum(low, middle)),
        _as_floats(np.maximum(high, middle)),
        confidence,
    )


def _as_floats(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(values.tolist())
