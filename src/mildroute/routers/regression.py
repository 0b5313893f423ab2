"""Plug-in routing: predict what each expert will cost, take the lowest. With prices apart, their weight can change at any time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mildroute.errors import ArgumentError, CostError, ShapeError
from mildroute.routers.base import Matrix, RouterMixin
from mildroute.routers.order import largest
from mildroute.routers.ridge import RidgeFit, ridge
from mildroute.routers.row_weights import positive_rows

__all__ = ["RegressionRouter"]


class RegressionRouter(RouterMixin, BaseEstimator):
    """Ridge regression of every expert's cost, the penalty of each by leave-one-out squared error.

    Where ``fit`` is given prices, ``y`` holds errors alone; both are regressed, and the cost of an expert is its expected error plus
    ``price_weight`` times its expected price. So one fitted router serves every trade-off, as CARROT does (Somerstep et al., 2025).

    Args:
        price_weight: Weight of the prices, not negative; none is 1. Read at prediction: it may be set after ``fit``.

    Attributes:
        weights_: Shape (d, p), of the errors.
        intercept_: Shape (p,), of the errors.
        penalties_: Penalty taken for each expert, shape (p,).
        price_weights_: Shape (d, p), of the prices, or none without prices.
        price_intercept_: Shape (p,), of the prices, or none without prices.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X, errors = np.arange(20.0)[:, None], np.stack([np.arange(20) / 20, np.full(20, 0.3)], axis=1)
        >>> router = RegressionRouter().fit(X, errors, prices=[0.01, 0.02])
        >>> router.predict([[2.0], [12.0]]), router.predict([[2.0], [12.0]], price_weight=100.0)
        (array([0, 1]), array([0, 0]))
    """

    def __init__(self, *, price_weight: float | None = None) -> None:
        self.price_weight = price_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, prices: Any = None) -> RegressionRouter:
        """Learn from what each expert cost on each row.

        Args:
            X: Vectors, shape (n, d), dense or sparse.
            y: Costs, shape (n, p), lower is better; without the prices where those are given.
            sample_weight: Weight of each row, shape (n,), or none.
            prices: Price of each expert, shape (p,), or on each row, shape (n, p), or none.

        Returns:
            The router itself.
        """
        X, costs, weights = self._check_fit(X, y, sample_weight)
        experts = costs.shape[1]
        targets = costs if prices is None else np.hstack([costs, _check_prices(prices, costs)])
        fit = _regression(*positive_rows(X, targets, weights), constant=experts == 1)
        self.weights_, self.intercept_, self.penalties_ = fit.weights[:, :experts].copy(), fit.intercept[:experts], fit.penalties[:experts]
        self.price_weights_ = None if prices is None else fit.weights[:, experts:].copy()
        self.price_intercept_ = None if prices is None else fit.intercept[experts:]
        return self

    def predict(self, X: Any, price_weight: float | None = None) -> NDArray[np.intp]:
        """Index of the expert that should answer each row, shape (n,), at this weight of the prices."""
        return largest(self.decision_function(X, price_weight))

    def decision_function(self, X: Any, price_weight: float | None = None) -> Matrix:
        """Minus the expected cost of each expert, shape (n, p), at this weight of the prices."""
        return self._scores(self._check_predict(X), price_weight)

    def _scores(self, X: Any, price_weight: float | None = None) -> Matrix:
        weight = self.price_weight if price_weight is None else price_weight
        costs = np.asarray(X @ self.weights_) + self.intercept_
        if weight is not None and not (weight >= 0 and np.isfinite(weight)):
            raise ArgumentError(f"price_weight must be a number of at least 0, got {weight!r}; 0 leaves prices aside.")
        if self.price_weights_ is None or self.price_intercept_ is None:
            if price_weight is not None:
                raise ArgumentError(f"price_weight is {price_weight!r}, but this router knows no prices; pass prices=... to fit.")
            return -costs
        return -(costs + (1.0 if weight is None else weight) * (np.asarray(X @ self.price_weights_) + self.price_intercept_))


def _regression(X: Any, targets: Matrix, sample_weight: NDArray[np.float64] | None, *, constant: bool) -> RidgeFit:
    """Ridge, or the means alone where one expert leaves nothing to choose."""
    if not constant:
        return ridge(X, targets, sample_weight)
    mean = np.average(targets, axis=0, weights=sample_weight)
    return RidgeFit(np.zeros((X.shape[1], len(mean))), mean, np.full(len(mean), np.inf))


def _check_prices(prices: Any, costs: Matrix) -> Matrix:
    array = np.asarray(prices, dtype=np.float64)
    if array.shape not in (costs.shape, costs.shape[1:]):
        raise ShapeError(f"prices must be {costs.shape[1:]} or {costs.shape}, as the costs are, got shape {array.shape}.")
    if not bool(np.isfinite(array).all()):
        raise CostError(f"prices must be finite, got NaN or infinity {int((~np.isfinite(array)).sum())} times; impute them first.")
    return np.broadcast_to(array, costs.shape)
