"""Routers along a grid of price weights, interpolated between its weights."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mildroute.routers._cross_validation import cluster_codes, fit_with_metadata, with_found_params
from mildroute.routers._decision import argmax_last
from mildroute.routers._search import REGRESSION
from mildroute.routers.base import Matrix, posterior_of_costs
from mildroute.routers.features import FeatureSets
from mildroute.routers.mild import MildRouter
from mildroute.routers.regression import RegressionRouter

__all__ = ["FoldVectors", "PriceGridRouters", "TrainingRows"]


class FoldVectors(NamedTuple):
    """The vectors of all rows by an encoder that was not trained on one fold.

    Attributes:
        vectors: Vectors of all rows, shape (n, d).
        answers: Answers to all rows as features from a transformer not trained on the fold, or
            `None`.
    """

    held_out: NDArray[np.intp]
    vectors: Any
    answers: Any = None


class TrainingRows(NamedTuple):
    """The training data of a frontier; weights and groups may be `None`.

    Attributes:
        looks: Number of columns of errors and dollars, the last ones, that are looks of a cascade.
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
        """Return some of the rows, with vectors of another encoder."""
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
        """Return the cost of each column on each row, shape (n, p)."""
        return np.asarray(self.errors + price_weight * self.dollars)


class PriceGridRouters:
    """The fitted routers along the grid.

    Either one router that takes a price weight, or one per grid point, with mixed posteriors.
    """

    def __init__(self, routers: list[Any], grid: NDArray[np.float64]) -> None:
        self.routers, self.grid = routers, grid

    @classmethod
    def fitted(
        cls, template: Any, rows: TrainingRows, grid: NDArray[np.float64]
    ) -> PriceGridRouters:
        """Fit a router along the grid.

        Parameters to search are searched once, in the middle of the grid, and then fixed.
        """
        if _takes_prices(template):
            parameters = inspect.signature(template.fit).parameters
            metadata = {"groups": rows.groups, "clusters": rows.clusters}
            metadata = {name: value for name, value in metadata.items() if name in parameters}
            router = clone(template)
            router.fit(rows.X, rows.errors, rows.weights, prices=rows.dollars, **metadata)
            return cls([router], grid)
        shared = template
        if isinstance(template, MildRouter) and len(grid) > 1:
            middle = fit_at_weight(clone(template), rows, grid[len(grid) // 2])
            shared = clone(template).set_params(**_found(middle))
        return cls(fit_all_at_weights([clone(shared) for _ in grid], rows, grid), grid)

    def refitted(self, template: Any, rows: TrainingRows) -> PriceGridRouters:
        """Return copies with the same settings, fitted on other rows."""
        if _takes_prices(template):
            return self.fitted(template, rows, self.grid)
        templates = [_kept(router) for router in self.routers]
        return PriceGridRouters(fit_all_at_weights(templates, rows, self.grid), self.grid)

    def posterior(self, X: Any, weights: Any) -> Matrix:
        """Return the posterior (n, p) at a price weight, or at one per row."""
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
        """Yield the posterior (n, p) at each of several price weights."""
        router, *others = self.routers
        if isinstance(router, RegressionRouter) and not others:
            # Expected values are computed once; on one row they take most of the time.
            errors, prices = router.expected(X)
            return (
                posterior_of_costs(errors if prices is None else errors + weight * prices)
                for weight in weights
            )
        return (self.posterior(X, weight) for weight in weights)

    def choices(self, X: Any, weights: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the expert of each row at each of many price weights, shape (W, n)."""
        if len(self.routers) == 1:
            return np.array([argmax_last(posterior) for posterior in self.posteriors(X, weights)])
        posteriors = [router.posterior_unchecked(X) for router in self.routers]
        lower, share = self._between(weights)
        return np.array(
            [
                argmax_last((1 - part) * posteriors[low] + part * posteriors[low + 1])
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
        """Return the grid point at or below each weight, and the fraction of the way to the next.

        The fraction is on a logarithmic scale.
        """
        scale = np.log1p(self.grid / self.grid[1])
        log_weight = np.log1p(np.minimum(wanted, self.grid[-1]) / self.grid[1])
        lower = np.clip(np.searchsorted(scale, log_weight, side="right") - 1, 0, len(scale) - 2)
        return lower, (log_weight - scale[lower]) / (scale[lower + 1] - scale[lower])


def fit_at_weight(router: Any, rows: TrainingRows, weight: float, **views: FeatureSets) -> Any:
    """Fit a router at a price weight."""
    if views:
        return router.fit(
            rows.X, rows.costs(weight), rows.weights, rows.groups, rows.clusters, **views
        )
    return fit_with_metadata(
        router, rows.X, rows.costs(weight), rows.weights, rows.groups, rows.clusters
    )


def fit_all_at_weights(
    routers: list[Any], rows: TrainingRows, grid: NDArray[np.float64]
) -> list[Any]:
    """Fit a router at each price weight.

    Topics do not depend on the weight and take two thirds of the time at 300 rows, so routers with
    the same features share them.
    """
    shared: dict[str, FeatureSets] = {}
    fitted = []
    for router, weight in zip(routers, grid, strict=True):
        if not isinstance(router, MildRouter) or not isinstance(router.features, str):
            fitted.append(fit_at_weight(router, rows, weight))
            continue
        if router.features not in shared:
            shared[router.features] = router.feature_sets(
                rows.X, rows.groups, rows.clusters, rows.errors.shape[1]
            )
        fitted.append(fit_at_weight(router, rows, weight, views=shared[router.features]))
    return fitted


def _takes_prices(router: Any) -> bool:
    """Return whether a router is fitted once on errors and prices and takes a weight later."""
    return bool(getattr(router, "supports_price_weight", False))


def _found(router: MildRouter) -> dict[str, Any]:
    """Return the settings that a search selected, to be fixed along the grid.

    If the search did not select a surrogate loss, a plain one stands in.
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
    """Return an unfitted copy with the selected settings."""
    return (
        clone(router).set_params(**_found(router))
        if isinstance(router, MildRouter)
        else with_found_params(router)
    )
