"""Cost regression on random Fourier features (Rahimi and Recht, 2007).

A kernel method whose weights fit in an artifact.
"""

from typing import Any

import numpy as np
from mildroute.routers import RouterMixin
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge


class FourierRouter(RouterMixin, BaseEstimator):
    """Expected costs are a ridge regression on cosines of random directions.

    The expert with the lowest one is chosen.
    """

    def __init__(
        self,
        *,
        cosines: int = 256,
        width: float = 1.0,
        alpha: float = 1.0,
        random_state: int | None = None,
    ) -> None:
        self.cosines, self.width, self.alpha, self.random_state = (
            cosines,
            width,
            alpha,
            random_state,
        )

    def _fit(self, X: Any, costs: Any, sample_weight: Any) -> None:
        random = np.random.default_rng(self.random_state or 0)
        share = (
            np.full(X.shape[0], 1 / X.shape[0])
            if sample_weight is None
            else sample_weight / sample_weight.sum()
        )
        mean, squares = share @ X, share @ (X.multiply(X) if issparse(X) else X * X)
        spread = np.sqrt(max(squares.sum() - mean @ mean, 0.0))  # how far a row lies from the mean
        self.directions_ = random.normal(size=(X.shape[1], self.cosines)) / (
            self.width * spread + 1e-9
        )
        self.phases_ = random.uniform(0, 2 * np.pi, self.cosines)
        ridge = Ridge(alpha=self.alpha).fit(self._features(X), costs, sample_weight)
        self.weights_, self.intercept_ = ridge.coef_.reshape(costs.shape[1], -1).T, ridge.intercept_

    def _features(self, X: Any) -> Any:
        return np.cos(np.asarray(X @ self.directions_) + self.phases_)

    def _scores(self, X: Any) -> Any:
        return -(self._features(X) @ self.weights_ + self.intercept_)
