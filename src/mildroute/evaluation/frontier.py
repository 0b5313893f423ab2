"""Cost-quality frontiers: measured points, convex hulls, random mixes, AIQ and PGR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._format import names_of
from mildroute.evaluation.intervals import BootstrapSamples, Interval, bootstrap_means
from mildroute.evaluation.metrics import (
    Choice,
    Matrix,
    as_choice,
    as_matrix,
    dollars_per_1000,
    mean_score,
    oracle,
)
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.frontier.curve import convex_hull_indices

__all__ = [
    "Band",
    "Frontier",
    "PairCurve",
    "Point",
    "aiq",
    "convex_hull",
    "interpolate",
    "measure_frontier",
    "mix_shares",
    "oracle_point",
    "pgr_curve",
    "random_mixture",
    "single_points",
]


# Points of cost and quality, mixes of them, and the area below (AIQ).


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


# Cost against quality: a router along its price weights, alongside single experts, random mixes and
# the oracle.


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
        points: One per price weight, with intervals, in the order given.
        singles: One per expert, with intervals.
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

        They are chosen on the rows they are measured on, so they are slightly optimistic.
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
    quality, money = (
        as_matrix(scores, "scores").mean(axis=0),
        1000 * as_matrix(dollars, "dollars").mean(axis=0),
    )
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
    found: BootstrapSamples, key: str, name: str, price_weight: float | None, confidence: float
) -> Point:
    bill, score = (
        found.interval(f"dollars {key}", confidence),
        found.interval(f"score {key}", confidence),
    )
    return Point(name, bill.value, score.value, bill, score, price_weight)


def _band(found: BootstrapSamples, points: Sequence[Point], confidence: float) -> Band:
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
        [found.names.index(f"{kind} {index}") for index in vertices]
        for kind in ("dollars", "score")
    )
    heights = np.empty((len(found.replicates), len(grid)))
    for index, means in enumerate(found.replicates):
        x, y = means[bills], means[scores]
        edge = convex_hull_indices(x, y)
        heights[index] = np.interp(grid, x[edge], y[edge])
    return _around(grid, interpolate(hull, grid), heights, found.tail(confidence), confidence)


def _path_band(
    found: BootstrapSamples, path: Sequence[Point], keys: Sequence[str], confidence: float
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
        found.replicates[:, [found.names.index(f"{kind} {key}") for key in keys]]
        for kind in ("dollars", "score")
    )
    order = np.argsort(bills, axis=1)
    bills, scores = (
        np.take_along_axis(bills, order, axis=1),
        np.take_along_axis(scores, order, axis=1),
    )
    heights = np.stack([np.interp(grid, x, y) for x, y in zip(bills, scores, strict=True)])
    return _around(grid, interpolate(path, grid), heights, found.tail(confidence), confidence)


def _around(
    grid: NDArray[np.float64],
    middle: NDArray[np.float64],
    heights: NDArray[np.float64],
    tail: float,
    confidence: float,
) -> Band:
    low, high = np.quantile(heights, [tail, 1 - tail], axis=0)
    return Band(
        _plain(grid),
        _plain(middle),
        _plain(np.minimum(low, middle)),
        _plain(np.maximum(high, middle)),
        confidence,
    )


def _plain(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(values.tolist())


# Two experts, a weak and a strong one: how much of the gap between them is recovered by how many
# calls to the strong one. The figures are RouteLLM's (Ong et al., 2024): the performance gap
# recovered, PGR = (score - weak) / (strong - weak); APGR, its mean over the share of calls to the
# strong expert; CPT(x), the lowest share whose PGR is x.


@dataclass(frozen=True)
class PairCurve:
    """The mean score along the share of calls to the strong expert.

    Attributes:
        shares: Shares of calls to the strong expert, ascending from 0 to 1, shape (m,).
        scores: Mean score at each share, shape (m,); the first is the weak expert's, the last the
            strong one's.

    Example:
        >>> curve = PairCurve(np.array([0.0, 0.5, 1.0]), np.array([0.4, 0.7, 0.8]))
        >>> curve.recovered().round(2)
        array([0.  , 0.75, 1.  ])
        >>> round(curve.average_recovered(), 4), round(curve.calls_for(0.5), 4)
        (0.625, 0.3333)
    """

    shares: NDArray[np.float64]
    scores: NDArray[np.float64]

    def recovered(self) -> NDArray[np.float64]:
        """Return the PGR at each share, shape (m,); NaN if both experts score the same."""
        gap = self.scores[-1] - self.scores[0]
        return np.asarray((self.scores - self.scores[0]) / (gap if gap != 0 else np.nan))

    def average_recovered(
        self, rule: Literal["trapezium", "grid"] = "trapezium", points: int = 10
    ) -> float:
        """Return the APGR: PGR averaged over the share of strong calls.

        Args:
            rule: ``"trapezium"``, the area under PGR, is what RouteLLM's code computes, and gives
                random choice exactly one half; ``"grid"`` is the mean over shares 1/points,
                2/points, ..., 1, as in its paper.
            points: Size of the grid.

        Returns:
            1 if the first strong call recovers everything, 0.5 for random choice under the first
            rule, NaN if the experts score the same.
        """
        if rule not in ("trapezium", "grid"):
            raise ArgumentError(f"rule must be 'trapezium' or 'grid', got {rule!r}.")
        recovered = self.recovered()
        if rule == "grid":
            return float(
                np.interp(np.arange(1, points + 1) / points, self.shares, recovered).mean()
            )
        return float((np.diff(self.shares) * (recovered[1:] + recovered[:-1]) / 2).sum())

    def calls_for(self, recovered: float) -> float:
        """Return the CPT.

        It is the lowest share of strong calls whose PGR is at least this, linear between the points
        of the curve.

        Args:
            recovered: The target PGR, such as 0.5 for CPT(50%).

        Returns:
            The share; NaN if it is never reached.
        """
        reached = self.recovered()
        at = np.flatnonzero(reached >= recovered)
        if not len(at):
            return float("nan")
        if at[0] == 0:
            return float(self.shares[0])
        before, after = at[0] - 1, at[0]
        way = (recovered - reached[before]) / (reached[after] - reached[before])
        return float(self.shares[before] + way * (self.shares[after] - self.shares[before]))


def pgr_curve(preference: Any, scores: Any, weak: int = 0, strong: int = 1) -> PairCurve:
    """Send more and more rows to the strong expert, beginning with those that need it most.

    Args:
        preference: How much each row needs the strong expert, shape (n,): the posterior of the
            strong expert, or a difference of scores. Rows of equal preference switch together.
        scores: Score of each expert on each row, shape (n, p).
        weak: Index of the weak expert.
        strong: Index of the strong expert.

    Returns:
        The curve, one point for each distinct preference and one for no strong call.

    Example:
        >>> pgr_curve([0.9, 0.1, 0.5], [[0, 1], [1, 1], [1, 0]]).scores.round(3)
        array([0.667, 1.   , 0.667, 0.667])
    """
    matrix = as_matrix(scores, "scores")
    preferences = np.asarray(preference, dtype=np.float64)
    if preferences.shape != (len(matrix),):
        raise ShapeError(
            f"preference must be ({len(matrix)},), one per row, got shape {preferences.shape}."
        )
    if np.isnan(preferences).any():
        raise ArgumentError(
            "preference must not be NaN; say for each row how much it needs the strong expert."
        )
    order = np.argsort(-preferences, kind="stable")
    gained = np.cumsum((matrix[:, strong] - matrix[:, weak])[order])
    ends = np.append(np.flatnonzero(np.diff(preferences[order])), len(order) - 1)
    start = matrix[:, weak].mean()
    curve = np.concatenate([[start], start + gained[ends] / len(matrix)])
    return PairCurve(np.concatenate([[0.0], (ends + 1) / len(matrix)]), curve)
