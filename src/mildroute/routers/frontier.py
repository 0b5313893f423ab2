"""One router for every price of quality."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from mildroute.errors import ArgumentError, ShapeError
from mildroute.routers.base import Matrix, RouterMixin
from mildroute.routers.cross_fit import fit_with, held_out_posterior
from mildroute.routers.mild import MildRouter
from mildroute.routers.operating import Curve, OperatingPoint, curve_of
from mildroute.routers.order import descending, largest
from mildroute.routers.row_weights import positive_rows

__all__ = ["FrontierRouter"]

_Tell: TypeAlias = Callable[[int, int, str], None]

_POINTS_BETWEEN = 4
"""Price weights between two neighbours of the grid at which the held-out curve is measured."""


class _Rows(NamedTuple):
    """The training rows; weights and groups may be none."""

    X: Any
    errors: Matrix
    dollars: Matrix
    weights: NDArray[np.float64] | None
    groups: Any

    def costs(self, price_weight: float) -> Matrix:
        return np.asarray(self.errors + price_weight * self.dollars)

    def fitted(self, router: Any, price_weight: float) -> Any:
        return fit_with(clone(router), self.X, self.costs(price_weight), self.weights, self.groups)


class FrontierRouter(RouterMixin, BaseEstimator):
    """Routers along a grid of price weights in one artifact; the weight is chosen at prediction, per call or per row.

    The search of a :class:`MildRouter` for features, reward and margins runs at three points of the grid; the others take what the nearest
    of them has found, and only the penalty is chosen anew, the best single expert always among the candidates. Any other router is
    fitted anew at each point, and on five parts of the rows besides, to know what it says of rows that it has not seen. Between
    two grid points their posteriors are mixed.

    Args:
        router: The router to fit along the grid; by default :class:`MildRouter`.
        price_weights: The grid: how much error one dollar is worth; ascending, from 0.
        price_weight: Weight used where ``predict`` is given none.

    Attributes:
        routers_: One fitted router per grid point.
        grid_: The grid, shape (G,).
        curve_: Held-out dollars, errors and shares along the weights, as plain columns.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 3))
        >>> errors = np.stack([X[:, 0] > 0, np.zeros(300)], axis=1)  # the second expert is always right ...
        >>> router = FrontierRouter(price_weights=(0, 10, 1000)).fit(X, errors, prices=np.array([0.001, 0.01]))  # ... and dearer
        >>> [float(router.predict(X, price_weight=weight).mean().round(1)) for weight in (0, 10, 1000)]
        [1.0, 0.5, 0.0]
    """

    _scratch: ClassVar[tuple[str, ...]] = ("_held_out",)
    _held_out: list[Matrix] | None

    def __init__(
        self,
        *,
        router: Any = None,
        price_weights: Sequence[float] = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
        price_weight: float = 0.0,
    ) -> None:
        self.router = router
        self.price_weights = price_weights
        self.price_weight = price_weight

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        prices: Any = None,
        groups: Any = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> FrontierRouter:
        """Learn from errors and dollars.

        Args:
            X: Vectors, shape (n, d), dense or sparse.
            y: Error of each expert on each row (one minus its score), shape (n, p).
            sample_weight: Weight of each row, shape (n,), or none.
            prices: Dollars of each expert on each row, shape (n, p), or per expert, shape (p,); without them money does not matter.
            groups: Group of each training row, shape (n,), or none.
            progress: Called with steps done, steps in all and a word on the next one, or none.

        Returns:
            The router itself.
        """
        X, errors, weights = self._check_fit(X, y, sample_weight)
        dollars = _dollars(prices, errors.shape)
        if weights is not None:
            groups = None if groups is None else np.asarray(groups)[weights > 0]
            dollars = dollars[weights > 0]
            X, errors, weights = positive_rows(X, errors, weights)
        self.grid_ = _grid(self.price_weights) if dollars.any() else np.zeros(1)
        template = MildRouter() if self.router is None else self.router
        rows = _Rows(X, errors, dollars, weights, groups)
        along = self._searched if _has_search(template) else self._crossed
        self.routers_, self._held_out = along(template, rows, progress or _tell_nobody)
        self.curve_ = asdict(self._held_out_curve(errors, dollars, weights))
        return self

    def _searched(self, template: MildRouter, rows: _Rows, tell: _Tell) -> tuple[list[Any], None]:
        """Routers along the grid that share what a search at a few points has found; they keep their held-out rows themselves."""
        anchors = _anchors(len(self.grid_))
        steps, found, routers = len(anchors) + len(self.grid_), [], []
        for done, place in enumerate(anchors):
            tell(done, steps, f"search at price weight {self.grid_[place]:g}")
            found.append(_settled(rows.fitted(template, self.grid_[place])))
        for place, weight in enumerate(self.grid_):
            tell(len(anchors) + place, steps, f"price weight {weight:g}")
            settled = clone(template).set_params(**found[int(np.abs(anchors - place).argmin())])
            routers.append(rows.fitted(settled, weight))
        tell(steps, steps, "done")
        return routers, None

    def _crossed(self, template: Any, rows: _Rows, tell: _Tell) -> tuple[list[Any], list[Matrix]]:
        """Routers along the grid, and their posteriors of rows that copies of them have not seen."""
        steps, routers, held_out = len(self.grid_), [], []
        for done, weight in enumerate(self.grid_):
            tell(done, steps, f"price weight {weight:g}")
            routers.append(rows.fitted(template, weight))
            held_out.append(held_out_posterior(routers[-1], rows.X, rows.costs(weight), rows.weights, rows.groups))
        tell(steps, steps, "done")
        return routers, held_out

    def predict(self, X: Any, price_weight: Any = None) -> NDArray[np.intp]:
        """Index of the expert for each row at a price weight (a number, or one per row), shape (n,)."""
        return largest(self.predict_proba(X, price_weight))

    def rank(self, X: Any, price_weight: Any = None) -> NDArray[np.intp]:
        """Experts from best to worst at a price weight, shape (n, p)."""
        return descending(self.predict_proba(X, price_weight))

    def predict_proba(self, X: Any, price_weight: Any = None) -> Matrix:
        """Posterior over experts at a price weight, shape (n, p)."""
        return self.posterior_unchecked(self._check_predict(X), price_weight)

    def posterior_unchecked(self, X: Any, price_weight: Any = None) -> Matrix:
        """As ``predict_proba``, for vectors known to be sound."""
        wanted = np.asarray(self.price_weight if price_weight is None else price_weight, dtype=np.float64)
        if wanted.shape not in ((), (X.shape[0],)):
            raise ShapeError(f"price_weight must be a number or ({X.shape[0]},), one per row, got shape {wanted.shape}.")
        lower, share = self._between(np.broadcast_to(wanted, X.shape[0]))
        mixed = np.zeros((X.shape[0], len(self.experts_)))
        for index in np.unique(np.concatenate([lower, lower + 1])):
            part = np.where(lower == index, 1 - share, np.where(lower + 1 == index, share, 0.0))
            rows = np.flatnonzero(part)
            if len(rows):
                mixed[rows] += part[rows, None] * self.routers_[index].posterior_unchecked(X[rows])
        return mixed

    def decision_function(self, X: Any, price_weight: Any = None) -> Matrix:
        """Scores at a price weight: the posterior, shape (n, p)."""
        return self.predict_proba(X, price_weight)

    def held_out_posterior(self, price_weight: float | None = None) -> Matrix:
        """Posterior of each training row by routers that have not seen its fold, shape (n, p); only after a fit in this process."""
        check_is_fitted(self)
        wanted = self.price_weight if price_weight is None else price_weight
        return np.asarray(sum(part * self._held_out_at(place) for place, part in self._parts(wanted)))

    def mixture(self, price_weight: float) -> list[tuple[Any, float]]:
        """The one or two routers of the grid whose posteriors are mixed at a price weight, and the part of each."""
        return [(self.routers_[place], part) for place, part in self._parts(price_weight)]

    def for_budget(self, dollars_per_1000: float, *, confidence: float = 0.95, queries: int = 1000) -> OperatingPoint:
        """The price weight of lowest error whose bill stays within a budget.

        Args:
            dollars_per_1000: Dollars for 1,000 queries.
            confidence: Probability with which the next ``queries`` queries stay within it.
            queries: Size of the batch that the promise is about.

        Returns:
            The operating point; an UnreachableTargetError says why there is none.
        """
        return self._curve().for_budget(dollars_per_1000, confidence, queries)

    def for_quality(self, fraction_of_best: float, *, confidence: float = 0.95, queries: int = 1000) -> OperatingPoint:
        """The cheapest price weight whose score is at least this fraction of the best single expert's."""
        return self._curve().for_quality(fraction_of_best, confidence, queries)

    def for_best(self, *, confidence: float = 0.95, queries: int = 1000) -> OperatingPoint:
        """The cheapest price weight whose score is not told apart from the best one's."""
        return self._curve().for_best(confidence, queries)

    def for_share(self, expert: str, at_most: float, *, confidence: float = 0.95, queries: int = 1000) -> OperatingPoint:
        """The price weight of lowest error that sends at most this share of the queries to an expert."""
        curve = self._curve()
        names = list(self.experts_)
        if expert not in names:
            raise ArgumentError(f"expert must be one of {', '.join(names)}, got {expert!r}.")
        return curve.for_share(names.index(expert), at_most, confidence, queries)

    def at(self, price_weight: float, *, confidence: float = 0.95, queries: int = 1000) -> OperatingPoint:
        """The operating point of a price weight, measured at the nearest weight of the held-out curve."""
        curve = self._curve()
        self._between(np.array([price_weight], dtype=np.float64))
        nearest = curve.point(int(np.abs(curve.weights - price_weight).argmin()), confidence, queries)
        return replace(nearest, price_weight=float(price_weight))

    @property
    def validation_(self) -> dict[str, Any]:
        """Score, bill and price weight of the operating point in use, with 95% intervals from held-out rows."""
        point = self.at(self.price_weight)
        score, bill = point.score_interval, point.dollars_interval
        return {
            "price weight": point.price_weight,
            "score": {"value": point.score, "low": score[0], "high": score[1]},
            "dollars per 1,000 queries": {"value": point.dollars_per_1000, "low": bill[0], "high": bill[1]},
            "score of the best single expert": 1 - self._curve().best_error,
        }

    def _curve(self) -> Curve:
        check_is_fitted(self)
        return Curve(**self.curve_)

    def _between(self, wanted: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Grid point at or below each weight, and how far it lies towards the next one, on a logarithmic scale."""
        if not ((wanted >= 0).all() and np.isfinite(wanted).all()):
            raise ArgumentError(f"price_weight must be finite and not negative, got {wanted.min()} to {wanted.max()}.")
        scale = np.log1p(self.grid_ / max(self.grid_[1], 1e-300)) if len(self.grid_) > 1 else self.grid_
        if len(self.grid_) == 1:
            return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted))
        place = np.log1p(np.minimum(wanted, self.grid_[-1]) / self.grid_[1])
        lower = np.clip(np.searchsorted(scale, place, side="right") - 1, 0, len(scale) - 2)
        return lower, (place - scale[lower]) / (scale[lower + 1] - scale[lower])

    def _parts(self, price_weight: float) -> list[tuple[int, float]]:
        """The one or two points of the grid that are mixed at a price weight, and the part of each."""
        (lower,), (share,) = self._between(np.array([price_weight], dtype=np.float64))
        return [(place, part) for place, part in ((int(lower), 1 - float(share)), (int(lower) + 1, float(share))) if part > 0]

    def _held_out_at(self, place: int) -> Matrix:
        """Held-out posterior of the training rows at a point of the grid."""
        known, router = getattr(self, "_held_out", None), self.routers_[place]
        if known is None and not isinstance(router, MildRouter):
            raise ArgumentError("held-out posteriors are known only to a router that was fitted in this process; fit it again.")
        return np.asarray(router.held_out_posterior() if known is None else known[place])

    def _held_out_curve(self, errors: Matrix, dollars: Matrix, row_weights: NDArray[np.float64] | None) -> Curve:
        """Choices of held-out rows at the grid and between its points."""
        posteriors = [self._held_out_at(place) for place in range(len(self.routers_))]
        weights, choices = [], []
        for index, low in enumerate(self.grid_):
            last = index == len(self.grid_) - 1
            for share in [0.0] if last else np.linspace(0, 1, _POINTS_BETWEEN + 1, endpoint=False):
                mixed = posteriors[index] if last else (1 - share) * posteriors[index] + share * posteriors[index + 1]
                weights.append(low if share == 0 else self._weight_at(index, share))
                choices.append(largest(mixed))
        return curve_of(np.array(weights, dtype=np.float64), np.array(choices), errors, dollars, row_weights)

    def _weight_at(self, index: int, share: float) -> float:
        unit = self.grid_[1]
        low, high = np.log1p(self.grid_[index : index + 2] / unit)
        return float(unit * np.expm1(low + share * (high - low)))


def _has_search(template: Any) -> bool:
    """Whether a router searches for settings that are worth keeping along the grid."""
    if not isinstance(template, MildRouter):
        return False
    if template.hidden is not None:
        raise ArgumentError(f"a frontier needs held-out rows, which hidden={template.hidden!r} does not keep; take hidden=None.")
    return True


def _anchors(points: int) -> NDArray[np.intp]:
    """Places of a grid at which everything is searched for: at a quarter, a half and three quarters of it."""
    return np.unique([points // 4, points // 2, 3 * points // 4])


def _tell_nobody(_done: int, _steps: int, _word: str) -> None:
    """No progress is wanted."""


def _settled(router: MildRouter) -> dict[str, Any]:
    """What a search has found, to be kept at the points near it; the penalty stays free."""
    settled: dict[str, Any] = {"reward": router.reward_}
    if router.features_ != "none":
        settled["features"] = router.features_
    if isinstance(router.margins, str):
        settled["margins"] = "uniform" if np.ptp(router.margins_) == 0 else router.margins_
    return settled


def _grid(price_weights: Sequence[float]) -> NDArray[np.float64]:
    grid = np.asarray(price_weights, dtype=np.float64)
    if grid.ndim != 1 or len(grid) < 2 or grid[0] != 0 or not (np.diff(grid) > 0).all():
        raise ArgumentError(f"price_weights must ascend from 0, at least two of them, got {list(price_weights)}.")
    return grid


def _dollars(prices: Any, shape: tuple[int, int]) -> Matrix:
    dollars = np.zeros(shape[1]) if prices is None else np.asarray(prices, dtype=np.float64)
    if dollars.shape not in (shape, shape[1:]):
        raise ShapeError(f"prices must be {shape} or ({shape[1]},), got shape {dollars.shape}; one column per expert.")
    if not np.isfinite(dollars).all() or (dollars < 0).any():
        raise ArgumentError("prices must be finite and not negative, in dollars; got a value that is not.")
    return np.broadcast_to(dollars, shape)
