"""A router for every target, which can operate at any point of its cost-quality frontier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._order import argmax_last, argsort_desc
from mildroute.routers.base import RouterMixin
from mildroute.routers.frontier.curve import CostQualityCurve
from mildroute.routers.frontier.folds import (
    MeasuredMethod,
    cut_vectors,
    measure_folds,
    refit_without,
)
from mildroute.routers.frontier.method_selection import candidate_methods, select_method
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.price_grid import PriceGridRouters
from mildroute.routers.frontier.random_split import request_draws, row_draws, select_vertex
from mildroute.routers.frontier.target import check_price_weight
from mildroute.routers.training_rows import FoldVectors, Matrix, Progress, TrainingRows

__all__ = ["FrontierRouter"]

# Share of the posterior that a single expert has at its vertex. The other experts share the rest,
# which ranks them in case the first one fails.
_TO_EXPERT = 0.6


class FrontierRouter(RouterMixin, BaseEstimator):
    """A router along a grid of price weights, with a frontier on which targets select a point.

    One artifact contains both. The frontier is the upper convex hull of the router's points and the
    single experts, measured on rows that the router was not trained on. Between two of its
    vertices, each request is decided at random. A budget is therefore used up, a quality is not
    overpaid, and no target does worse than a random mix of two experts, up to estimation error. The
    method is chosen once, for the whole frontier.

    Quality targets interpret costs as errors: a score is one minus the cost without the price.

    Args:
        router: The router to fit along the grid. Defaults to cost regression (see
            :class:`~mildroute.routers.regression.RegressionRouter`), or to :class:`MildRouter` if
            it is better (see ``thorough``).
        price_weights: The grid, in units of error per dollar, ascending from 0.
        price_weight: Weight used if ``predict`` receives `None` and no operating point is set.
        thorough: Whether to fit :class:`MildRouter` along the grid as well, which doubles the time,
            and to select it if its frontier is better by more than one standard error. ``"auto"``
            does so if a surrogate loss wins a search on a sample of the rows.
        n_jobs: Number of processes that fit folds; `None` means one.
        random_state: Seed of the folds, of the routers, and of random mixes.

    Attributes:
        routers_: One fitted router that takes a price weight, or one per grid point.
        grid_: The grid, shape (G,).
        curve_: Held-out dollars, errors and shares of the router's points and of the single
            experts, as plain columns.
        selection_: Description of the selected method and the reason.
        point_: The operating point in use, as plain values, or `None`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 3))
        >>> # The second expert is always right, and expensive.
        >>> errors = np.stack([X[:, 0] > 0, np.zeros(300)], axis=1)
        >>> prices, weights = np.array([0.001, 0.01]), (0, 10, 1000)
        >>> router = FrontierRouter(price_weights=weights).fit(X, errors, prices=prices)
        >>> [float(router.predict(X, price_weight=w).mean().round(1)) for w in weights]
        [1.0, 0.5, 0.0]
        >>> # The budget lies between the first expert (1 dollar) and the router (5.5 dollars).
        >>> point = router.for_budget(3.0)
        >>> point.is_mixed, round(float(router.predict(X, point=point).mean()), 1)
        (True, 0.2)
    """

    supports_prices = True
    supports_folds = True
    has_operating_points = True
    keeps_held_out_posterior = True
    _transient: ClassVar[tuple[str, ...]] = ("_folds", "_known_curve")
    _folds: list[tuple[PriceGridRouters, NDArray[np.intp], Any]] | None = None
    _known_curve: CostQualityCurve | None = None
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

    def _fit_rows(self, rows: TrainingRows, progress: Progress | None) -> None:
        if rows.sample_weight is not None and rows.folds is not None:
            raise ArgumentError("folds cannot be combined with sample_weight; omit one of them.")
        rows = rows.with_weight()
        grid = _grid(self.price_weights)
        self.grid_ = grid if rows.dollars.any() else np.zeros(1)
        folds = rows.folds
        if folds is None:
            folds = cut_vectors(rows.X, self.random_state, rows.clusters)
        candidates = candidate_methods(
            self.router,
            rows,
            self.grid_,
            thorough=self.thorough,
            random_state=self.random_state,
        )
        methods = self._fit_all(candidates, rows, folds, progress or _ignore_progress)
        selected, self.selection_ = select_method(methods)
        self.routers_ = selected.along.routers
        self._folds = selected.folds
        self.curve_ = asdict(selected.curve)
        self.point_ = None
        self._known_curve = None

    def operate_at(self, point: OperatingPoint | None) -> FrontierRouter:
        """Set the operating point.

        ``predict`` and related methods use it unless an argument overrides it.
        """
        check_is_fitted(self)
        if point is not None and not isinstance(point, OperatingPoint):
            raise ArgumentError(
                f"point must be an OperatingPoint or None, got {point!r}; for_quality and"
                " for_budget return one."
            )
        self.point_ = None if point is None else asdict(point)
        return self

    def set_baseline(self, expert: int | None) -> FrontierRouter:
        """Measure savings against this expert's bill; `None` means the most expensive expert."""
        check_is_fitted(self)
        self.curve_ = {**self.curve_, "baseline": expert}
        self._known_curve = None
        return self

    def refitted_shares(
        self, point: OperatingPoint, rows: TrainingRows, parts: Sequence[FoldVectors]
    ) -> Matrix:
        """Return the probability of each expert on each row, shape (n, p), out of fold.

        For each part, a router with the selected settings is fitted on all other rows and decides
        at the operating point.

        Args:
            point: The operating point.
            rows: The training rows.
            parts: Rows that are held out together, with vectors by encoders not trained on them.
        """
        shares = np.zeros(rows.costs.shape)
        for part in parts:
            at, experts = part.held_out, [vertex.expert for vertex in point.vertices]
            vectors = part.vectors[at]
            weights = [vertex.price_weight for vertex in point.vertices]
            if None in experts:
                along = refit_without(self.routers_[0], self._along(), rows, part)
                chosen = [argmax_last(each) for each in along.posteriors(vectors, weights)]
            for number, vertex in enumerate(point.vertices):
                choice = chosen[number] if vertex.expert is None else vertex.expert
                shares[at, choice] += vertex.probability
        return shares

    @property
    def operating_point(self) -> OperatingPoint | None:
        """Return the operating point in use, or `None` if a price weight is in use."""
        return None if self.point_ is None else OperatingPoint.from_plain(self.point_)

    def predict(
        self,
        X: Any,
        price_weight: Any = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> NDArray[np.intp]:
        """Return the index of the expert for each row, shape (n,).

        Args:
            X: Vectors, shape (n, d).
            price_weight: Decide at this price weight (a number, or one per row) instead of the
                operating point.
            point: Decide at this operating point.
            request_ids: Id of each request: the random choice between two vertices is the same for
                the same id, seed and artifact. By default it depends on the content of the row and
                on the number of equal rows before it.
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
        """Return experts from best to worst, shape (n, p), with the arguments of ``predict``."""
        return argsort_desc(self._decided(self._check_predict(X), price_weight, point, request_ids))

    def predict_proba(
        self, X: Any, price_weight: Any = None, *, point: OperatingPoint | None = None
    ) -> Matrix:
        """Return the posterior over experts, shape (n, p).

        At an operating point between two vertices, it is the mean of their posteriors, before the
        random choice.
        """
        return self.posterior_unchecked(self._check_predict(X), price_weight, point=point)

    def posterior_unchecked(
        self, X: Any, price_weight: Any = None, *, point: OperatingPoint | None = None
    ) -> Matrix:
        """Return the same as ``predict_proba``, without checking the vectors."""
        chosen = self._point(price_weight, point)
        if chosen is None:
            return self._along().posterior(X, self._weights(price_weight, X.shape[0]))
        return np.asarray(
            sum(chance * posterior for chance, posterior in self.vertex_posteriors(X, chosen))
        )

    def decision_function(self, X: Any, price_weight: Any = None) -> Matrix:
        """Return the posterior as scores, shape (n, p)."""
        return self.predict_proba(X, price_weight)

    def vertex_posteriors(self, X: Any, point: OperatingPoint) -> list[tuple[float, Matrix]]:
        """Return the probability of each vertex of an operating point, and the vertex's posterior.

        The posterior has shape (n, p). Vectors are not checked.
        """
        result = []
        posteriors = self._along().posteriors(X, [vertex.price_weight for vertex in point.vertices])
        for vertex, posterior in zip(point.vertices, posteriors, strict=True):
            if vertex.expert is not None:
                posterior = (1 - _TO_EXPERT) * posterior
                posterior[:, vertex.expert] += _TO_EXPERT
            result.append((vertex.probability, posterior))
        return result

    def cross_val_posterior(self, price_weight: float | None = None) -> Matrix:
        """Return out-of-fold posteriors of the training rows, shape (n, p).

        They are available only after a fit in this process.
        """
        check_is_fitted(self)
        if self._folds is None:
            raise ArgumentError(
                "held-out posteriors are available only from a router that was fitted in this"
                " process; fit it again."
            )
        point = self._point(price_weight, None)
        weight = self.price_weight if price_weight is None else price_weight
        parts = (
            [(vertex.probability, vertex.price_weight, vertex.expert) for vertex in point.vertices]
            if point
            else [(1.0, weight, None)]
        )
        posterior = np.zeros(
            (sum(len(held_out) for _, held_out, _ in self._folds or ()), len(self.experts_))
        )
        for along, held_out, vectors in self._folds or ():
            for chance, at, expert in parts:
                share = chance if expert is None else chance * (1 - _TO_EXPERT)
                posterior[held_out] += share * along.posterior(vectors, at)
                if expert is not None:
                    posterior[held_out, expert] += chance * _TO_EXPERT
        return posterior

    def for_budget(
        self, dollars_per_1000: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """Return the point with the highest score whose bill stays within a budget.

        Args:
            dollars_per_1000: Dollars for 1,000 queries.
            confidence: Probability with which the next ``queries`` queries stay within the budget.
            queries: Size of the batch that the promise covers.

        Returns:
            The operating point. An UnreachableTargetError explains why there is none.
        """
        curve = self._curve()
        if not curve.dollars.any():
            raise ArgumentError(
                f"a budget of {dollars_per_1000:g} needs prices, got a router fitted without them;"
                " fit with prices."
            )
        return curve.for_budget(dollars_per_1000, confidence, queries)

    def for_quality(
        self, fraction_of_best: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """Return the cheapest point that keeps this fraction of the best single expert's score."""
        return self._curve().for_quality(fraction_of_best, confidence, queries)

    def for_best(self, *, confidence: float = 0.95, queries: int = 1000) -> OperatingPoint:
        """Return the cheapest point whose score does not differ significantly from the best."""
        return self._curve().for_best(confidence, queries)

    def for_share(
        self, expert: str, at_most: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """Return the point with the highest score that limits an expert's share of queries."""
        curve = self._curve()
        names = list(self.experts_)
        if expert not in names:
            raise ArgumentError(f"expert must be one of {', '.join(names)}, got {expert!r}.")
        return curve.for_share(names.index(expert), at_most, confidence, queries)

    def at(
        self, price_weight: float, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """Return the operating point of a price weight, without a random mix.

        Its figures are measured at the nearest weight of the held-out curve.
        """
        curve = self._curve()
        self._weights(price_weight, 1)
        nearest = curve.point(
            int(np.abs(curve.weights - min(price_weight, curve.weights[-1])).argmin()),
            confidence,
            queries,
        )
        (vertex,) = nearest.vertices
        return OperatingPoint.from_plain(
            {
                **asdict(nearest),
                "vertices": [{**asdict(vertex), "price_weight": float(price_weight)}],
            }
        )

    def alone(
        self, expert: str, *, confidence: float = 0.95, queries: int = 1000
    ) -> OperatingPoint:
        """Return the operating point at which one expert answers all queries."""
        curve, names = self._curve(), list(self.experts_)
        if expert not in names:
            raise ArgumentError(f"expert must be one of {', '.join(names)}, got {expert!r}.")
        return curve.point(int(curve.singles[names.index(expert)]), confidence, queries)

    @property
    def validation_(self) -> dict[str, Any]:
        """Return score, bill and price weight of the operating point in use.

        The 95% intervals are from held-out rows.
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
        """Return the curve measured on held-out rows."""
        return self._curve()

    def _curve(self) -> CostQualityCurve:
        check_is_fitted(self)
        if self._known_curve is None:
            self._known_curve = CostQualityCurve(**self.curve_)
        return self._known_curve

    def expected_errors(self, shape: tuple[int, int]) -> Matrix:
        """Return the expected error of each expert on each training row, out of fold.

        It is available only if the fitted routers predict errors, and only before the router is
        stored. Rows in no fold are NaN.
        """
        errors = np.full(shape, np.nan)
        for along, held_out, vectors in self._folds or ():
            errors[held_out] = along.routers[0].expected(vectors)[0]
        return errors

    def _along(self) -> PriceGridRouters:
        return PriceGridRouters(self.routers_, self.grid_)

    def _point(self, price_weight: Any, point: OperatingPoint | None) -> OperatingPoint | None:
        if price_weight is not None and point is not None:
            raise ArgumentError("pass a price_weight or a point, not both.")
        return point if price_weight is not None or point is not None else self.operating_point

    def _weights(self, price_weight: Any, rows: int) -> Any:
        weights = np.asarray(
            self.price_weight if price_weight is None else price_weight, dtype=np.float64
        )
        if weights.shape not in ((), (rows,)):
            raise ShapeError(
                f"price_weight must be a number or ({rows},), one per row, got shape"
                f" {weights.shape}."
            )
        check_price_weight(weights)
        return weights

    def _decided(
        self,
        X: Any,
        price_weight: Any,
        point: OperatingPoint | None,
        request_ids: Sequence[str] | None,
    ) -> Matrix:
        """Return the posterior that decides each row.

        It is that of the row's price weight, or of the vertex drawn for the row.
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
        draws = row_draws(X, seed) if request_ids is None else request_draws(request_ids, seed)
        is_first = select_vertex(draws, chance) == 0
        return np.where(is_first[:, None], first, second[0][1])

    def _fit_all(
        self,
        templates: list[Any],
        rows: TrainingRows,
        parts: Sequence[FoldVectors],
        progress: Progress,
    ) -> list[MeasuredMethod]:
        steps, methods = len(templates) * (len(parts) + 2), []
        for index, template in enumerate(templates):
            base = index * (len(parts) + 2)
            name = type(template).__name__
            progress(base, steps, f"{name} on all rows")
            along = PriceGridRouters.fitted(template, rows, self.grid_)
            progress(base + 1, steps, f"{name} on folds")
            copies = Parallel(n_jobs=self.n_jobs, return_as="generator")(
                delayed(refit_without)(template, along, rows, part) for part in parts
            )
            folds = []
            for done, copy in enumerate(copies):
                folds.append(copy)
                progress(base + 2 + done, steps, f"{name} on folds")
            methods.append(measure_folds(name, along, folds, rows, parts))
        progress(steps, steps, "done")
        return methods


def _ignore_progress(_done: int, _steps: int, _description: str) -> None:
    """Ignore progress."""


def _grid(price_weights: Sequence[float]) -> NDArray[np.float64]:
    try:
        grid = np.asarray(price_weights, dtype=np.float64)
    except (TypeError, ValueError):
        grid = np.empty(0)
    if grid.ndim != 1 or len(grid) < 2 or grid[0] != 0 or not (np.diff(grid) > 0).all():
        raise ArgumentError(
            f"price_weights must be two or more numbers that ascend from 0, got"
            f" {price_weights!r:.80}; for example (0, 1, 10, 100)."
        )
    check_price_weight(grid)
    return grid
