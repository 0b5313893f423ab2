"""The curve of cost against quality on held-out rows, and the choice of a point by a target.

The curve is the upper convex hull of the router's points along its price weights and of the single
experts. A point between two vertices is served by a random draw per request, so every point of the
hull can be operated on, not only its vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from mildroute.exceptions import UnreachableTargetError
from mildroute.routers.frontier.operating_point import OperatingPoint, Vertex
from mildroute.routers.frontier.target import check_promise, check_quality, check_target

__all__ = [
    "FEWEST_FOR_ROUTER",
    "FEWEST_TO_PROMISE",
    "CostQualityCurve",
    "convex_hull_indices",
    "measure_curve",
]

_RESAMPLES = 1000
_ROUNDING = 1e-9
# Number of resamples that estimate how optimistic a hull is on the rows that chose it.
_HULLS = 100
# Below this many rows resampling is unreliable, and only the best expert itself is promised to keep
# its score: with 5 rows, three of four routers kept less than they promised.
FEWEST_TO_PROMISE = 30
# Below this many clusters only the mix of single experts makes a promise about quality: at 60 rows
# a point of the router itself kept its promise in 8 of 11 draws, the mix by the same rule in all.
FEWEST_FOR_ROUTER = 200
# Share of the risk of breaking a promise that a point of the router may take. With 300 rows of six
# tasks, a quality of 0.95 was kept in 0.89 of 66 draws with all of the risk and in 0.955 with half,
# at the cost of 1 point of savings.
_ROUTER_RISK = 0.5
# Probabilities tried for the mix of two vertices.
_STEPS = 64


def convex_hull_indices(
    dollars: Sequence[float] | NDArray[Any], scores: Sequence[float] | NDArray[Any]
) -> list[int]:
    """Return indices of the points on the upper convex hull, by ascending dollars.

    Of equal points, the first is returned.
    """
    # Plain numbers: a loop over a few points is several times faster without NumPy's scalars.
    x, y = [float(value) for value in dollars], [float(value) for value in scores]
    hull: list[int] = []
    for index in sorted(range(len(x)), key=lambda place: (x[place], -y[place])):
        if hull and y[index] <= y[hull[-1]]:
            continue
        while len(hull) > 1 and _below(hull[-2], hull[-1], index, x, y):
            hull.pop()
        hull.append(index)
    return hull


def _below(left: int, middle: int, right: int, x: Sequence[float], y: Sequence[float]) -> bool:
    """Return whether the middle point lies on or below the line between its neighbors."""
    return (y[middle] - y[left]) * (x[right] - x[left]) <= (y[right] - y[left]) * (
        x[middle] - x[left]
    )


@dataclass(frozen=True)
class CostQualityCurve:
    """The held-out dollars, errors and shares of the router's points and of the single experts.

    Bootstrap replicates of them are kept too. The first P points are the router's, the last p the
    single experts.

    Attributes:
        weights: Price weight of each of the router's points, ascending, shape (P,).
        dollars: Mean dollars per query, shape (P + p,).
        errors: Mean error, shape (P + p,).
        shares: Share of each expert, shape (P + p, p).
        dollars_spread: Standard deviation of a query's dollars, shape (P + p,).
        error_spread: Standard deviation of a query's error, shape (P + p,).
        dollars_replicates: Bootstrap means, shape (B, P + p).
        error_replicates: Bootstrap means, shape (B, P + p).
        share_replicates: Bootstrap shares, shape (B, P + p, p).
        refit_dollars: Mean dollars of each fold's router on all rows, shape (K, P + p): how much
            the bill varies between fits.
        looks: Number of the p experts, the last ones, that are looks of a cascade: they can be
            operated on like experts, and no saving is counted against them.
        units: Effective number of clusters among the rows; `None` if every row is its own.
        baseline: Index of the expert whose bill the user pays today; `None` means the most
            expensive.
    """

    weights: NDArray[np.float64]
    dollars: NDArray[np.float64]
    errors: NDArray[np.float64]
    shares: NDArray[np.float64]
    dollars_spread: NDArray[np.float64]
    error_spread: NDArray[np.float64]
    dollars_replicates: NDArray[np.float64]
    error_replicates: NDArray[np.float64]
    share_replicates: NDArray[np.float64]
    refit_dollars: NDArray[np.float64]
    rows: int
    looks: int = 0
    units: float | None = None
    baseline: int | None = None

    @property
    def experts(self) -> int:
        """Return the number of experts p."""
        return self.shares.shape[1]

    @property
    def singles(self) -> NDArray[np.intp]:
        """Return the indices of the single experts, shape (p,)."""
        return np.arange(len(self.weights), len(self.dollars))

    @property
    def baselines(self) -> NDArray[np.intp]:
        """Return the indices of the single experts without looks."""
        return self.singles[: self.experts - self.looks]

    @cached_property
    def best(self) -> int:
        """Return the index of the best single expert by score, the cheapest of equals."""
        errors, dollars = self.errors[self.baselines], self.dollars[self.baselines]
        return _lowest(np.ones(len(errors), dtype=bool), errors, dollars)

    @property
    def clusters(self) -> float:
        """Return the number of clusters, or of rows if every row is its own."""
        return self.rows if self.units is None else self.units

    @cached_property
    def baseline_place(self) -> int:
        """Return the index of the point of the expert whose bill the user pays today."""
        if self.baseline is not None:
            return int(self.singles[self.baseline])
        bills, errors = -self.dollars[self.baselines], self.errors[self.baselines]
        return int(self.singles[_lowest(np.ones(len(bills), dtype=bool), bills, errors)])

    @property
    def best_error(self) -> float:
        """Return the lowest mean error of a single expert."""
        return float(self.errors[self.singles[self.best]])

    @cached_property
    def best_error_replicates(self) -> NDArray[np.float64]:
        """Return the lowest mean error in each bootstrap resample, shape (B,).

        The best expert is determined anew in each resample, because it depends on chance too.
        """
        return np.asarray(self.error_replicates[:, self.baselines].min(axis=1))

    @cached_property
    def hull(self) -> NDArray[np.intp]:
        """Return the vertices of the operating frontier, by ascending dollars."""
        # Of equal points, prefer the single expert: a router that picked it on every held-out row
        # may pick another one on the next.
        order = np.concatenate([self.singles, np.arange(len(self.weights))])
        vertices = order[convex_hull_indices(self.dollars[order], 1 - self.errors[order])]
        return np.array([self._middle_of_equals(int(index)) for index in vertices], dtype=np.intp)

    def _middle_of_equals(self, index: int) -> int:
        """Return the middle one of the router's points that equal this one.

        At the ends of such a run of price weights, ties decide, and another fit breaks them
        differently.
        """
        if index >= len(self.weights):
            return index
        points = len(self.weights)
        equal = np.flatnonzero(
            (np.abs(self.errors[:points] - self.errors[index]) <= _ROUNDING)
            & (np.abs(self.dollars[:points] - self.dollars[index]) <= _ROUNDING)
        )
        return int(equal[len(equal) // 2])

    @cached_property
    def coin_hull(self) -> NDArray[np.intp]:
        """Return the vertices of the frontier of single experts alone."""
        return self.baselines[
            convex_hull_indices(self.dollars[self.baselines], 1 - self.errors[self.baselines])
        ]

    @cached_property
    def optimism(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bills, and how optimistic the hull's score is at each of them.

        The hull's vertices were chosen on the rows that measure them.

        In each bootstrap resample the hull is computed again, and the scores of its mixes there are
        compared with their scores on all rows.
        """
        low, high = self.dollars[self.hull[[0, -1]]]
        bills = np.linspace(low, high, 30)
        excess = np.zeros((_HULLS, len(bills)))
        for number, (dollars, errors) in enumerate(
            zip(self.dollars_replicates[:_HULLS], self.error_replicates[:_HULLS], strict=True)
        ):
            vertices = np.array(convex_hull_indices(dollars, 1 - errors))
            position = np.interp(bills, dollars[vertices], np.arange(len(vertices)))
            gains = (self.errors - errors)[vertices]
            excess[number] = np.interp(position, np.arange(len(vertices)), gains)
        return bills, np.maximum(excess.mean(axis=0), 0.0)

    @cached_property
    def gain(self) -> tuple[float, float]:
        """Return the hull's mean score above the best random mix, less optimism, and its error.

        The mean is over the range of bills that both have. The error is a standard error.
        """
        low, high = self.dollars[self.coin_hull[[0, -1]]]
        bills = np.linspace(low, high, 50)
        with_singles = np.arange(len(self.dollars))
        difference = self._area(self.dollars, self.errors, with_singles, bills) - self._area(
            self.dollars, self.errors, self.baselines, bills
        )
        replicates = [
            self._area(dollars, errors, with_singles, bills)
            - self._area(dollars, errors, self.baselines, bills)
            for dollars, errors in zip(
                self.dollars_replicates[:_HULLS], self.error_replicates[:_HULLS], strict=True
            )
        ]
        return float(difference - self._optimism_at(bills).mean()), float(np.std(replicates))

    def for_budget(
        self, dollars_per_1000: float, confidence: float, queries: int
    ) -> OperatingPoint:
        """Return the point of highest score whose bill stays below the budget.

        The bill is that of ``queries`` queries, and stays below the budget with this confidence.
        """
        check_target("a budget", dollars_per_1000)
        check_promise(confidence, queries)
        mixes = []
        for path in self._paths():
            allowed = 1000 * path.bill_quantile(confidence, queries) <= dollars_per_1000 * (
                1 + _ROUNDING
            )
            if allowed.any():
                mixes.append(path.at(_lowest(allowed, path.errors, path.dollars)))
        if not mixes:
            cheapest = min(
                float(1000 * path.bill_quantile(confidence, queries).min())
                for path in self._paths()
            )
            raise UnreachableTargetError(
                f"no point keeps 1,000 queries below {dollars_per_1000:g} dollars with confidence"
                f" {confidence:g}: the cheapest one may need {cheapest:.4g}; raise the budget."
            )
        return self._point(min(mixes, key=lambda mix: (mix.error, mix.bill)), confidence, queries)

    def for_quality(
        self, fraction_of_best: float, confidence: float, queries: int
    ) -> OperatingPoint:
        """Return the cheapest point that keeps this fraction of the best single expert's score.

        Its score is at least that with this confidence. Both scores are taken on the same
        resamples, so that variation common to both cancels out.
        """
        check_target("a quality", fraction_of_best)
        check_quality(fraction_of_best)
        check_promise(confidence, queries)
        best = fraction_of_best * (1 - self.best_error_replicates[:, None])
        mixes, surest = [], -np.inf
        for path, risk in self._promising_paths(1 - confidence):
            floor = np.quantile(1 - path.error_replicates - best, risk, axis=0) - path.optimism
            # The best expert itself keeps all of its own score, even with few rows; the best expert
            # of a resample may be another one.
            floor = np.where(
                (path.errors <= self.best_error) & (fraction_of_best <= 1) & path.is_best,
                np.maximum(floor, 0.0),
                floor,
            )
            if self.clusters < FEWEST_TO_PROMISE:
                floor = np.where(path.is_best & (fraction_of_best <= 1), floor, -np.inf)
            surest = max(surest, float(floor.max()))
            if (floor >= -_ROUNDING).any():
                mixes.append(path.at(_lowest(floor >= -_ROUNDING, path.dollars, path.errors)))
        if not mixes:
            target = fraction_of_best * (1 - self.best_error)
            raise UnreachableTargetError(
                f"no point reaches a score of {target:.4g}, {fraction_of_best:g} of the best single"
                f" expert's, with confidence {confidence:g}: the best point is sure of"
                f" {target + surest:.4g}; ask for less or collect more rows."
            )
        return self._point(min(mixes, key=lambda mix: (mix.bill, mix.error)), confidence, queries)

    def for_best(self, confidence: float, queries: int) -> OperatingPoint:
        """Return the cheapest point whose score does not differ significantly from the best."""
        check_promise(confidence, queries)
        path, _ = self._promising_paths(1 - confidence)[0]
        best = _lowest(np.ones(len(path.errors), dtype=bool), path.errors, path.dollars)
        loss = np.quantile(
            path.error_replicates - path.error_replicates[:, [best]], (1 - confidence) / 2, axis=0
        )
        return self._point(
            path.at(_lowest(loss <= _ROUNDING, path.dollars, path.errors)), confidence, queries
        )

    def for_share(
        self, expert: int, at_most: float, confidence: float, queries: int
    ) -> OperatingPoint:
        """Return the point of highest score among those that limit the share of an expert.

        They send at most this share of queries to the expert with this confidence.
        """
        check_target("a share", at_most)
        check_promise(confidence, queries)
        mixes, lowest = [], np.inf
        for path in self._paths():
            ceiling = np.quantile(path.of(self.share_replicates[:, :, expert]), confidence, axis=0)
            lowest = min(lowest, float(ceiling.min()))
            allowed = ceiling <= at_most + _ROUNDING
            if allowed.any():
                mixes.append(path.at(_lowest(allowed, path.errors, path.dollars)))
        if not mixes:
            raise UnreachableTargetError(
                f"no point sends at most {at_most:g} of the queries to that expert with confidence"
                f" {confidence:g}: the lowest share is {lowest:.4g}; allow more or leave the expert"
                " out."
            )
        return self._point(min(mixes, key=lambda mix: (mix.error, mix.bill)), confidence, queries)

    def point(self, index: int, confidence: float, queries: int) -> OperatingPoint:
        """Return one of the router's points, or a single expert, with its two-sided intervals."""
        check_promise(confidence, queries)
        return self._point(
            _Mix(index, index, 0.0, float(self.errors[index]), float(self.dollars[index]), 0.0),
            confidence,
            queries,
        )

    def exchange_rate(self, point: OperatingPoint) -> float:
        """Return the number of errors that a dollar is worth at a point of this curve.

        This is the price weight of a single vertex. Between two vertices it is what a dollar buys
        on the way from one to the other: at that price both cost the same, and so does every mix of
        them.
        """
        if not point.is_mixed:
            return point.price_weight
        one, other = (self._index(vertex) for vertex in point.vertices)
        bought = float(self.errors[one] - self.errors[other])
        paid = float(self.dollars[other] - self.dollars[one])
        return bought / paid if bought * paid > 0 else point.price_weight

    def _index(self, vertex: Vertex) -> int:
        if vertex.expert is not None:
            return len(self.weights) + vertex.expert
        return int(np.abs(self.weights - vertex.price_weight).argmin())

    def _paths(self) -> list[_Path]:
        """Return the operating frontier, and the one of single experts alone.

        With few rows the latter can promise more.
        """
        bills = self.dollars
        return [
            _Path(self, self.hull, self._optimism_at(bills[self.hull])),
            _Path(self, self.coin_hull, np.zeros(len(self.coin_hull))),
        ]

    def _promising_paths(self, risk: float) -> list[tuple[_Path, float]]:
        """Return the paths that may promise a quality, and the risk that each may take.

        The router's path has many points, and the one that looks cheapest is selected, so it may
        take half the risk, and with few clusters no risk at all.
        """
        with_router, mixes = self._paths()
        if self.clusters < FEWEST_FOR_ROUTER:
            return [(mixes, risk)]
        return [(with_router, risk * _ROUTER_RISK), (mixes, risk)]

    def _optimism_at(self, bills: NDArray[np.float64]) -> NDArray[np.float64]:
        hull_bills, excess = self.optimism
        return np.asarray(np.interp(bills, hull_bills, excess))

    def _area(
        self, dollars: Any, errors: Any, places: NDArray[np.intp], bills: NDArray[np.float64]
    ) -> float:
        vertices = places[convex_hull_indices(dollars[places], 1 - errors[places])]
        return float(np.interp(bills, dollars[vertices], 1 - errors[vertices]).mean())

    def _tail(self, confidence: float) -> float:
        """Return the quantile of the replicates at which a two-sided interval begins.

        It is widened for few clusters, so that a mean has the width of Student's interval.
        """
        units = max(self.clusters, 2.0)
        width = np.sqrt(units / (units - 1)) * t.ppf((1 + confidence) / 2, units - 1)
        return float(norm.sf(width))

    def _vertex(self, index: int, probability: float, beside: int) -> Vertex:
        if index < len(self.weights):
            return Vertex(float(self.weights[index]), None, probability)
        ranking = (
            float(self.weights[beside]) if beside < len(self.weights) else self._weight_near(index)
        )
        return Vertex(ranking, int(index - len(self.weights)), probability)

    def _weight_near(self, index: int) -> float:
        """Return the router's price weight whose bill is nearest to a single expert's."""
        if not len(self.weights):
            return 0.0
        return float(
            self.weights[np.abs(self.dollars[: len(self.weights)] - self.dollars[index]).argmin()]
        )

    def _point(self, mix: _Mix, confidence: float, queries: int) -> OperatingPoint:
        tail = self._tail(confidence)
        pair, chances = np.array([mix.low, mix.high]), np.array([1 - mix.share, mix.share])
        path = _Path(self, pair, np.full(2, mix.optimism), shares=np.array([mix.share]))
        low, high = (
            float(1000 * path.bill_quantile(level, queries)[0]) for level in (tail, 1 - tail)
        )
        best, worst = (float(path.error_quantile(level, queries)[0]) for level in (tail, 1 - tail))
        base = float(1000 * self.dollars[self.baseline_place])
        bill = float(1000 * self.dollars[pair] @ chances)
        saved = 1 - bill / base if base else 0.0
        ends = (
            np.quantile(path.saved_replicates(self.baseline_place, queries)[:, 0], [tail, 1 - tail])
            if base
            and not all(
                index == self.baseline_place or not chance
                for index, chance in zip(pair, chances, strict=True)
            )
            else np.zeros(2)
        )
        kept = (
            float((1 - mix.error) / (1 - self.best_error))
            if self.best_error < 1 - _ROUNDING
            else np.nan
        )
        smallest, largest = path.kept_quantiles(tail)
        vertices = [
            self._vertex(index, float(chance), beside if chance < 1 else index)
            for index, chance, beside in zip(pair, chances, pair[::-1], strict=True)
            if chance > 0
        ]
        return OperatingPoint(
            vertices=tuple(vertices),
            dollars_per_1000=bill,
            dollars_interval=(min(max(low, 0.0), bill), max(high, bill)),
            score=float(1 - mix.error),
            score_interval=(
                min(max(1 - worst, 0.0), 1 - mix.error),
                max(min(1 - best, 1.0), 1 - mix.error),
            ),
            shares=tuple((chances @ self.shares[pair]).tolist()),
            saved=saved,
            saved_interval=(min(float(ends[0]), saved), max(float(ends[1]), saved)),
            baseline=int(self.baseline_place - len(self.weights)),
            baseline_dollars_per_1000=base,
            kept_interval=(min(smallest, kept), max(largest, kept)),
            best=self.best,
            best_score=1 - self.best_error,
            best_dollars_per_1000=float(1000 * self.dollars[self.singles[self.best]]),
            confidence=confidence,
        )


@dataclass(frozen=True)
class _Mix:
    """A position on a path.

    Two points, the share of the second, and the expected figures per query.
    """

    low: int
    high: int
    share: float
    error: float
    bill: float
    optimism: float


class _Path:
    """The mixes of neighboring vertices, at a grid of shares, by ascending dollars."""

    def __init__(
        self,
        curve: CostQualityCurve,
        vertices: NDArray[np.intp],
        optimism: NDArray[np.float64],
        shares: NDArray[np.float64] | None = None,
    ) -> None:
        self._curve, self._vertices = curve, vertices
        count = len(vertices)
        if shares is None:
            places = np.linspace(0, count - 1, _STEPS * (count - 1) + 1)
            self._lower = np.minimum(places.astype(np.intp), max(count - 2, 0))
            self._share = places - self._lower
        else:
            self._lower, self._share = np.zeros(len(shares), dtype=np.intp), shares
        self._upper = np.minimum(self._lower + 1, count - 1)
        self.optimism = (1 - self._share) * optimism[self._lower] + self._share * optimism[
            self._upper
        ]
        self.dollars, self.errors = self.of(curve.dollars), self.of(curve.errors) + self.optimism

    @cached_property
    def error_replicates(self) -> NDArray[np.float64]:
        """Return errors, shape (B, positions), without the optimism."""
        return self.of(self._curve.error_replicates)

    @property
    def is_best(self) -> NDArray[np.bool_]:
        """Return whether each position is the best single expert alone."""
        best = self._curve.singles[self._curve.best]
        low, high = self._vertices[self._lower], self._vertices[self._upper]
        return np.asarray(
            ((low == best) & (self._share == 0)) | ((high == best) & (self._share == 1))
        )

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mix values of the points along their last axis."""
        vertex_values = values[..., self._vertices]
        return np.asarray(
            (1 - self._share) * vertex_values[..., self._lower]
            + self._share * vertex_values[..., self._upper]
        )

    def bill_quantile(self, level: float, queries: int) -> NDArray[np.float64]:
        """Return the quantile of the mean dollars of a future batch.

        The quantile covers sampling of the rows, refitting of the router, and chance in the batch.
        """
        spread = np.hypot(self._luck_of_bill(queries), self._refit_spread)
        return np.asarray(np.quantile(self._noisy_bills(spread), level, axis=0))

    def error_quantile(self, level: float, queries: int) -> NDArray[np.float64]:
        """Return the quantile of the mean error of a future batch.

        The quantile covers sampling of the rows and chance in the batch.
        """
        luck = self._luck(self._curve.errors, self._curve.error_spread, queries)
        noisy = _with_noise(self.error_replicates, luck) + self.optimism
        return np.asarray(np.quantile(noisy, level, axis=0))

    def _luck_of_bill(self, queries: int) -> NDArray[np.float64]:
        return self._luck(self._curve.dollars, self._curve.dollars_spread, queries)

    def _luck(
        self, means: NDArray[np.float64], spread: NDArray[np.float64], queries: int
    ) -> NDArray[np.float64]:
        """Return the standard deviation of the mean of a batch, draws of a mix included."""
        squares = self.of(spread**2 + means**2)
        return np.asarray(np.sqrt(np.maximum(squares - self.of(means) ** 2, 0.0) / queries))

    def kept_quantiles(self, tail: float) -> tuple[float, float]:
        """Return the ends of the kept share of the score of whichever expert is best.

        They are those of the first position, less the optimism of its score.
        """
        scores = 1 - self.error_replicates[:, 0] - self.optimism[0]
        best = 1 - self._curve.best_error_replicates
        if not (best > _ROUNDING).all():
            return float("nan"), float("nan")
        low, high = np.quantile(scores / best, [tail, 1 - tail])
        return float(low), float(high)

    def saved_replicates(self, base: int, queries: int) -> NDArray[np.float64]:
        """Return the share saved of the bill of the point at ``base``, shape (B, positions).

        Both bills are those of a batch like the resampled rows, by a refitted router.
        """
        spread = np.hypot(self._luck_of_bill(queries), self._refit_spread)
        bills = np.maximum(self._noisy_bills(spread), 0.0)
        against = self._curve.dollars_replicates[:, [base]]
        return np.asarray(1 - bills / np.where(against > 0, against, np.inf))

    @property
    def _refit_spread(self) -> NDArray[np.float64]:
        # The spread between the folds' routers. A jackknife would be 1.8 times as wide; even this
        # covers 99.7% of bills, not 95%.
        refits = self.of(self._curve.refit_dollars)
        return (
            np.asarray(refits.std(axis=0, ddof=1))
            if len(refits) > 1
            else np.zeros(len(self._share))
        )

    def _noisy_bills(self, spread: NDArray[np.float64]) -> NDArray[np.float64]:
        return _with_noise(self.of(self._curve.dollars_replicates), spread)

    def at(self, place: int) -> _Mix:
        """Return the mix at one position."""
        low, high = (int(self._vertices[index[place]]) for index in (self._lower, self._upper))
        share = float(self._share[place])
        return _Mix(
            low,
            high,
            share,
            float(self.errors[place]),
            float(self.dollars[place]),
            float(self.optimism[place]),
        )


def _with_noise(
    replicates: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add normal noise to replicates, shape (B, positions), with one draw per replicate."""
    draws = np.random.default_rng(0).standard_normal((len(replicates), 1))
    return np.asarray(replicates + draws * spread)


def _lowest(
    allowed: NDArray[np.bool_], values: NDArray[np.float64], then: NDArray[np.float64]
) -> int:
    """Return the index of the lowest allowed value.

    Of values equal up to rounding, take the one that is lowest in another column.
    """
    lowest = values[allowed].min()
    equal = allowed & (values <= lowest + _ROUNDING * max(abs(lowest), 1e-300))
    return int(np.where(equal, then, np.inf).argmin())


def measure_curve(
    weights: Any,
    choices: NDArray[np.intp],
    errors: NDArray[np.float64],
    dollars: NDArray[np.float64],
    row_weights: NDArray[np.float64] | None = None,
    refit_dollars: NDArray[np.float64] | None = None,
    looks: int = 0,
    clusters: NDArray[np.intp] | None = None,
) -> CostQualityCurve:
    """Measure held-out choices along price weights, alongside the single experts.

    Args:
        weights: Price weights, shape (P,).
        choices: Expert chosen on each held-out row, shape (P, n).
        errors: Error of each expert on each row, shape (n, p).
        dollars: Dollars of each expert on each row, shape (n, p).
        row_weights: Weight of each row, shape (n,), or `None`.
        refit_dollars: Mean dollars of each fold's router at each price weight, shape (K, P), or
            `None`.
        looks: Number of the experts, the last ones, that are looks of a cascade.
        clusters: Number of each row's cluster, from 0, shape (n,), or `None`; whole clusters are
            resampled.
    """
    rows, experts = errors.shape
    choices = np.vstack([choices, np.tile(np.arange(experts)[:, None], (1, rows))])
    paid_errors = np.take_along_axis(errors, choices.T, axis=1)
    paid_dollars = np.take_along_axis(dollars, choices.T, axis=1)
    used = (choices.T[:, :, None] == np.arange(experts)).reshape(rows, -1).astype(np.float64)
    importance = np.ones(rows) if row_weights is None else row_weights
    share = importance / importance.sum()
    points = len(choices)
    replicates = _resampled_means(
        np.hstack([paid_dollars, paid_errors, used]), importance, clusters
    )
    means, mean_errors = share @ paid_dollars, share @ paid_errors
    refits = np.zeros((0, points - experts)) if refit_dollars is None else np.asarray(refit_dollars)
    return CostQualityCurve(
        weights=np.asarray(weights, dtype=np.float64),
        dollars=means,
        errors=mean_errors,
        shares=(share @ used).reshape(points, experts),
        dollars_spread=np.sqrt(share @ (paid_dollars - means) ** 2),
        error_spread=np.sqrt(share @ (paid_errors - mean_errors) ** 2),
        dollars_replicates=replicates[:, :points],
        error_replicates=replicates[:, points : 2 * points],
        share_replicates=replicates[:, 2 * points :].reshape(-1, points, experts),
        refit_dollars=np.hstack([refits, np.tile(means[points - experts :], (len(refits), 1))]),
        rows=rows,
        looks=looks,
        units=None if clusters is None else effective_number(clusters),
    )


def effective_number(clusters: NDArray[np.intp]) -> float:
    """Return the number of equally large clusters that would carry as much information."""
    sizes = np.bincount(clusters).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def _resampled_means(
    columns: NDArray[Any],
    importance: NDArray[np.float64],
    clusters: NDArray[np.intp] | None,
) -> NDArray[np.float64]:
    """Return weighted means of the columns over bootstrap samples, shape (B, columns).

    Whole clusters are drawn, or rows if every row is its own cluster.
    """
    sums, sizes = importance[:, None] * columns, importance
    if clusters is not None:
        order = np.argsort(clusters, kind="stable")
        starts = np.searchsorted(clusters[order], np.arange(int(clusters.max()) + 1))
        sums = np.add.reduceat(sums[order], starts, axis=0)
        sizes = np.add.reduceat(importance[order], starts)
    rng = np.random.default_rng(0)
    units = len(sums)
    share = np.full(units, 1 / units)
    drawn = (rng.multinomial(units, share, size=100) for _ in range(_RESAMPLES // 100))
    return np.vstack([counts @ sums / (counts @ sizes)[:, None] for counts in drawn])
