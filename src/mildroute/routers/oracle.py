"""The upper bound for a report: a lookup table of the training costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mildroute._hashing import hash_rows
from mildroute.routers.base import RouterMixin
from mildroute.routers.training_rows import Matrix, drop_zero_weight

__all__ = ["OracleRouter"]


class OracleRouter(RouterMixin, BaseEstimator):
    """A router that looks up the costs of its training rows and takes the cheapest expert.

    This is not a real router: fit it on the rows that are reported.

    Costs are looked up by the content of the row. Rows with equal content share the mean of their
    costs, since no router could tell them apart. A row that was not in the training data goes to
    the best single expert.

    Attributes:
        hashes_: Hash of each distinct row, ascending, shape (m,).
        costs_: Mean cost of each expert on each distinct row, shape (m, p).
        mean_costs_: Mean cost of each expert on all rows, shape (p,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> oracle = OracleRouter().fit([[0.0], [1.0], [2.0]], [[0, 1], [1, 0], [1, 0]])
        >>> oracle.predict([[0.0], [2.0], [7.0]])
        array([0, 1, 1])
    """

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        X, costs, sample_weight = drop_zero_weight(X, costs, sample_weight)
        weights = np.ones(len(costs)) if sample_weight is None else sample_weight
        self.hashes_, row = np.unique(hash_rows(X), return_inverse=True)
        total = np.zeros((len(self.hashes_), costs.shape[1]))
        np.add.at(total, row, costs * weights[:, None])
        self.costs_ = total / np.bincount(row, weights)[:, None]
        self.mean_costs_ = np.average(costs, axis=0, weights=sample_weight)

    def _scores(self, X: Any) -> Matrix:
        hashes = hash_rows(X)
        index = np.minimum(np.searchsorted(self.hashes_, hashes), len(self.hashes_) - 1)
        is_known = self.hashes_[index] == hashes
        return -np.where(is_known[:, None], self.costs_[index], self.mean_costs_)
