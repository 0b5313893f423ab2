"""The k nearest neighbors as a router."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from mildroute.exceptions import ArgumentError
from mildroute.routers._nearest import nearest_blocks
from mildroute.routers._order import argmax_last
from mildroute.routers.base import RouterMixin
from mildroute.routers.training_rows import Matrix, drop_zero_weight

__all__ = ["KNNRouter"]

# Numbers of neighbors that are tried, from smooth to rough; ties go to the first.
_SIZES = (160, 80, 40, 20, 10, 5)

_WEIGHTINGS = ("uniform", "distance")

# Maximum number of rows on which sizes and weightings are compared.
_MAX_TRIAL_ROWS = 8192


class KNNRouter(RouterMixin, BaseEstimator):
    """A router to the expert with the lowest mean cost on the nearest training rows.

    Args:
        n_neighbors: Number of neighbors. ``"cv"`` selects the one of 5, 10, 20, 40, 80 and 160 with
            the lowest leave-one-out deferral loss on the training rows, or on a sample of 8,192 if
            there are more.
        weights: ``"uniform"``, ``"distance"`` (neighbors count in inverse proportion to their
            distance), or ``"cv"`` as above.
        metric: ``"euclidean"`` or ``"cosine"`` (the Euclidean distance of rows scaled to length 1).

    Attributes:
        n_neighbors_: Number of neighbors used, at most the number of training rows.
        weights_: The weighting used.
        rows_: Training rows, shape (n, d), centered or scaled; if sparse, their data, indices and
            row pointers.
        center_: Subtracted from each row, shape (d,).
        costs_: Costs of the training rows, shape (n, p).
        row_weights_: Weights of the training rows, shape (n,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
        >>> costs = np.array([[0, 1], [0, 1], [1, 0], [1, 0]])
        >>> KNNRouter(n_neighbors=2, weights="uniform").fit(X, costs).predict([[0.6], [9.0]])
        array([0, 1])
    """

    def __init__(
        self,
        *,
        n_neighbors: int | Literal["cv"] = "cv",
        weights: Literal["cv", "uniform", "distance"] = "cv",
        metric: Literal["euclidean", "cosine"] = "euclidean",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        self._check_parameters()
        X, costs, sample_weight = drop_zero_weight(X, costs, sample_weight)
        if costs.shape[1] == 1:  # one row with the mean cost is enough
            X, costs, sample_weight = (
                X[:1],
                np.average(costs, axis=0, weights=sample_weight)[None],
                None,
            )
        centered = self.metric == "euclidean" and not sparse.issparse(X)
        self.center_ = X.mean(axis=0, dtype=np.float64) if centered else np.zeros(X.shape[1])
        rows = self._prepare_rows(X)
        self.rows_ = [rows.data, rows.indices, rows.indptr] if sparse.issparse(rows) else rows
        self.costs_ = costs
        self.row_weights_ = np.ones(len(costs)) if sample_weight is None else sample_weight
        self.n_neighbors_, self.weights_ = self._select_parameters()

    def _scores(self, X: Any) -> Matrix:
        scores = np.empty((X.shape[0], self.costs_.shape[1]))
        width = self.costs_.shape[1] + 3
        for block, near, squares in nearest_blocks(
            self._prepare_rows(X), self._rows(), self.n_neighbors_, width=width
        ):
            weights = self._neighbor_weights(near, squares, self.weights_)
            scores[block] = -np.einsum("ij,ijk->ik", weights, self.costs_[near]) / weights.sum(
                axis=1, keepdims=True
            )
        return scores

    def _select_parameters(self) -> tuple[int, str]:
        rows = len(self.costs_)
        sizes = (
            [size for size in _SIZES if size < rows] or [max(1, rows - 1)]
            if self.n_neighbors == "cv"
            else [min(int(self.n_neighbors), rows)]
        )
        weightings = _WEIGHTINGS if self.weights == "cv" else (self.weights,)
        if len(sizes) * len(weightings) == 1 or rows == 1:
            return sizes[0], weightings[0]
        risks = self._risks([min(size, rows - 1) for size in sizes], weightings)
        best = int(np.argmin(risks))
        return sizes[best % len(sizes)], weightings[best // len(sizes)]

    def _risks(self, sizes: list[int], weightings: tuple[str, ...]) -> NDArray[np.float64]:
        """Return leave-one-out deferral losses, shape (weightings * sizes,)."""
        trial = np.arange(len(self.costs_))
        if len(trial) > _MAX_TRIAL_ROWS:
            trial = np.sort(np.random.default_rng(0).choice(trial, _MAX_TRIAL_ROWS, replace=False))
        paid = np.zeros((len(weightings), len(sizes)))
        rows, width = self._rows(), 3 * (self.costs_.shape[1] + 1)
        for block, near, squares in nearest_blocks(
            rows[trial], rows, max(sizes), own=trial, width=width
        ):
            own = trial[block]
            for index, weighting in enumerate(weightings):
                weights = self._neighbor_weights(near, squares, weighting)[:, :, None]
                sums = np.cumsum(weights * self.costs_[near], axis=1) / np.cumsum(weights, axis=1)
                for step, size in enumerate(sizes):
                    paid[index, step] += (
                        self.row_weights_[own] @ self.costs_[own, argmax_last(-sums[:, size - 1])]
                    )
        return (paid / self.row_weights_[trial].sum()).round(12).ravel()

    def _neighbor_weights(
        self, near: NDArray[np.intp], squares: NDArray[np.float64], weighting: str
    ) -> NDArray[np.float64]:
        weights = self.row_weights_[near]
        return weights if weighting == "uniform" else weights / np.sqrt(squares)

    def _rows(self) -> Any:
        if not isinstance(self.rows_, list):
            return self.rows_
        rows = sparse.csr_array(tuple(self.rows_), shape=(len(self.costs_), len(self.center_)))
        rows.check_format(full_check=True)  # the indices may come from a file
        return rows

    def _prepare_rows(self, X: Any) -> Any:
        """Transform rows so that the squared Euclidean distance orders them as the metric does."""
        if sparse.issparse(X) and self.center_.any():
            X = X.toarray()
        X = X.astype(np.float64)
        if self.metric == "euclidean":
            return X if sparse.issparse(X) else X - self.center_
        squares = X.multiply(X) if sparse.issparse(X) else X**2
        lengths = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
        inverse = 1 / np.where(lengths > 0, lengths, 1)
        return (
            sparse.csr_array(X).multiply(inverse[:, None]).tocsr()
            if sparse.issparse(X)
            else X * inverse[:, None]
        )

    def _check_parameters(self) -> None:
        if self.n_neighbors != "cv" and int(self.n_neighbors) < 1:
            raise ArgumentError(
                f"n_neighbors must be at least 1 or 'cv', got {self.n_neighbors!r}."
            )
        if self.weights not in ("cv", *_WEIGHTINGS):
            raise ArgumentError(
                f"weights must be cv, {' or '.join(_WEIGHTINGS)}, got {self.weights!r}."
            )
        if self.metric not in ("euclidean", "cosine"):
            raise ArgumentError(f"metric must be euclidean or cosine, got {self.metric!r}.")
