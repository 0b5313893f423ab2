"""The best that could have been done: a table of what was learnt, for the far end of a report."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mildroute.routers.base import Matrix, RouterMixin
from mildroute.routers.row_hash import hash_rows
from mildroute.routers.row_weights import positive_rows

__all__ = ["OracleRouter"]


class OracleRouter(RouterMixin, BaseEstimator):
    """The cheapest expert of each row it was fitted on. Not a real router: fit it on the very rows of the report.

    It remembers costs by the content of the row; rows of equal content share the mean of their costs, since no router could tell
    them apart. A row it has not seen goes to the best single expert.

    Attributes:
        hashes_: Hash of each distinct row, ascending, shape (m,).
        costs_: Mean cost of each expert on each of them, shape (m, p).
        mean_costs_: Mean cost of each expert on all rows, shape (p,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> oracle = OracleRouter().fit([[0.0], [1.0], [2.0]], [[0, 1], [1, 0], [1, 0]])
        >>> oracle.predict([[0.0], [2.0], [7.0]])
        array([0, 1, 1])
    """

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        X, costs, sample_weight = positive_rows(X, costs, sample_weight)
        weights = np.ones(len(costs)) if sample_weight is None else sample_weight
        self.hashes_, row = np.unique(hash_rows(X), return_inverse=True)
        total = np.zeros((len(self.hashes_), costs.shape[1]))
        np.add.at(total, row, costs * weights[:, None])
        self.costs_ = total / np.bincount(row, weights)[:, None]
        self.mean_costs_ = np.average(costs, axis=0, weights=sample_weight)

    def _scores(self, X: Any) -> Matrix:
        hashes = hash_rows(X)
        place = np.minimum(np.searchsorted(self.hashes_, hashes), len(self.hashes_) - 1)
        known = self.hashes_[place] == hashes
        return -np.where(known[:, None], self.costs_[place], self.mean_costs_)
