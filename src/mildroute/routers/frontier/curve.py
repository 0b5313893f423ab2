"""The curve of cost against quality on held-out rows, on which targets select a point.

The curve is the upper convex hull of the router's points along its price weights and of the single
experts. A point between two vertices is served by a random draw per request, so every point of the
hull can be operated on, not only its vertices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from mildroute.exceptions import UnreachableTargetError
from mildroute.routers.frontier.hull import convex_hull_indices
from mildroute.routers.frontier.mixes import ROUNDING, Mix, MixPath, index_of_lowest
from mildroute.routers.frontier.operating_point import OperatingPoint, Vertex
from mildroute.routers.frontier.target import check_promise, check_quality, check_target

__all__ = [
    "FEWEST_FOR_ROUTER",
    "FEWEST_TO_PROMISE",
    "CostQualityCurve",
]

# Number of resamples that estimate the optimism of a hull on the rows on which it was computed.
_HULLS = 100
# Minimum number of clusters for a promise about quality. With fewer, resampling is unreliable, and
# only the best expert itself is promised to keep its score: with 5 rows, three of four routers kept
# less than they promised.
FEWEST_TO_PROMISE = 30
# Minimum number of clusters at which a point of the router makes a promise about quality. With
# fewer, only the mix of single experts does: at 60 rows, a point of the router kept its promise in
# 8 of 11 draws, and the mix in all of them.
FEWEST_FOR_ROUTER = 200
# Share of the risk of breaking a promise that a point of the router may take. With 300 rows of six
# tasks, a quality of 0.95 was kept in 0.89 of 66 draws with the full risk and in 0.955 with half,
# at the cost of 1 point of savings.
_ROUTER_RISK = 0.5


@dataclass(frozen=True)
class CostQualityCurve:
    """The held-out dollars, errors and shares of the router's points and of the single experts.

    The curve also contains their bootstrap replicates. The first P points are the router's, and the
    last p are the single experts.

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
        refit_dollars: Mean dollars of each fold's router on all rows, shape (K, P + p), which show
            how much the bill varies between fits.
        looks: Number of looks of a cascade, which are the last of the p experts. A target can
            select them like experts, but savings are not measured against them.
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
        """Return the index of the single expert with the highest score, the cheapest of equals."""
        errors, dollars = self.errors[self.baselines], self.dollars[self.baselines]
        return index_of_lowest(np.ones(len(errors), dtype=bool), errors, dollars)

    @property
    def clusters(self) -> float:
        """Return the number of clusters, or of rows if every row is its own."""
        return self.rows if self.units is None else self.units

    @cached_property
    def baseline_index(self) -> int:
        """Return the index of the point of the expert whose bill the user pays today."""
        if self.baseline is not None:
            return int(self.singles[self.baseline])
        bills, errors = -self.dollars[self.baselines], self.errors[self.baselines]
        return int(self.singles[index_of_lowest(np.ones(len(bills), dtype=bool), bills, errors)])

    @property
    def best_error(self) -> float:
        """Return the lowest mean error of a single expert."""
        return float(self.errors[self.singles[self.best]])

    @cached_property
    def best_error_replicates(self) -> NDArray[np.float64]:
        """Return the lowest mean error in each bootstrap resample, shape (B,).

        The best expert is determined again in each resample, because it also depends on chance.
        """
        return np.asarray(self.error_replicates[:, self.baselines].min(axis=1))

    @cached_property
    def hull(self) -> NDArray[np.intp]:
        """Return the vertices of the operating frontier, by ascending dollars."""
        # Among equal points, prefer the single expert: a router that chose it on every held-out row
        # may choose another one on the next row.
        order = np.concatenate([self.singles, np.arange(len(self.weights))])
        vertices = order[convex_hull_indices(self.dollars[order], 1 - self.errors[order])]
        return np.array([self._middle_of_equals(int(index)) for index in vertices], dtype=np.intp)

    def _middle_of_equals(self, index: int) -> int:
        """Return the middle one of the router's points that equal this one.

        At the ends of such a range of price weights, choices depend on ties, which another fit
        breaks differently.
        """
        if index >= len(self.weights):
            return index
        points = len(self.weights)
        equal = np.flatnonzero(
            (np.abs(self.errors[:points] - self.errors[index]) <= ROUNDING)
            & (np.abs(self.dollars[:points] - self.dollars[index]) <= ROUNDING)
        )
        return int(equal[len(equal) // 2])

    @cached_property
    def hull_of_singles(self) -> NDArray[np.intp]:
        """Return the vertices of the frontier of single experts alone."""
        return self.baselines[
            convex_hull_indices(self.dollars[self.baselines], 1 - self.errors[self.baselines])
        ]

    def single_experts(self) -> CostQualityCurve:
        """Return the curve of the single experts and their random mixes, without the router."""
        indices = self.singles
        return replace(
            self,
            weights=self.weights[:0],
            dollars=self.dollars[indices],
            errors=self.errors[indices],
            shares=self.shares[indices],
            dollars_spread=self.dollars_spread[indices],
            error_spread=self.error_spread[indices],
            dollars_replicates=self.dollars_replicates[:, indices],
            error_replicates=self.error_replicates[:, indices],
            share_replicates=self.share_replicates[:, indices],
            refit_dollars=self.refit_dollars[:, indices],
        )

    @cached_property
    def optimism(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a range of bills, and the optimism of the hull's score at each of them.

        The score is optimistic because the hull's vertices were chosen on the same rows. The hull
        is computed again in each bootstrap resample, and the scores of its mixes there are compared
        with their scores on all rows.
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
        """Return the hull's mean score above the best random mix, and its standard error.

        The mean is over the bills that both cover, and the optimism is subtracted.
        """
        low, high = self.dollars[self.hull_of_singles[[0, -1]]]
        bills = np.linspace(low, high, 50)
        with_singles = np.arange(len(self.dollars))
        difference = self._mean_score(
            self.dollars, self.errors, with_singles, bills
        ) - self._mean_score(self.dollars, self.errors, self.baselines, bills)
        replicates = [
            self._mean_score(dollars, errors, with_singles, bills)
            - self._mean_score(dollars, errors, self.baselines, bills)
            for dollars, errors in zip(
                self.dollars_replicates[:_HULLS], self.error_replicates[:_HULLS], strict=True
            )
        ]
        return float(difference - self._optimism_at(bills).mean()), float(np.std(replicates))

    def for_budget(
        self, dollars_per_1000: float, confidence: float, queries: int
    ) -> OperatingPoint:
        """Return the point with the highest score whose bill stays below the budget.

        The bill of ``queries`` queries stays below the budget with the given confidence.
        """
        check_target("a budget", dollars_per_1000)
        check_promise(confidence, queries)
        mixes = []
        for path in self._paths():
            allowed = 1000 * path.bill_quantile(confidence, queries) <= dollars_per_1000 * (
                1 + ROUNDING
            )
            if allowed.any():
                mixes.append(path.at(index_of_lowest(allowed, path.errors, path.dollars)))
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

        The promise holds with the given confidence. Both scores are computed on the same resamples,
        so that their common variation cancels out.
        """
        check_target("a quality", fraction_of_best)
        check_quality(fraction_of_best)
        check_promise(confidence, queries)
        best = fraction_of_best * (1 - self.best_error_replicates[:, None])
        mixes = []
        surest = -np.inf
        for path, risk in self._promising_paths(1 - confidence):
            floor = np.quantile(1 - path.error_replicates - best, risk, axis=0) - path.optimism
            # The best expert keeps all of its own score even with few rows, although another expert
            # may be the best one in a resample.
            floor = np.where(
                (path.errors <= self.best_error) & (fraction_of_best <= 1) & path.is_best,
                np.maximum(floor, 0.0),
                floor,
            )
            if self.clusters < FEWEST_TO_PROMISE:
                floor = np.where(path.is_best & (fraction_of_best <= 1), floor, -np.inf)
            surest = max(surest, float(floor.max()))
            if (floor >= -ROUNDING).any():
                mixes.append(
                    path.at(index_of_lowest(floor >= -ROUNDING, path.dollars, path.errors))
                )
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
        best = index_of_lowest(np.ones(len(path.errors), dtype=bool), path.errors, path.dollars)
        loss = np.quantile(
            path.error_replicates - path.error_replicates[:, [best]], (1 - confidence) / 2, axis=0
        )
        return self._point(
            path.at(index_of_lowest(loss <= ROUNDING, path.dollars, path.errors)),
            confidence,
            queries,
        )

    def for_share(
        self, expert: int, at_most: float, confidence: float, queries: int
    ) -> OperatingPoint:
        """Return the point with the highest score among those that limit the share of an expert.

        It sends at most this share of queries to the expert with the given confidence.
        """
        check_target("a share", at_most)
        check_promise(confidence, queries)
        mixes = []
        lowest = np.inf
        for path in self._paths():
            ceiling = np.quantile(path.mix(self.share_replicates[:, :, expert]), confidence, axis=0)
            lowest = min(lowest, float(ceiling.min()))
            allowed = ceiling <= at_most + ROUNDING
            if allowed.any():
                mixes.append(path.at(index_of_lowest(allowed, path.errors, path.dollars)))
        if not mixes:
            raise UnreachableTargetError(
                f"no point sends at most {at_most:g} of the queries to that expert with confidence"
                f" {confidence:g}: the lowest share is {lowest:.4g}; allow more or remove the"
                " expert."
            )
        return self._point(min(mixes, key=lambda mix: (mix.error, mix.bill)), confidence, queries)

    def point(self, index: int, confidence: float, queries: int) -> OperatingPoint:
        """Return one of the router's points, or a single expert, with its two-sided intervals."""
        check_promise(confidence, queries)
        return self._point(
            Mix(index, index, 0.0, float(self.errors[index]), float(self.dollars[index]), 0.0),
            confidence,
            queries,
        )

    def exchange_rate(self, point: OperatingPoint) -> float:
        """Return the number of errors that a dollar is worth at a point of this curve.

        This is the price weight of a single vertex. Between two vertices, it is the reduction in
        errors per additional dollar; at that price, both vertices cost the same, and so does every
        mix of them.
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

    def _paths(self) -> list[MixPath]:
        """Return the operating frontier, and the frontier of single experts.

        With few rows, the latter can promise more.
        """
        bills = self.dollars
        return [
            MixPath(self, self.hull, self._optimism_at(bills[self.hull])),
            MixPath(self, self.hull_of_singles, np.zeros(len(self.hull_of_singles))),
        ]

    def _promising_paths(self, risk: float) -> list[tuple[MixPath, float]]:
        """Return the paths that may promise a quality, and the risk that each may take.

        The router's path has many points, of which the apparently cheapest one is selected. It may
        therefore take only half of the risk, and with few clusters it is excluded.
        """
        with_router, mixes = self._paths()
        if self.clusters < FEWEST_FOR_ROUTER:
            return [(mixes, risk)]
        return [(with_router, risk * _ROUTER_RISK), (mixes, risk)]

    def _optimism_at(self, bills: NDArray[np.float64]) -> NDArray[np.float64]:
        hull_bills, excess = self.optimism
        return np.asarray(np.interp(bills, hull_bills, excess))

    def _mean_score(
        self,
        dollars: NDArray[np.float64],
        errors: NDArray[np.float64],
        points: NDArray[np.intp],
        bills: NDArray[np.float64],
    ) -> float:
        vertices = points[convex_hull_indices(dollars[points], 1 - errors[points])]
        return float(np.interp(bills, dollars[vertices], 1 - errors[vertices]).mean())

    def _tail(self, confidence: float) -> float:
        """Return the quantile of the replicates at which a two-sided interval begins.

        It is widened for few clusters, so that a mean has the width of Student's interval.
        """
        units = max(self.clusters, 2.0)
        width = np.sqrt(units / (units - 1)) * t.ppf((1 + confidence) / 2, units - 1)
        return float(norm.sf(width))

    def _vertex(self, index: int, probability: float, other: int) -> Vertex:
        if index < len(self.weights):
            return Vertex(float(self.weights[index]), None, probability)
        ranking_weight = (
            float(self.weights[other]) if other < len(self.weights) else self._weight_near(index)
        )
        return Vertex(ranking_weight, int(index - len(self.weights)), probability)

    def _weight_near(self, index: int) -> float:
        """Return the router's price weight whose bill is nearest to a single expert's."""
        if not len(self.weights):
            return 0.0
        return float(
            self.weights[np.abs(self.dollars[: len(self.weights)] - self.dollars[index]).argmin()]
        )

    def _point(self, mix: Mix, confidence: float, queries: int) -> OperatingPoint:
        tail = self._tail(confidence)
        pair, chances = np.array([mix.low, mix.high]), np.array([1 - mix.share, mix.share])
        path = MixPath(self, pair, np.full(2, mix.optimism), shares=np.array([mix.share]))
        low, high = (
            float(1000 * path.bill_quantile(level, queries)[0]) for level in (tail, 1 - tail)
        )
        best, worst = (float(path.error_quantile(level, queries)[0]) for level in (tail, 1 - tail))
        base = float(1000 * self.dollars[self.baseline_index])
        bill = float(1000 * self.dollars[pair] @ chances)
        saved = 1 - bill / base if base else 0.0
        ends = (
            np.quantile(path.saved_replicates(self.baseline_index, queries)[:, 0], [tail, 1 - tail])
            if base
            and not all(
                index == self.baseline_index or not chance
                for index, chance in zip(pair, chances, strict=True)
            )
            else np.zeros(2)
        )
        kept = (
            float((1 - mix.error) / (1 - self.best_error))
            if self.best_error < 1 - ROUNDING
            else np.nan
        )
        smallest, largest = path.kept_quantiles(tail)
        vertices = [
            self._vertex(index, float(chance), other if chance < 1 else index)
            for index, chance, other in zip(pair, chances, pair[::-1], strict=True)
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
            baseline=int(self.baseline_index - len(self.weights)),
            baseline_dollars_per_1000=base,
            kept_interval=(min(smallest, kept), max(largest, kept)),
            best=self.best,
            best_score=1 - self.best_error,
            best_dollars_per_1000=float(1000 * self.dollars[self.singles[self.best]]),
            confidence=confidence,
        )
