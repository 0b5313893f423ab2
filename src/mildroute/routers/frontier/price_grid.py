"""Routers along a grid of price weights, with interpolation between its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mildroute.routers._order import argmax_last
from mildroute.routers.feature_sets import FeatureSets
from mildroute.routers.training_rows import Matrix, TrainingRows

__all__ = ["PriceGridRouters"]


class PriceGridRouters:
    """The fitted routers along the grid.

    There is either one router that takes a price weight, or one router per grid point, whose
    posteriors are mixed.
    """

    def __init__(self, routers: list[Any], grid: NDArray[np.float64]) -> None:
        self.routers, self.grid = routers, grid

    @classmethod
    def fitted(
        cls, template: Any, rows: TrainingRows, grid: NDArray[np.float64]
    ) -> PriceGridRouters:
        """Fit a router along the grid.

        Parameters are searched once, in the middle of the grid, and then fixed.
        """
        if template.supports_prices:
            return cls([clone(template).fit_rows(replace(rows, prices=rows.dollars))], grid)
        shared = template
        if template.searches_once_for_all_prices and len(grid) > 1:
            middle = clone(template).fit_rows(rows.at_price(grid[len(grid) // 2]))
            shared = middle.with_selected_parameters()
        return cls(fit_all_at_weights([clone(shared) for _ in grid], rows, grid), grid)

    def refitted(self, template: Any, rows: TrainingRows) -> PriceGridRouters:
        """Return copies with the same settings, fitted on other rows."""
        if template.supports_prices:
            return self.fitted(template, rows, self.grid)
        templates = [router.with_selected_parameters() for router in self.routers]
        return PriceGridRouters(fit_all_at_weights(templates, rows, self.grid), self.grid)

    def posterior(self, X: Any, weights: Any) -> Matrix:
        """Return the posterior (n, p) at a price weight, or at one per row."""
        price_weights = np.asarray(weights, dtype=np.float64)
        if len(self.routers) == 1:
            return self._single_posterior(X, price_weights)
        lower, share = self._between(np.broadcast_to(price_weights, X.shape[0]))
        if price_weights.ndim == 0:
            ends = [(int(lower[0]), 1 - float(share[0])), (int(lower[0]) + 1, float(share[0]))]
            return np.asarray(
                sum(
                    part * self.routers[index].posterior_unchecked(X)
                    for index, part in ends
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
        if router.supports_prices and not others:
            return router.posteriors_at(X, weights)
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

    def _single_posterior(self, X: Any, weights: NDArray[np.float64]) -> Matrix:
        (router,) = self.routers
        if len(self.grid) == 1 or not router.supports_prices:
            return np.asarray(router.posterior_unchecked(X))
        if weights.ndim == 0:
            return np.asarray(router.posterior_unchecked(X, float(weights)))
        return np.vstack(
            [
                router.posterior_unchecked(X[[row]], float(weight))
                for row, weight in enumerate(weights)
            ]
        )

    def _between(
        self, price_weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the grid point at or below each weight, and the fraction of the way to the next.

        The fraction is on a logarithmic scale.
        """
        scale = np.log1p(self.grid / self.grid[1])
        log_weight = np.log1p(np.minimum(price_weights, self.grid[-1]) / self.grid[1])
        lower = np.clip(np.searchsorted(scale, log_weight, side="right") - 1, 0, len(scale) - 2)
        return lower, (log_weight - scale[lower]) / (scale[lower + 1] - scale[lower])


def fit_all_at_weights(
    routers: list[Any], rows: TrainingRows, grid: NDArray[np.float64]
) -> list[Any]:
    """Fit a router at each price weight; routers with the same settings share features."""
    built: dict[str, FeatureSets] = {}
    fitted = []
    for router, weight in zip(routers, grid, strict=True):
        features = router.shared_features(rows, built)
        fitted.append(router.fit_rows(replace(rows.at_price(weight), features=features)))
    return fitted
