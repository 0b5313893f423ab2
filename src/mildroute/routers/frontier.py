"""One router for every target.

Money against quality as a frontier that can be operated anywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from mildroute._hashing import request_uniforms, row_uniforms
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._cross_validation import (
    assign_folds,
    cluster_codes,
    count_units,
    fit_with_metadata,
    with_found_params,
)
from mildroute.routers._decision import argmax_last, argsort_desc
from mildroute.routers._search import REGRESSION
from mildroute.routers.base import (
    Matrix,
    RouterMixin,
    checked_rows,
    drop_zero_weight,
    posterior_of_costs,
)
from mildroute.routers.mild import MildRouter
from mildroute.routers.operating_point import (
    CostQualityCurve,
    OperatingPoint,
    check_price_weight,
    measure_curve,
)
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.topics import FeatureSets

__all__ = [
    "FoldVectors",
    "FrontierRouter",
    "RoutersAlong",
    "TrainingRows",
    "cut_into_folds",
    "cut_vectors",
    "dollars_of",
    "measure_folds",
]


_Tell: TypeAlias = Callable[[int, int, str], None]

# Price weights between two neighbors of the grid at which the held-out curve is measured.
_POINTS_BETWEEN = 4
_FEWEST_ROWS = 10
# Rows on which it is decided whether the surrogate losses are worth fitting along the grid.
_SAMPLE = 1000
# Part of the posterior that a single expert has at its vertex; the rest ranks those who are asked
# if it fails.
_TO_EXPERT = 0.6


class FoldVectors(NamedTuple):
    """Vectors of all rows by an encoder that has not seen one fold.

    Attributes:
        vectors: Vectors of all rows, shape (n, d).
        answers: Answers to all rows as features that have not seen the fold either, or none.
    """

    held_out: NDArray[np.intp]
    vectors: Any
    answers: Any = None


class TrainingRows(NamedTuple):
    """What a frontier is learned from; weights and groups may be none.

    Attributes:
        looks: How many of the columns of errors and dollars, the last ones, are looks of a cascade.
        clusters: Number of each row's cluster, from 0, shape (n,), or `None`.
    """

    X: Any
    errors: Matrix
    dollars: Matrix
    weights: NDArray[np.float64] | None
    groups: Any
    looks: int = 0
    clusters: NDArray[np.intp] | None = None

    def take(self, rows: NDArray[np.intp], vectors: Any) -> TrainingRows:
        """Some of the rows, with vectors of another encoder."""
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else np.asarray(self.groups)[rows]
        return TrainingRows(
            vectors[rows],
            self.errors[rows],
            self.dollars[rows],
            weights,
            groups,
            self.looks,
            None if self.clusters is None else cluster_codes(self.clusters[rows], len(rows)),
        )

    def costs(self, price_weight: float) -> Matrix:
        """Cost of each column on each row, shape (n, p)."""
        return np.asarray(self.errors + price_weight * self.dollars)


class FrontierRouter(RouterMixin, BaseEstimator):
    """A router along a grid of price weights, and the frontier on which its targets stand.

    Both are in one artifact. The frontier is the upper convex hull of the router's points and the
    single experts, measured on rows that the router has not seen; between two of its vertices a
    coin decides for each request. So a budget is used up, a quality is not overpaid, and no target
    does worse than a random mix of two experts except for estimation error. The method is
    chosen once, by the whole frontier.

    Args:
        router: The router to fit along the grid. By default cost regression, see
            :class:`~mildroute.routers.regression.RegressionRouter`, or :class:`MildRouter` if that
            is better, see ``thorough``.
        price_weights: The grid: how much error one dollar is worth; ascending, from 0.
        price_weight: Weight used if ``predict`` is given none and no operating point has been
            taken.
        thorough: Whether to fit :class:`MildRouter` along the grid as well, which takes as long
            again, and to keep it if its frontier is better by more than one standard error.
            ``"auto"`` does so if a surrogate loss wins a search on a sample of the rows.
        n_jobs: Processes that fit folds; none is one.
        random_state: Seed of the folds, of the routers, and of the coin.

    Attributes:
        routers_: One fitted router that takes a price weight, or one per grid point.
        grid_: The grid, shape (G,).
        curve_: Held-out dollars, errors and shares of the router's points and of the single
            experts, as plain columns.
        selection_: Which method was taken and why, in words.
        point_: The operating point in use, as plain values, or none.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 3))
        >>> # The second expert is always right, and expensive.
        >>> errors = np.stack([X[:, 0] > 0, np.zeros(300)], axis=1)
        >>> prices, weights = np.array([0.001, 0.01]), (0, 10, 1000)
        >>> router = FrontierRouter(price_weights=weights).fit(X, errors, prices=prices)
        >>> [float(router.predict(X, price_weight=w).mean().round(1)) for w in weights]
        [1.0, 0.5, 0.0]
        >>> # Between always the first, 1 dollar, and the router, 5.5 dollars.
        >>> point = router.for_budget(3.0)
        >>> point.is_mixed, round(float(router.predict(X, point=point).mean()), 1)
        (True, 0.2)
    """

    supports_price_weight = True
    _transient: ClassVar[tuple[str, ...]] = ("_folds", "_known_curve")
    _folds: list[tuple[RoutersAlong, NDArray[np.intp], Any]] | None
    point_: dict[str, Any] | None

    def __init__(
        self,
        *,
        router: Any = None,
        price_weights: Sequence[float] = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
        price_weight: float = 0.0,
        thorough: bool | Literal["auto"] = "auto",
        n_jobs: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.router = router
        self.price_weights = price_weights
        self.price_weight = price_weight
        self.thorough = thorough
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        prices: Any = None,
        groups: Any = None,
        progress: Callable[[int, int, str], None] | None = None,
        folds: Sequence[FoldVectors] | None = None,
        clusters: Any = None,
    ) -> FrontierRouter:
        """Learn from errors and dollars.

        Other routers take costs as ``y``. This one takes costs without their price, for the price
        weight that would join both is given when it decides.

        Args:
            X: Vectors, shape (n, d), dense or sparse.
            y: Error of each expert on each row (one minus its score), shape (n, p).
            sample_weight: Weight of each row, shape (n,), or none.
            prices: Dollars of each expert on each row, shape (n, p), or per expert, shape (p,);
                without them money does not matter.
            groups: Group of each training row, shape (n,), or none.
            progress: Called with steps done, steps in all and a word on the next one, or none.
            folds: Vectors of all rows by encoders that have not seen a fold, for each fold; by
                default ``X`` itself is cut into folds. An encoder that learns from its rows makes
                vectors of those rows that are unlike the vectors of new rows.
            clusters: Cluster of each row, shape (n,), or `None`; rows of a cluster, such as copies
                of a prompt, are held out and resampled together.

        Returns:
            The router itself.
        """
        X, errors, weights = self._check_fit(X, y, sample_weight)
        dollars = dollars_of(prices, errors.shape)
        if groups is not None and len(groups) != len(errors):
            raise ShapeError(f"groups must be ({len(errors)},), one per row, got {len(groups)}.")
        if weights is not None and folds is not None:
            raise ArgumentError("folds go without sample_weight; leave one of them out.")
        if weights is not None:
            groups = None if groups is None else np.asarray(groups)[weights > 0]
            clusters = None if clusters is None else np.asarray(clusters)[weights > 0]
            dollars = dollars[weights > 0]
            X, errors, weights = drop_zero_weight(X, errors, weights)
        grid = _grid(self.price_weights)
        self.grid_ = grid if dollars.any() else np.zeros(1)
        codes = cluster_codes(clusters, len(errors))
        rows = TrainingRows(X, errors, dollars, weights, groups, clusters=codes)
        parts = list(folds) if folds is not None else cut_vectors(X, self.random_state, codes)
        with checked_rows():
            found = self._fit_all(self._templates(rows), rows, parts, progress or _tell_nobody)
        taken, self.selection_ = _best(found)
        self.routers_, self._folds, self.curve_ = (
            taken.along.routers,
            taken.folds,
            asdict(taken.curve),
        )
        self.point_ = None
        self.__dict__.pop("_known_curve", None)
        return self

    def operate_at(self, point: OperatingPoint | None) -> FrontierRouter:
        """Take an operating point.

        ``predict`` and the others decide there if they are told nothing else.
        """
        check_is_fitted(self)
        if point is not None and not isinstance(point, OperatingPoint):
            raise ArgumentError(
                f"point must be an OperatingPoint or none, got {point!r}; for_quality and"
                " for_budget make one."
            )
        self.point_ = None if point is None else asdict(point)
        return self

    def set_baseline(self, expert: int | None) -> FrontierRouter:
        """Measure savings against the bill of this expert; `None` is the most expensive one."""
        check_is_fitted(self)
        self.curve_ = {**self.curve_, "baseline": expert}
        self.__dict__.pop("_known_curve", None)
        return self

    def refitted_shares(
        self, point: OperatingPoint, rows: TrainingRows, parts: Sequence[FoldVectors]
    ) -> Matrix:
        """Return the probability of each expert on each row, shape (n, p), without its part.

        For each part, a router with the settings that were found is fitted on all other rows and
        decides at the operating point.

        Args:
            point: The operating point.
            rows: The training rows.
            parts: Rows that are held out together, with vectors that have not seen them.
        """
        shares = np.zeros(rows.errors.shape)
        for part in parts:
            at, experts = part.held_out, [vertex.expert for vertex in point.vertices]
            vectors = part.vectors[at]
            weights = [vertex.price_weight for vertex in point.vertices]
            if None in experts:
                along = _fold_of(self.routers_[0], self._along(), rows, part)
                chosen = [argmax_last(each) for each in along.posteriors(vectors, weights)]
            for place, vertex in enumerate(point.vertices):
                found = chosen[place] if vertex.expert is None else vertex.expert
                shares[at, found] += vertex.probability
        return shares

    @property
    def operating_point(self) -> OperatingPoint | None:
        """The operating point in use, or none if a price weight is."""
        return None if self.point_ is None else OperatingPoint.of(self.point_)

    def predict(
        self,
        X: Any,
        price_weight: Any = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> NDArray[np.intp]:
        """Index of the expert for each row, shape (n,).

        Args:
            X: Vectors, shape (n, d).
            price_weight: Decide at this price weight (a number, or one per row) instead of the
                operating point.
            point: Decide at this operating point.
            request_ids: Id of each request: the coin between two vertices is the same for the same
                id, seed and artifact. By default the content of a row decides, and how many equal
                rows precede it.
        """
        return argmax_last(self._decided(self._check_predict(X), price_weight, point, request_ids))

    def rank(
        self,
        X: Any,
        price_weight: Any = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> NDArray[np.intp]:
        """Experts from best to worst, shape (n, p), with the arguments of ``predict``."""
        return argsort_desc(self._decided(self._check_predict(X), price_weight, point, request_ids))

    def predict_proba(
        self, X: Any, price_weight: Any = None, *, point: OperatingPoint | None = None
    ) -> Matrix:
        """Posterior over experts, shape (n, p).

        At an operating point between two vertices the mean of theirs, before the coin.
        """
        return self.posterior_unchecked(self._check_predict(X), price_weight, point=point)

    def posterior_unchecked(
        self, X: Any, price_weight: Any = None, *, point: OperatingPoint | None = None
    ) -> Matrix:
        """As ``predict_proba``, for vectors known to be sound."""
        chosen = self._point(price_weight, point)
        if chosen is None:
            return self._along().posterior(X, self._weights(price_weight, X.shape[0]))
        return np.asarray(
            sum(chance * posterior for chance, posterior in self.vertex_posteriors(X, chosen))
        )

    def decision_function(self, X: Any, price_weight: Any = None) -> Matrix:
        """Scores: the posterior, shape (n, p)."""
        return self.predict_proba(X, price_weight)

    def vertex_posteriors(self, X: Any, point: OperatingPoint) -> list[tuple[float, Matrix]]:
        """Return the probability of each vertex of an operating point, and its posterior.

        The posterior, shape (n, p), decides there. Vectors are not checked.
        """
        found = []
        posteriors = self._along().posteriors(X, [vertex.price_weight for vertex in point.vertices])
        for vertex, posterior in zip(point.vertices, posteriors, strict=True):
            if vertex.expert is not None:
                posterior = (1 - _TO_EXPERT) * posterior
                posterior[:, vertex.expert] += _TO_EXPERT
            found.append((vertex.probability, posterior))
        return found

    def cross_val_posterior(self, price_weight: float | None = None) -> Matrix:
        """Posterior of each training row by routers that have not seen its fold, shape (n, p).

        Only after a fit in this process.
        """
        check_is_fitted(self)
        if getattr(self, "_folds", None) is None:
            raise ArgumentError(
                "held-out posteriors are known only to a router that was fitted in this process;"
                " fit it again."
            )
        point = self._point(price_weight, None)
        weight = self.price_weight if price_weight is None else price_weight
        parts = (
            [(vertex.probability, vertex.price_weight, vertex.expert) for vertex in point.vertices]
            if point
            else [(1.0, weight, None)]
        )
        found = np.zeros(
            (sum(len(held_out) for _, held_out, _ in self._folds or ()), len(self.experts_))
        )
        for along, held_out, vectors in self._folds or ():
            for chance, at, expert in parts:
                kept = chance if expert is None else chance * (1 - _TO_EXPERT)
                found[held_out] += kept * along.posterior(vectors, at)
                if expert is not None:
                    found[held_out, expert] += chance * _TO_EXPERT
        return found

    def for_budget(
        self, dollars_per_1000: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """The point of highest score whose bill stays within a budget.

        Args:
            dollars_per_1000: Dollars for 1,000 queries.
            confidence: Probability with which the next ``queries`` queries stay within it.
            queries: Size of the batch that the promise is about.

        Returns:
            The operating point; an UnreachableTargetError says why there is none.
        """
        curve = self._curve()
        if not curve.dollars.any():
            raise ArgumentError(
                f"a budget of {dollars_per_1000:g} needs prices, got a router fitted without; fit"
                " with prices."
            )
        return curve.for_budget(dollars_per_1000, confidence, queries)

    def for_quality(
        self, fraction_of_best: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """The cheapest point whose score is at least this fraction of the best single expert's."""
        return self._curve().for_quality(fraction_of_best, confidence, queries)

    def for_best(self, *, confidence: float = 0.95, queries: int = 1000) -> OperatingPoint:
        """The cheapest point whose score is not significantly different from the best one's."""
        return self._curve().for_best(confidence, queries)

    def for_share(
        self, expert: str, at_most: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """The point of highest score that sends at most this share of the queries to an expert."""
        curve = self._curve()
        names = list(self.experts_)
        if expert not in names:
            raise ArgumentError(f"expert must be one of {', '.join(names)}, got {expert!r}.")
        return curve.for_share(names.index(expert), at_most, confidence, queries)

    def at(
        self, price_weight: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """Return the operating point of a price weight, without a coin.

        It is measured at the nearest weight of the held-out curve.
        """
        curve = self._curve()
        self._weights(price_weight, 1)
        nearest = curve.point(
            int(np.abs(curve.weights - min(price_weight, curve.weights[-1])).argmin()),
            confidence,
            queries,
        )
        (vertex,) = nearest.vertices
        return OperatingPoint.of(
            {
                **asdict(nearest),
                "vertices": [{**asdict(vertex), "price_weight": float(price_weight)}],
            }
        )

    def alone(
        self, expert: str, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """The operating point at which one expert answers everything."""
        curve, names = self._curve(), list(self.experts_)
        if expert not in names:
            raise ArgumentError(f"expert must be one of {', '.join(names)}, got {expert!r}.")
        return curve.point(int(curve.singles[names.index(expert)]), confidence, queries)

    @property
    def validation_(self) -> dict[str, Any]:
        """Score, bill and price weight of the operating point in use.

        Their 95% intervals are from held-out rows.
        """
        point = self.operating_point or self.at(self.price_weight)
        score, bill = point.score_interval, point.dollars_interval
        return {
            "price weight": point.price_weight,
            "score": {"value": point.score, "low": score[0], "high": score[1]},
            "dollars per 1,000 queries": {
                "value": point.dollars_per_1000,
                "low": bill[0],
                "high": bill[1],
            },
            "score of the best single expert": point.best_score,
        }

    @property
    def curve(self) -> CostQualityCurve:
        """What was measured on held-out rows."""
        return self._curve()

    def _curve(self) -> CostQualityCurve:
        check_is_fitted(self)
        if not hasattr(self, "_known_curve"):
            self._known_curve = CostQualityCurve(**self.curve_)
        return self._known_curve

    def expected_errors(self, shape: tuple[int, int]) -> Matrix:
        """Expected error of each expert on each training row, by routers that have not seen it.

        For a router in it that tells them, and before it is stored; rows of no fold are NaN.
        """
        found = np.full(shape, np.nan)
        for along, held_out, vectors in self._folds or ():
            found[held_out] = along.routers[0].expected(vectors)[0]
        return found

    def _along(self) -> RoutersAlong:
        return RoutersAlong(self.routers_, self.grid_)

    def _point(self, price_weight: Any, point: OperatingPoint | None) -> OperatingPoint | None:
        if price_weight is not None and point is not None:
            raise ArgumentError("give a price_weight or a point, not both.")
        return point if price_weight is not None or point is not None else self.operating_point

    def _weights(self, price_weight: Any, rows: int) -> Any:
        wanted = np.asarray(
            self.price_weight if price_weight is None else price_weight, dtype=np.float64
        )
        if wanted.shape not in ((), (rows,)):
            raise ShapeError(
                f"price_weight must be a number or ({rows},), one per row, got shape"
                f" {wanted.shape}."
            )
        check_price_weight(wanted)
        return wanted

    def _decided(
        self,
        X: Any,
        price_weight: Any,
        point: OperatingPoint | None,
        request_ids: Sequence[str] | None,
    ) -> Matrix:
        """The posterior that decides each row.

        Of its price weight, or of the vertex on which its coin falls.
        """
        chosen = self._point(price_weight, point)
        if request_ids is not None and len(request_ids) != X.shape[0]:
            raise ShapeError(
                f"request_ids must be {X.shape[0]}, one per row, got {len(request_ids)}."
            )
        if chosen is None:
            return self._along().posterior(X, self._weights(price_weight, X.shape[0]))
        (chance, first), *second = self.vertex_posteriors(X, chosen)
        if not second:
            return first
        seed = int(self.random_state or 0)
        fallen = (
            row_uniforms(X, seed) if request_ids is None else request_uniforms(request_ids, seed)
        )
        return np.where((fallen < chance)[:, None], first, second[0][1])

    def _templates(self, rows: TrainingRows) -> list[Any]:
        if self.router is not None:
            if isinstance(self.router, MildRouter) and self.router.hidden_layer_sizes is not None:
                raise ArgumentError(
                    "a frontier is fitted many times, which"
                    f" hidden_layer_sizes={self.router.hidden_layer_sizes!r} makes too slow; take"
                    " hidden_layer_sizes=None."
                )
            return [self.router]
        first = RegressionRouter(features="average", contrasts=True, random_state=self.random_state)
        second = MildRouter(random_state=self.random_state)
        wanted = (
            _wins_on_sample(second, rows, self.grid_) if self.thorough == "auto" else self.thorough
        )
        return [first, second] if wanted else [first]

    def _fit_all(
        self, templates: list[Any], rows: TrainingRows, parts: list[FoldVectors], tell: _Tell
    ) -> list[_Measured]:
        steps, found = len(templates) * (len(parts) + 2), []
        for number, template in enumerate(templates):
            base = number * (len(parts) + 2)
            name = type(template).__name__
            tell(base, steps, f"{name} on all rows")
            along = RoutersAlong.fitted(template, rows, self.grid_)
            tell(base + 1, steps, f"{name} on folds")
            copies = Parallel(n_jobs=self.n_jobs, return_as="generator")(
                delayed(_fold_of)(template, along, rows, part) for part in parts
            )
            folds = []
            for done, copy in enumerate(copies):
                folds.append(copy)
                tell(base + 2 + done, steps, f"{name} on folds")
            found.append(measure_folds(name, along, folds, rows, parts))
        tell(steps, steps, "done")
        return found


class RoutersAlong:
    """Fitted routers along the grid.

    One that takes a price weight, or one per grid point whose posteriors are mixed.
    """

    def __init__(self, routers: list[Any], grid: NDArray[np.float64]) -> None:
        self.routers, self.grid = routers, grid

    @classmethod
    def fitted(cls, template: Any, rows: TrainingRows, grid: NDArray[np.float64]) -> RoutersAlong:
        """Fit a router along the grid.

        What it searches for is found once, in the middle of the grid, and kept.
        """
        if _takes_prices(template):
            known = inspect.signature(template.fit).parameters
            given = {"groups": rows.groups, "clusters": rows.clusters}
            given = {name: value for name, value in given.items() if name in known}
            router = clone(template)
            router.fit(rows.X, rows.errors, rows.weights, prices=rows.dollars, **given)
            return cls([router], grid)
        shared = template
        if isinstance(template, MildRouter) and len(grid) > 1:
            middle = _fit_at(clone(template), rows, grid[len(grid) // 2])
            shared = clone(template).set_params(**_found(middle))
        return cls(_fit_all_at([clone(shared) for _ in grid], rows, grid), grid)

    def refitted(self, template: Any, rows: TrainingRows) -> RoutersAlong:
        """Copies with the same settings, fitted on other rows."""
        if _takes_prices(template):
            return self.fitted(template, rows, self.grid)
        kept = [_kept(router) for router in self.routers]
        return RoutersAlong(_fit_all_at(kept, rows, self.grid), self.grid)

    def posterior(self, X: Any, weights: Any) -> Matrix:
        """Posterior (n, p) at a price weight, or at one per row."""
        wanted = np.asarray(weights, dtype=np.float64)
        if len(self.routers) == 1:
            return self._of_one(X, wanted)
        lower, share = self._between(np.broadcast_to(wanted, X.shape[0]))
        if wanted.ndim == 0:
            ends = [(int(lower[0]), 1 - float(share[0])), (int(lower[0]) + 1, float(share[0]))]
            return np.asarray(
                sum(
                    part * self.routers[place].posterior_unchecked(X)
                    for place, part in ends
                    if part > 0
                )
            )
        mixed: NDArray[np.float64] = np.zeros((X.shape[0], len(self.routers[0].experts_)))
        for index in np.unique(np.concatenate([lower, lower + 1])):
            part = np.where(lower == index, 1 - share, np.where(lower + 1 == index, share, 0.0))
            rows = np.flatnonzero(part)
            if len(rows):
                mixed[rows] += part[rows, None] * self.routers[index].posterior_unchecked(X[rows])
        return mixed

    def posteriors(
        self, X: Any, weights: Sequence[float] | NDArray[np.float64]
    ) -> Iterator[Matrix]:
        """Posterior (n, p) at each of several price weights."""
        router, *others = self.routers
        if isinstance(router, RegressionRouter) and not others:
            # What is expected is computed once; at one row that is most of the time.
            errors, prices = router.expected(X)
            return (
                posterior_of_costs(errors if prices is None else errors + weight * prices)
                for weight in weights
            )
        return (self.posterior(X, weight) for weight in weights)

    def choices(self, X: Any, weights: NDArray[np.float64]) -> NDArray[np.intp]:
        """Expert of each row at each of many price weights, shape (W, n)."""
        if len(self.routers) == 1:
            return np.array([argmax_last(posterior) for posterior in self.posteriors(X, weights)])
        known = [router.posterior_unchecked(X) for router in self.routers]
        lower, share = self._between(weights)
        return np.array(
            [
                argmax_last((1 - part) * known[low] + part * known[low + 1])
                for low, part in zip(lower, share, strict=True)
            ]
        )

    def _of_one(self, X: Any, weights: NDArray[np.float64]) -> Matrix:
        (router,) = self.routers
        if len(self.grid) == 1 or not _takes_prices(router):
            return np.asarray(router.posterior_unchecked(X))
        if weights.ndim == 0:
            return np.asarray(router.posterior_unchecked(X, float(weights)))
        return np.vstack(
            [
                router.posterior_unchecked(X[[row]], float(weight))
                for row, weight in enumerate(weights)
            ]
        )

    def _between(self, wanted: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the grid point at or below each weight, and the share of the way to the next.

        The share is on a logarithmic scale.
        """
        scale = np.log1p(self.grid / self.grid[1])
        place = np.log1p(np.minimum(wanted, self.grid[-1]) / self.grid[1])
        lower = np.clip(np.searchsorted(scale, place, side="right") - 1, 0, len(scale) - 2)
        return lower, (place - scale[lower]) / (scale[lower + 1] - scale[lower])


def _fit_at(router: Any, rows: TrainingRows, weight: float, **views: FeatureSets) -> Any:
    """Fit a router at a price weight."""
    if views:
        return router.fit(
            rows.X, rows.costs(weight), rows.weights, rows.groups, rows.clusters, **views
        )
    return fit_with_metadata(
        router, rows.X, rows.costs(weight), rows.weights, rows.groups, rows.clusters
    )


def _fit_all_at(routers: list[Any], rows: TrainingRows, grid: NDArray[np.float64]) -> list[Any]:
    """Fit a router at each price weight.

    Topics do not depend on the weight, and are two thirds of the time at 300 rows: routers with the
    same features share them.
    """
    shared: dict[str, FeatureSets] = {}
    fitted = []
    for router, weight in zip(routers, grid, strict=True):
        if not isinstance(router, MildRouter) or not isinstance(router.features, str):
            fitted.append(_fit_at(router, rows, weight))
            continue
        if router.features not in shared:
            shared[router.features] = router.feature_sets(
                rows.X, rows.groups, rows.clusters, rows.errors.shape[1]
            )
        fitted.append(_fit_at(router, rows, weight, views=shared[router.features]))
    return fitted


@dataclass(frozen=True)
class _Measured:
    """A method with its held-out curve."""

    name: str
    along: RoutersAlong
    folds: list[tuple[RoutersAlong, NDArray[np.intp], Any]]
    curve: CostQualityCurve


def _fold_of(
    template: Any, along: RoutersAlong, rows: TrainingRows, part: FoldVectors
) -> RoutersAlong:
    """The routers that have not seen a fold."""
    seen = np.setdiff1d(np.arange(len(rows.errors)), part.held_out)
    return along.refitted(template, rows.take(seen, part.vectors))


def measure_folds(
    name: str,
    along: RoutersAlong,
    folds: Sequence[RoutersAlong],
    rows: TrainingRows,
    parts: Sequence[FoldVectors],
) -> _Measured:
    """Measure a method on rows that its routers have not seen.

    Args:
        name: Of the method.
        along: Routers that have seen all rows; they are measured where there are no folds.
        folds: Routers that have not seen a fold, for each.
        rows: All rows.
        parts: The folds.
    """
    weights = _measured_weights(along.grid)
    choices = np.empty((len(weights), len(rows.errors)), dtype=np.intp)
    refits = np.empty((len(parts), len(weights)))
    share = (
        np.full(len(rows.errors), 1 / len(rows.errors))
        if rows.weights is None
        else rows.weights / rows.weights.sum()
    )
    kept = []
    for number, (copy, part) in enumerate(zip(folds, parts, strict=True)):
        everywhere = copy.choices(part.vectors, weights)
        choices[:, part.held_out] = everywhere[:, part.held_out]
        refits[number] = np.take_along_axis(rows.dollars, everywhere.T, axis=1).T @ share
        kept.append((copy, part.held_out, part.vectors[part.held_out]))
    if not parts:
        choices[:], kept = (
            along.choices(rows.X, weights),
            [(along, np.arange(len(rows.errors)), rows.X)],
        )
    curve = measure_curve(
        weights,
        choices,
        rows.errors,
        rows.dollars,
        rows.weights,
        refits if len(parts) > 1 else None,
        rows.looks,
        rows.clusters,
    )
    return _Measured(name, along, kept, curve)


def _best(found: list[_Measured]) -> tuple[_Measured, str]:
    """The method of the best frontier.

    An earlier, simpler one if it is within one standard error of it.
    """
    gains = [each.curve.gain for each in found]
    best = int(np.argmax([gain for gain, _ in gains]))
    taken = next(
        number
        for number, (gain, _) in enumerate(gains)
        if gain >= gains[best][0] - gains[best][1] or number == best
    )
    gain, error = gains[taken]
    if gain <= 0:
        return (
            found[taken],
            "nothing that was tried is better than a coin between single experts on held-out rows",
        )
    against = (
        ""
        if len(found) == 1
        else f", the simplest within one standard error of the best of {len(found)} methods"
    )
    words = (
        f"{found[taken].name}{against}: on average {100 * gain:.1f} points of score above the best"
        " coin for the same bill"
    )
    return found[taken], f"{words} (standard error {100 * error:.1f})"


def _wins_on_sample(router: MildRouter, rows: TrainingRows, grid: NDArray[np.float64]) -> bool:
    """Tell whether a surrogate loss is clearly better than cost regression on some rows.

    They are compared at the middle of the grid.
    """
    count, experts = rows.errors.shape
    if experts == 1 or count < _FEWEST_ROWS:
        return False
    chosen = np.sort(np.random.default_rng(0).permutation(count)[:_SAMPLE])
    part = rows.take(chosen, rows.X)
    found = _fit_at(clone(router), part, grid[len(grid) // 2]).cv_results_
    costs: dict[bool, float] = {}
    for view, reward, mean in zip(found["view"], found["reward"], found["mean_cost"], strict=True):
        if view != "none":
            costs[reward == REGRESSION] = min(mean, costs.get(reward == REGRESSION, np.inf))
    # The costs of two routers on the same rows go together: half of one's standard error is about
    # one of their difference.
    return costs.get(True, np.inf) - costs.get(False, np.inf) > max(found["standard_error"]) / 2


def _takes_prices(router: Any) -> bool:
    """Whether a router is fitted on errors and prices once and told the weight at prediction."""
    return bool(getattr(router, "supports_price_weight", False))


def _found(router: MildRouter) -> dict[str, Any]:
    """What a search has found, to be kept along the grid.

    Where it did not take a surrogate loss, a plain one stands in.
    """
    if router.reward_ == REGRESSION or router.features_ == "none":
        return {
            "reward": "gap",
            "features": "raw" if router.features != "topics" else "topics",
            "alpha": 1e-2,
            "margins": "uniform",
        }
    margins = (
        router.margins
        if not isinstance(router.margins, str)
        else "uniform"
        if np.ptp(router.margins_) == 0
        else router.margins_
    )
    return {
        "reward": router.reward_,
        "features": router.features_,
        "alpha": router.alpha_,
        "margins": margins,
    }


def _kept(router: Any) -> Any:
    """An unfitted copy with the settings that were found."""
    return (
        clone(router).set_params(**_found(router))
        if isinstance(router, MildRouter)
        else with_found_params(router)
    )


def _measured_weights(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The grid and some weights between its points, evenly on a logarithmic scale."""
    if len(grid) == 1:
        return grid
    scale = np.log1p(grid / grid[1])
    between = np.linspace(0, 1, _POINTS_BETWEEN + 1, endpoint=False)
    inner = grid[1] * np.expm1(scale[:-1, None] + np.diff(scale)[:, None] * between)
    inner[:, 0] = grid[:-1]
    return np.concatenate([inner.ravel(), grid[-1:]])


def cut_into_folds(
    rows: int, random_state: int | None, clusters: NDArray[np.intp] | None = None
) -> list[NDArray[np.intp]]:
    """Return the indices of the rows of each fold; no folds if there are too few rows.

    Args:
        rows: Number of rows n.
        random_state: Seed of the folds.
        clusters: Number of each row's cluster, from 0, shape (n,), or `None`; whole clusters are
            held out.
    """
    units = count_units(clusters, rows)
    if rows < _FEWEST_ROWS or units < 2:
        return []
    # With few rows a router that lacks a fifth of them is clearly worse than the one that is
    # served; ten folds halve that.
    folds = 10 if _FEWEST_ROWS**2 <= units < 1000 else 5
    fold = assign_folds(rows, folds, random_state, clusters=clusters)
    return [np.flatnonzero(fold == current) for current in range(fold.max() + 1)]


def cut_vectors(
    X: Any, random_state: int | None, clusters: NDArray[np.intp] | None = None
) -> list[FoldVectors]:
    """Cut vectors that owe nothing to their rows into folds."""
    held_out = cut_into_folds(X.shape[0], random_state, clusters)
    return [FoldVectors(rows, X) for rows in held_out]


def _tell_nobody(_done: int, _steps: int, _word: str) -> None:
    """No progress is wanted."""


def _grid(price_weights: Sequence[float]) -> NDArray[np.float64]:
    try:
        grid = np.asarray(price_weights, dtype=np.float64)
    except (TypeError, ValueError):
        grid = np.empty(0)
    if grid.ndim != 1 or len(grid) < 2 or grid[0] != 0 or not (np.diff(grid) > 0).all():
        raise ArgumentError(
            f"price_weights must be two numbers or more that ascend from 0, got"
            f" {price_weights!r:.80}; for example (0, 1, 10, 100)."
        )
    check_price_weight(grid)
    return grid


def dollars_of(prices: Any, shape: tuple[int, int]) -> Matrix:
    """Dollars of each expert on each row, from those or from one price per expert."""
    dollars = np.zeros(shape[1]) if prices is None else np.asarray(prices, dtype=np.float64)
    if dollars.shape not in (shape, shape[1:]):
        raise ShapeError(
            f"prices must be {shape} or ({shape[1]},), got shape {dollars.shape}; one column per"
            " expert."
        )
    if not np.isfinite(dollars).all() or (dollars < 0).any():
        raise ArgumentError(
            "prices must be finite and not negative, in dollars; got a value that is not."
        )
    return np.broadcast_to(dollars, shape)
