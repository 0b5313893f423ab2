"""An online router that learns from the costs of one, some or all experts of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mildroute.exceptions import ArgumentError
from mildroute.routers._order import argmax_last
from mildroute.routers._shared_ridge import (
    COMMON_PENALTY,
    EXPERT_PENALTY,
    SharedRidge,
    principal_axes,
)
from mildroute.routers.base import RouterMixin, check_costs
from mildroute.routers.features import TopicFeatures
from mildroute.routers.training_rows import Matrix

__all__ = ["OnlineRouter"]


class OnlineRouter(RouterMixin, BaseEstimator):
    """An online router; each row may have the costs of one, some or all experts.

    Costs are NaN for experts that were not called.

    The router is a Bayesian ridge regression of costs on principal components and topics of the
    vectors, with one part common to all experts and one part for each. ``predict`` takes the expert
    with the lowest expected cost. ``explore`` takes the one with the lowest optimistic cost, which
    is ``optimism`` standard errors below its expectation, so that it tries experts with few
    observed costs.

    Args:
        components: Principal components of the vectors.
        topics: Number of clusters of the vectors; soft memberships are additional features.
        common_penalty: Penalty of the common part, in rows.
        expert_penalty: Penalty of each expert's part, in rows.
        optimism: Standard errors below the expected cost at which ``explore`` compares experts.
        random_state: Seed of the clusters; `None` means 0.

    Attributes:
        center_: Subtracted from each vector, shape (d,).
        components_: Map of vectors to components, shape (d, c), scaled so that the mean square of
            all components together is 1.
        topics_: Clusters of vectors.
        topic_center_: Mean membership in each topic, shape (K,).
        topic_scale_: Factor of the memberships.
        weights_: Coefficients, shape (p, c + K + 1).
        factors_: Factors of the covariance of coefficients, shape (p, c + K + 1, c + K + 1).
        inverses_: Inverses in the same covariance, with the same shape.
        noise_: Variance of a cost around its expectation.
        gram_: Sums of products of features over the rows of each expert.
        moments_: Sums of products of features and costs, shape (p, c + K + 1).
        squares_: Sums of squares of costs, shape (p,).
        counts_: Number of observed costs of each expert, shape (p,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(400, 3))
        >>> costs = (X[:, :2] > 0).astype(float)
        >>> costs[np.arange(400), rng.integers(0, 2, 400)] = np.nan
        >>> router = OnlineRouter(random_state=0).fit(X, costs)
        >>> router.predict([[2.0, -2.0, 0.0], [-2.0, 2.0, 0.0]])
        array([1, 0])
    """

    supports_missing_costs = True
    supports_sample_weight = False

    def __init__(
        self,
        *,
        components: int = 64,
        topics: int = 100,
        common_penalty: float = COMMON_PENALTY,
        expert_penalty: float = EXPERT_PENALTY,
        optimism: float = 1.0,
        random_state: int | None = None,
    ) -> None:
        self.components = components
        self.topics = topics
        self.common_penalty = common_penalty
        self.expert_penalty = expert_penalty
        self.optimism = optimism
        self.random_state = random_state

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:  # noqa: ARG002
        self._check_parameters()
        self._learn_features(X)
        self._add(X, costs, SharedRidge(self._width(), costs.shape[1]))

    def partial_fit(self, X: Any, y: Any) -> OnlineRouter:
        """Update on more rows; the feature map remains the one fitted on the first rows."""
        if not hasattr(self, "weights_"):
            return self.fit(X, y)
        costs = check_costs(y, partial=True)
        if costs.shape[1] != len(self.experts_):
            raise ArgumentError(
                f"costs must have one column for each of {len(self.experts_)} experts, got"
                f" {costs.shape[1]}; fit again to add an expert."
            )
        sums = SharedRidge(self._width(), costs.shape[1])
        sums.gram, sums.moments = self.gram_.copy(), self.moments_.copy()
        sums.squares, sums.counts = self.squares_.copy(), self.counts_.copy()
        return self._add(self._check_predict(X), costs, sums)

    def explore(self, X: Any) -> NDArray[np.intp]:
        """Return the expert with the lowest optimistic cost on each row, shape (n,)."""
        mean, errors = self.expected(X)
        return argmax_last(self.optimism * errors - mean)

    def expected(self, X: Any) -> tuple[Matrix, Matrix]:
        """Return the expected cost of each expert and its standard error, both (n, p)."""
        features = self._features(self._check_predict(X))
        spread = np.einsum("nd,kdc->nkc", features, self.factors_)
        own = np.einsum("nd,kde,ne->nk", features, self.inverses_, features, optimize=True)
        variance = self.noise_ * ((spread**2).sum(axis=2) + own)
        return features @ self.weights_.T, np.sqrt(np.maximum(variance, 0.0))

    def _scores(self, X: Any) -> Matrix:
        return -(self._features(X) @ self.weights_.T)

    def _check_parameters(self) -> None:
        for name, minimum in (
            ("components", 0),
            ("topics", 0),
            ("common_penalty", 1e-6),
            ("expert_penalty", 1e-6),
            ("optimism", 0),
        ):
            value = getattr(self, name)
            if not minimum <= value < np.inf:
                raise ArgumentError(f"{name} must be at least {minimum:g}, got {value!r:.40}.")

    def _learn_features(self, X: Any) -> None:
        seed = self.random_state or 0
        self.center_ = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        variances, axes = principal_axes(X, self.center_, min(self.components, *X.shape), seed)
        total = float(variances.sum())
        self.components_ = axes / (np.sqrt(total) if total > 0 else 1.0)
        self.topics_ = None
        self.topic_center_, self.topic_scale_ = np.zeros(0), 1.0
        # Small clusters carry little information: with 3 rows per cluster, a stream of seven
        # experts cost 0.003 more.
        clusters = min(self.topics, X.shape[0] // 20)
        if clusters > 1:
            self.topics_ = TopicFeatures(clusters=(clusters,), random_state=seed)
            memberships = self.topics_.fit_transform(X)
            self.topic_center_ = memberships.mean(axis=0)
            spread = np.sqrt(((memberships - self.topic_center_) ** 2).sum(axis=1).mean())
            self.topic_scale_ = float(1 / spread) if spread > 0 else 1.0

    def _width(self) -> int:
        return self.components_.shape[1] + len(self.topic_center_) + 1

    def _features(self, X: Any) -> Matrix:
        parts = [np.asarray(X @ self.components_) - self.center_ @ self.components_]
        if self.topics_ is not None:
            topics = np.asarray(self.topics_.memberships(X), dtype=np.float64)
            parts.append((topics - self.topic_center_) * self.topic_scale_)
        return np.hstack([*parts, np.ones((X.shape[0], 1))])

    def _add(self, X: Any, costs: Matrix, sums: SharedRidge) -> OnlineRouter:
        sums.add(self._features(X), costs)
        self.gram_, self.moments_ = sums.gram, sums.moments
        self.squares_, self.counts_ = sums.squares, sums.counts
        self.weights_, self.factors_, self.inverses_ = sums.solve(
            self.common_penalty, self.expert_penalty
        )
        self.noise_ = sums.noise(self.weights_)
        return self
