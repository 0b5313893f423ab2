"""What a linear router may see of its input: topics, the vector itself, or both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from mildroute.errors import ArgumentError
from mildroute.routers.topics import TopicFeatures

__all__ = ["View", "Views", "views_of"]

View: TypeAlias = Literal["none", "groups", "topics", "raw", "both", "average"]
"""Nothing (so the router is the best single expert), topics of groups alone, all topics, the vector, the vector with its clusters, or the
mean of two routers, one on the vector and one on the topics."""


@dataclass(frozen=True)
class Views:
    """Features of the training rows by view.

    Attributes:
        features: Shape (n, d) of each view.
        topics: The transformer behind a view that has topics.
        vector_scale: Factor of the vector in ``"both"``, which makes it vary as much as the topics.

    Example:
        >>> views_of(np.eye(12), None, {"raw"}, TopicFeatures()).features["raw"].shape
        (12, 12)
    """

    features: dict[View, Any]
    topics: dict[View, TopicFeatures]
    vector_scale: float = 1.0


def views_of(X: Any, groups: Any, wanted: Collection[View], topics: TopicFeatures) -> Views:
    """Build the wanted views of training rows; topics of their groups are out of fold.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        groups: Group of each row, shape (n,), or none.
        wanted: Names of views; ``"groups"`` is left out where there are no groups, unless it is the only one.
        topics: A template; it stays as it is.

    Returns:
        The views.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(60, 3))
        >>> sorted(views_of(X, X[:, 0] > 0, {"groups", "topics"}, TopicFeatures(clusters=(4,), random_state=0)).features)
        ['groups', 'topics']
    """
    features: dict[View, Any] = {}
    transformers: dict[View, TopicFeatures] = {}
    if "groups" in wanted and groups is not None and len(np.unique(np.asarray(groups))) > 1:
        transformers["groups"] = clone(topics).set_params(clusters=())
        features["groups"] = transformers["groups"].fit_transform(X, groups=groups)
    if "topics" in wanted or "both" in wanted:
        transformers["topics"] = clone(topics)
        features["topics"] = transformers["topics"].fit_transform(X, groups=groups)
    if "raw" in wanted:
        features["raw"] = X
    scale = 1.0
    if "both" in wanted:
        # Without groups: beside the vector, an out-of-fold posterior would give away the group of its own row.
        transformers["both"] = transformers["topics"].without_groups()
        clusters = features["topics"][:, : len(transformers["both"].offsets_)]
        scale = _ratio(_variance(clusters), _variance(X))
        features["both"] = _beside(X * scale, clusters)
    if set(wanted) == {"groups"} and not features:
        raise ArgumentError("features='groups' needs groups with at least two values, got none; pass groups= to fit, or take 'topics'.")
    return Views({view: columns for view, columns in features.items() if view in wanted}, transformers, scale)


def _beside(left: Any, right: NDArray[np.float64]) -> Any:
    return sparse.hstack([left, right], format="csr") if sparse.issparse(left) else np.hstack([left, right])


def _ratio(wanted: float, found: float) -> float:
    """Factor that brings columns from one variance to another; 1 where either has none."""
    return float(np.sqrt(wanted / found)) if wanted > 0 and found > 0 else 1.0


def _variance(columns: Any) -> float:
    """Mean squared distance of a row from the mean; zero where it is no more than rounding."""
    mean = np.asarray(columns.mean(axis=0, dtype=np.float64)).ravel()
    if sparse.issparse(columns):
        variance, rounding = float(columns.multiply(columns).sum()) / columns.shape[0] - float(mean @ mean), 1e-12
    else:
        variance, rounding = float(np.var(columns, axis=0, dtype=np.float64).sum()), 1e-24
    return variance if variance > rounding * float(mean @ mean) else 0.0
