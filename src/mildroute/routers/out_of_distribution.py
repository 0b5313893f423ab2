"""Expected scores and dollars of each expert on an input, and detection of unfamiliar inputs.

A familiar input resembles some of the training rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.utils.validation import check_array, check_is_fitted

from mildroute.exceptions import ArgumentError
from mildroute.routers._order import argmax_last
from mildroute.routers._ridge import ridge

__all__ = ["OutcomeModel"]

_LANDMARKS = 1024
_BINS = 20


class OutcomeModel(BaseEstimator):
    """A model of the expected score and dollars of each expert, with a bound on usual inputs.

    A router decides which expert should answer; this model predicts the score and dollars of each
    expert by ridge regression. Some training rows serve as landmarks. The distances of the other
    training rows to their nearest landmark determine a bound: at most a share ``ood_rate`` of
    further inputs of the same kind lies beyond it (a conformal bound, valid for any distribution).
    An input beyond the bound is unlike the training data.

    Args:
        ood_rate: Share of usual inputs that may be flagged as unusual; with few rows it is one over
            their number.

    Attributes:
        weights_: Weights of errors and, if there were prices, of dollars, shape (d, p) or (d, 2p).
        intercept_: Intercepts, shape (p,) or (2p,).
        mean_errors_: Mean error of each expert, shape (p,).
        mean_dollars_: Mean dollars of each expert, shape (p,), or `None`.
        landmarks_: Training rows, shape (m, d).
        confidence_counts_: Histogram of the highest posterior of held-out rows, in equal bins from
            0 to 1, or `None`.
        shares_: Share of held-out rows that went to each expert, shape (p,), or `None`.
    """

    _transient: ClassVar[tuple[str, ...]] = ("_squares",)
    mean_dollars_: NDArray[np.float64] | None
    confidence_counts_: NDArray[np.float64] | None
    shares_: NDArray[np.float64] | None

    def __init__(self, *, ood_rate: float = 0.001, random_state: int | None = None) -> None:
        self.ood_rate = ood_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, prices: Any = None) -> OutcomeModel:
        """Learn expected outcomes and the bound on usual inputs.

        Args:
            X: Vectors, shape (n, d), dense.
            y: Error of each expert on each row, shape (n, p).
            sample_weight: Weight of each row, shape (n,), or `None`.
            prices: Dollars of each expert, shape (p,), or on each row, shape (n, p), or `None`.
        """
        if not 0 < self.ood_rate < 1:
            raise ArgumentError(
                f"ood_rate must be between 0 and 1, got {self.ood_rate}; 0.001 is a usual value."
            )
        X, errors = check_array(X, dtype=[np.float32, np.float64]), check_array(y, dtype=np.float64)
        dollars = (
            None
            if prices is None
            else np.broadcast_to(np.asarray(prices, dtype=np.float64), errors.shape)
        )
        targets = errors if dollars is None else np.hstack([errors, dollars])
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        used = slice(None) if weights is None else weights > 0
        fit = ridge(X[used], targets[used], None if weights is None else weights[used])
        self.weights_, self.intercept_ = fit.weights, fit.intercept
        means = np.average(targets, axis=0, weights=weights)
        self.mean_errors_ = means[: errors.shape[1]]
        self.mean_dollars_ = None if dollars is None else means[errors.shape[1] :]
        self._mark(X[used])
        self.confidence_counts_, self.shares_ = None, None
        return self

    def expected(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return expected scores from 0 to 1, shape (n, p), and dollars, same shape, or `None`."""
        check_is_fitted(self)
        predictions = np.asarray(X @ self.weights_) + self.intercept_
        experts = len(self.mean_errors_)
        scores = np.clip(1 - predictions[:, :experts], 0.0, 1.0)
        return scores, None if self.mean_dollars_ is None else np.maximum(
            predictions[:, experts:], 0.0
        )

    def is_out_of_distribution(self, X: Any) -> NDArray[np.bool_]:
        """Return whether each row is beyond the bound of all landmarks, shape (n,)."""
        check_is_fitted(self)
        rows = np.asarray(X, dtype=np.float32)
        nearest = (self._landmark_squares() - 2 * (rows @ self.landmarks_.T)).min(axis=1)
        far: NDArray[np.bool_] = nearest + (rows * rows).sum(axis=1) > self.bound_**2
        return far

    def set_drift_reference(
        self, posterior: NDArray[np.float64], shares: Sequence[float] | None = None
    ) -> None:
        """Store the distribution of held-out decisions.

        Args:
            posterior: Their posteriors, shape (n, p).
            shares: Share of each expert, shape (p,); required if decisions are partly random.
        """
        self.confidence_counts_ = np.histogram(posterior.max(axis=1), bins=_BINS, range=(0.0, 1.0))[
            0
        ].astype(np.float64)
        chosen = np.bincount(argmax_last(posterior), minlength=posterior.shape[1]) / len(posterior)
        self.shares_ = chosen if shares is None else np.asarray(shares, dtype=np.float64)

    def best_single(self, price_weight: float = 0.0, experts: int | None = None) -> int:
        """Return the expert with the lowest mean cost, among all or the first ``experts``."""
        check_is_fitted(self)
        dollars = 0.0 if self.mean_dollars_ is None else self.mean_dollars_
        return int(np.argmin((self.mean_errors_ + price_weight * dollars)[:experts]))

    def _mark(self, X: NDArray[Any]) -> None:
        """Draw landmarks at random; the distances of all other rows set the bound."""
        order = np.random.default_rng(self.random_state or 0).permutation(len(X))
        count = min(_LANDMARKS, max(1, len(X) // 2))
        self.__dict__.pop("_squares", None)
        self.landmarks_ = np.ascontiguousarray(X[np.sort(order[:count])], dtype=np.float32)
        others = X[order[count:]]
        if not len(others):
            self.bound_ = math.inf
            return
        _, distances = pairwise_distances_argmin_min(others.astype(np.float32), self.landmarks_)
        position = min(len(distances), math.ceil((len(distances) + 1) * (1 - self.ood_rate)))
        # The bound is slightly wider, because a row encoded in another batch differs in its last
        # digits.
        self.bound_ = float(np.sort(distances)[position - 1] * (1 + 1e-4) + 1e-6)

    def _landmark_squares(self) -> NDArray[np.float32]:
        if not hasattr(self, "_squares"):
            self._squares = (self.landmarks_ * self.landmarks_).sum(axis=1)
        return self._squares

    def __getstate__(self) -> dict[str, Any]:
        """Drop attributes that can be computed again."""
        return {
            name: value
            for name, value in super().__getstate__().items()
            if name not in self._transient
        }
