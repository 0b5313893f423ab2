"""The inputs that a linear router may use: topics, the vector itself, or both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from mildroute.exceptions import ArgumentError
from mildroute.routers.features import TopicFeatures

__all__ = ["FeatureSet", "FeatureSets", "build_feature_sets"]

# No features (the best single expert), only topics of groups, all topics, the vector, the vector
# with its clusters, or the mean of two routers, one on the vector and one on the topics.
FeatureSet: TypeAlias = Literal["none", "groups", "topics", "raw", "both", "average"]


@dataclass(frozen=True)
class FeatureSets:
    """The features of the training rows by view.

    Attributes:
        vector_scale: Factor of the vector in ``"both"`` that gives it the variance of the topics.
    """

    features: dict[FeatureSet, Any]
    topics: dict[FeatureSet, TopicFeatures]
    vector_scale: float = 1.0


def build_feature_sets(
    X: Any,
    groups: Any,
    names: Collection[FeatureSet],
    topics: TopicFeatures,
    clusters: NDArray[np.intp] | None = None,
) -> FeatureSets:
    """Build the requested views of training rows; group topics are computed out of fold.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        groups: Group of each row, shape (n,), or `None`.
        names: Names of views; ``"groups"`` is skipped if there are no groups, unless it is the
            only view.
        topics: A template, which is not modified.
        clusters: Index of each row's cluster, shape (n,), or `None`.
    """
    features: dict[FeatureSet, Any] = {}
    transformers: dict[FeatureSet, TopicFeatures] = {}
    if "groups" in names and groups is not None and len(np.unique(np.asarray(groups))) > 1:
        transformers["groups"] = clone(topics).set_params(clusters=())
        features["groups"] = transformers["groups"].fit_transform(
            X, groups=groups, clusters=clusters
        )
    if "topics" in names or "both" in names:
        transformers["topics"] = clone(topics)
        features["topics"] = transformers["topics"].fit_transform(
            X, groups=groups, clusters=clusters
        )
    if "raw" in names:
        features["raw"] = X
    scale = 1.0
    if "both" in names:
        # Group topics are excluded: combined with the vector, an out-of-fold posterior would leak
        # the row's own group.
        transformers["both"] = transformers["topics"].without_groups()
        shares = features["topics"][:, : len(transformers["both"].offsets_)]
        scale = _ratio(_variance(shares), _variance(X))
        features["both"] = _join_columns(X * scale, shares)
    if set(names) == {"groups"} and not features:
        raise ArgumentError(
            "features='groups' needs groups with at least two values, got fewer; pass groups= to"
            " fit, or use 'topics'."
        )
    return FeatureSets(
        {view: columns for view, columns in features.items() if view in names}, transformers, scale
    )


def _join_columns(left: Any, right: NDArray[np.float64]) -> Any:
    return (
        sparse.hstack([left, right], format="csr")
        if sparse.issparse(left)
        else np.hstack([left, right])
    )


def _ratio(target: float, actual: float) -> float:
    """Return the factor that scales one variance to another; 1 if either is zero."""
    return float(np.sqrt(target / actual)) if target > 0 and actual > 0 else 1.0


def _variance(columns: Any) -> float:
    """Return the mean squared distance of a row from the mean; 0 if it is only rounding."""
    mean = np.asarray(columns.mean(axis=0, dtype=np.float64)).ravel()
    if sparse.issparse(columns):
        variance, rounding = (
            float(columns.multiply(columns).sum()) / columns.shape[0] - float(mean @ mean),
            1e-12,
        )
    else:
        variance, rounding = float(np.var(columns, axis=0, dtype=np.float64).sum()), 1e-24
    return variance if variance > rounding * float(mean @ mean) else 0.0
