"""Topic features: soft memberships in clusters of vectors and in groups of training rows.

A topic feature is ``softmax(X @ weights + offsets)``, for clusters and groups alike. A few topics
contain most of the information that distinguishes experts, and a linear router on them generalizes
better than one on the raw vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from mildroute.exceptions import ArgumentError
from mildroute.routers._folds import assign_folds

__all__ = ["TopicFeatures", "memberships"]

# Sparse vectors are reduced to this many dense columns before clustering.
_DENSE_COLUMNS = 256


def memberships(
    X: Any, weights: NDArray[np.float64], offsets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``softmax(X @ weights + offsets)`` of each row, shape (n, K)."""
    logits = np.asarray(X @ weights) + offsets
    softmax_in_place(logits)
    return logits


def softmax_in_place(logits: NDArray[np.float64]) -> None:
    """Replace each row with its softmax."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)


class TopicFeatures(TransformerMixin, BaseEstimator):
    """A transformer to soft memberships in clusters of several sizes and to group posteriors.

    Args:
        clusters: Sizes of the clusterings; if empty, only groups are used.
        temperature: Softness of cluster memberships, in units of the mean squared distance of a row
            from its center.
        cv: Number of folds in which the group posterior of training rows is predicted.
        shrinkage: Shrinkage of the covariance for the group posterior, 0 to 1.
        random_state: Seed of the clusterings and folds.

    Attributes:
        weights_: Shape (d, K), one column per topic.
        offsets_: Shape (K,).
        blocks_: Number of topics of each block; memberships sum to 1 within a block.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 4))
        >>> features = TopicFeatures(clusters=(5,), random_state=0).fit(X, groups=X[:, 0] > 0)
        >>> features.transform(X).shape
        (200, 7)
    """

    def __init__(
        self,
        *,
        clusters: Sequence[int] = (10, 20, 40, 80),
        temperature: float = 0.15,
        cv: int = 5,
        shrinkage: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.clusters = clusters
        self.temperature = temperature
        self.cv = cv
        self.shrinkage = shrinkage
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> TopicFeatures:  # noqa: ARG002
        """Learn topics from vectors of shape (n, d) and, if provided, the group of each row.

        ``y`` is ignored.
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        random = check_random_state(self.random_state)
        dense, back = _dense(X, random)
        layers = [
            _cluster_layer(dense, min(size, len(dense)), self.temperature, random)
            for size in self.clusters
        ]
        labels = self._labels(X, groups)
        if labels is not None:
            layers.append(_group_layer(dense, labels, self.shrinkage))
        if not layers:
            raise ArgumentError(
                "topic features need clusters or groups, got neither; set sizes of clusterings or"
                " pass groups."
            )
        self.blocks_ = [len(offsets) for _, offsets in layers]
        self.weights_ = np.hstack(
            [weights if back is None else back @ weights for weights, _ in layers]
        )
        self.offsets_ = np.concatenate([offsets for _, offsets in layers])
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the memberships of new rows, shape (n, K); groups are not needed."""
        check_is_fitted(self)
        return self.memberships(
            validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        )

    def without_groups(self) -> TopicFeatures:
        """Return a fitted transformer with only the clusters."""
        check_is_fitted(self)
        count = sum(self.blocks_[: len(self.clusters)])
        copy = clone(self)
        copy.n_features_in_ = self.n_features_in_
        copy.blocks_ = self.blocks_[: len(self.clusters)]
        copy.weights_ = self.weights_[:, :count]
        copy.offsets_ = self.offsets_[:count]
        return copy

    def memberships(self, X: Any) -> NDArray[np.float64]:
        """Return the memberships of rows without checking them, shape (n, K)."""
        edges = np.cumsum([0, *self.blocks_])
        logits = np.asarray(X @ self.weights_.astype(X.dtype, copy=False)) + self.offsets_
        for low, high in pairwise(edges):
            softmax_in_place(logits[:, low:high])
        return logits

    def fit_transform(
        self, X: Any, y: Any = None, groups: Any = None, clusters: Any = None
    ) -> NDArray[np.float64]:
        """Fit, and return memberships of the training rows.

        The group posterior of a row is predicted without the row's fold. Rows with the same index
        in ``clusters`` share a fold.
        """
        features = self.fit(X, y, groups).transform(X)
        labels = self._labels(X, groups)
        if labels is None:
            return features
        dense, _ = _dense(X, check_random_state(self.random_state))
        names = np.unique(labels)
        features[:, -len(names) :] = 0
        seed = check_random_state(self.random_state).randint(2**31)
        fold = assign_folds(len(labels), self.cv, seed, clusters=clusters)
        for current in range(fold.max() + 1 if fold.max() else 0):
            seen, held_out = np.flatnonzero(fold != current), np.flatnonzero(fold == current)
            fold_groups = np.unique(labels[seen])
            columns = features.shape[1] - len(names) + np.searchsorted(names, fold_groups)
            layer = _group_layer(dense[seen], labels[seen], self.shrinkage)
            features[np.ix_(held_out, columns)] = memberships(dense[held_out], *layer)
        return features

    def _labels(self, X: Any, groups: Any) -> NDArray[Any] | None:
        if groups is None:
            return None
        labels = np.asarray(groups)
        check_consistent_length(X, labels)
        return labels if len(np.unique(labels)) > 1 else None

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse vectors are also accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _dense(
    X: Any, random: np.random.RandomState
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return dense float64 columns, and the map (d, columns) that made them if X is sparse."""
    if not sparse.issparse(X):
        return np.asarray(X, dtype=np.float64), None
    size = min(_DENSE_COLUMNS, min(X.shape))
    if size >= X.shape[1]:
        return X.toarray().astype(np.float64), None
    projection = TruncatedSVD(size, random_state=random.randint(2**31)).fit(X).components_.T
    return np.asarray(X @ projection), projection


def _cluster_layer(
    X: NDArray[np.float64], size: int, temperature: float, random: np.random.RandomState
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    means = MiniBatchKMeans(
        size, n_init=1, batch_size=4096, max_iter=20, random_state=random.randint(2**31)
    ).fit(X)
    centers = means.cluster_centers_
    softness = temperature * max(means.inertia_ / len(X), 1e-12)
    return 2 * centers.T / softness, -(centers**2).sum(axis=1) / softness


def _group_layer(
    X: NDArray[np.float64], labels: NDArray[Any], shrinkage: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit linear discriminant analysis with a shrunken covariance.

    Unlike scikit-learn's implementation, it accepts groups of one row.
    """
    distinct, codes = np.unique(labels, return_inverse=True)
    if len(distinct) == 1:
        return np.zeros((X.shape[1], 1)), np.zeros(1)
    shares = np.bincount(codes) / len(codes)
    means = np.stack([X[codes == code].mean(axis=0) for code in range(len(distinct))])
    within = X - means[codes]
    covariance = (1 - shrinkage) * within.T @ within / len(X)
    covariance += shrinkage * np.square(within).sum() / within.size * np.eye(X.shape[1])
    weights = np.linalg.lstsq(covariance, means.T, rcond=None)[0]
    return weights, np.log(shares) - (means * weights.T).sum(axis=1) / 2
