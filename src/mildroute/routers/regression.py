"""Plug-in routing: predict each expert's cost by ridge regression and take the lowest.

If prices are separate from errors, their weight can change at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mildroute.exceptions import ArgumentError
from mildroute.routers._order import argmax_last
from mildroute.routers._ridge import RidgeFit, ridge
from mildroute.routers.base import RouterMixin, posterior_of_costs
from mildroute.routers.feature_sets import FeatureSet, build_feature_sets
from mildroute.routers.features import TopicFeatures
from mildroute.routers.training_rows import Matrix, Progress, TrainingRows

__all__ = ["RegressionRouter"]

_FEATURES: dict[str, tuple[FeatureSet, ...]] = {
    "raw": ("raw",),
    "topics": ("topics",),
    "average": ("raw", "topics"),
}


class RegressionRouter(RouterMixin, BaseEstimator):
    """A ridge regression of every expert's cost, with penalties chosen by leave-one-out error.

    If ``fit`` receives prices, ``y`` contains only errors. Both are regressed, and the cost of an
    expert is its expected error plus ``price_weight`` times its expected price. One fitted router
    thus serves every trade-off, as CARROT does (Somerstep et al., 2025).

    Args:
        price_weight: Weight of the prices, not negative; `None` means 1. It is read at prediction,
            so it can be changed after ``fit``.
        features: ``"raw"`` vectors, ``"topics"``, or ``"average"``, the mean of two regressions,
            one on each.
        contrasts: Choose separate penalties for the common part of the experts' costs and for their
            differences; see :func:`~mildroute.routers._ridge.ridge`.
        random_state: Seed of the clusterings behind the topics.

    Attributes:
        weights_: Weights for the errors, shape (d, p).
        topic_weights_: Topic weights for the errors, shape (K, p), or `None` without topics.
        topics_: The fitted topics, or `None`.
        intercept_: Intercepts for the errors, shape (p,).
        price_weights_: Weights for the prices, shape (d, p), or `None` without prices.
        price_topic_weights_: Topic weights for the prices, shape (K, p), or `None`.
        price_intercept_: Intercepts for the prices, shape (p,), or `None` without prices.
        alphas_: Penalties used, one row for each kind of features.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(20.0)[:, None]
        >>> errors = np.stack([np.arange(20) / 20, np.full(20, 0.3)], axis=1)
        >>> router = RegressionRouter().fit(X, errors, prices=[0.01, 0.02])
        >>> router.predict([[2.0], [12.0]]), router.predict([[2.0], [12.0]], price_weight=100.0)
        (array([0, 1]), array([0, 0]))
    """

    topics_: TopicFeatures | None
    topic_weights_: NDArray[np.float64] | None
    price_topic_weights_: NDArray[np.float64] | None

    supports_prices = True

    def __init__(
        self,
        *,
        price_weight: float | None = None,
        features: str = "raw",
        contrasts: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.price_weight = price_weight
        self.features = features
        self.contrasts = contrasts
        self.random_state = random_state

    def _fit_rows(self, rows: TrainingRows, progress: Progress | None) -> None:  # noqa: ARG002
        if self.features not in _FEATURES:
            raise ArgumentError(
                f"features must be one of {', '.join(_FEATURES)}, got {self.features!r}."
            )
        rows = rows.with_weight()
        names = _FEATURES[self.features]
        topics = TopicFeatures(random_state=self.random_state or 0)
        views = build_feature_sets(rows.X, rows.groups, names, topics, rows.clusters)
        self.topics_ = views.topics.get("topics")
        fits = {
            name: _regression(views.features[name], rows.costs, rows, self.contrasts)
            for name in names
        }
        width = rows.X.shape[1]
        self.weights_, self.topic_weights_, self.intercept_ = _mean_of(fits, width)
        self.alphas_ = np.stack([fits[name].alphas for name in names])
        self.price_weights_ = None
        self.price_topic_weights_ = None
        self.price_intercept_ = None
        if rows.prices is not None:
            prices = {
                name: _regression(views.features[name], rows.prices, rows, contrasts=False)
                for name in names
            }
            self.price_weights_, self.price_topic_weights_, self.price_intercept_ = _mean_of(
                prices, width
            )

    def predict(self, X: Any, price_weight: float | None = None) -> NDArray[np.intp]:
        """Return the index of the expert that should answer each row, shape (n,).

        ``price_weight`` overrides the weight of the prices.
        """
        return argmax_last(self.decision_function(X, price_weight))

    def decision_function(self, X: Any, price_weight: float | None = None) -> Matrix:
        """Return minus the expected costs, shape (n, p), at a weight of the prices."""
        return self._scores(self._check_predict(X), price_weight)

    def expected(self, X: Any) -> tuple[Matrix, Matrix | None]:
        """Return expected errors, and expected prices or `None`, without checking the rows.

        Both have shape (n, p).
        """
        memberships = None if self.topics_ is None else self.topics_.memberships(X)
        errors = _linear(X, memberships, self.weights_, self.topic_weights_, self.intercept_)
        if self.price_weights_ is None or self.price_intercept_ is None:
            return errors, None
        return errors, _linear(
            X, memberships, self.price_weights_, self.price_topic_weights_, self.price_intercept_
        )

    def posterior_unchecked(self, X: Any, price_weight: float | None = None) -> Matrix:
        """Return ``predict_proba`` at this weight of the prices, without checking the vectors."""
        return posterior_of_costs(-self._scores(X, price_weight))

    def posteriors_at(
        self, X: Any, price_weights: Sequence[float] | NDArray[np.float64]
    ) -> Iterator[Matrix]:
        """Yield the posterior at each of several price weights, without checking the vectors.

        Expected values are computed only once, because on one row they take most of the time.
        """
        errors, prices = self.expected(X)
        return (
            posterior_of_costs(errors if prices is None else errors + weight * prices)
            for weight in price_weights
        )

    def _scores(self, X: Any, price_weight: float | None = None) -> Matrix:
        weight = self.price_weight if price_weight is None else price_weight
        if weight is not None and not (weight >= 0 and np.isfinite(weight)):
            raise ArgumentError(
                f"price_weight must be a number of at least 0, got {weight!r}; 0 ignores prices."
            )
        if self.price_weights_ is None and price_weight is not None:
            raise ArgumentError(
                f"price_weight is {price_weight!r}, but this router was fitted without prices; pass"
                " prices=... to fit."
            )
        errors, prices = self.expected(X)
        return (
            -errors if prices is None else -(errors + (1.0 if weight is None else weight) * prices)
        )


def _linear(
    X: Any,
    memberships: Matrix | None,
    weights: Matrix,
    topic_weights: Matrix | None,
    intercept: Matrix,
) -> Matrix:
    predictions = np.asarray(X @ weights) + intercept
    return (
        predictions
        if memberships is None or topic_weights is None
        else predictions + memberships @ topic_weights
    )


def _mean_of(fits: dict[FeatureSet, RidgeFit], width: int) -> tuple[Matrix, Matrix | None, Matrix]:
    """Return the mean regression: weights of the vector, weights of the topics, intercept."""
    share = 1 / len(fits)
    intercept = share * np.sum([fit.intercept for fit in fits.values()], axis=0)
    weights = share * fits["raw"].weights if "raw" in fits else np.zeros((width, len(intercept)))
    return weights, share * fits["topics"].weights if "topics" in fits else None, intercept


def _regression(X: Any, targets: Matrix, rows: TrainingRows, contrasts: bool) -> RidgeFit:
    """Fit ridge regression, or return the means if there is only one expert."""
    if targets.shape[1] > 1:
        return ridge(X, targets, rows.sample_weight, contrasts=contrasts, clusters=rows.clusters)
    mean = np.average(targets, axis=0, weights=rows.sample_weight)
    return RidgeFit(np.zeros((X.shape[1], 1)), mean, np.full(1, np.inf))
