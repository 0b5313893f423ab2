"""Folds of rows or of whole clusters of rows, either drawn at random or passed by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from mildroute.exceptions import ArgumentError, ShapeError

# Number of folds, or pairs of train and test rows as scikit-learn's splitters make them.
CV: TypeAlias = int | Sequence[tuple[Any, Any]]


def count_folds(cv: CV) -> int:
    """Return the number of folds; raise an ArgumentError if ``cv`` is invalid."""
    is_list = isinstance(cv, list | tuple) and all(len(pair) == 2 for pair in cv)
    folds = len(cv) if is_list else cv  # type: ignore[arg-type]
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise ArgumentError(
            f"cv must be a number of folds, at least 2, or a list of train and test rows, got"
            f" {cv!r:.80}; 5 is the default."
        )
    return int(folds)


def cluster_codes(clusters: Any, rows: int) -> NDArray[np.intp] | None:
    """Return cluster indices, shape (n,), or `None` if every row is its own cluster.

    Args:
        clusters: Cluster of each row, shape (n,), or `None`.
        rows: Number of rows n.
    """
    if clusters is None:
        return None
    if len(clusters) != rows:
        raise ShapeError(f"clusters must be ({rows},), one per row, got {len(clusters)}.")
    names, codes = np.unique(np.asarray(clusters), return_inverse=True)
    return None if len(names) == rows else codes.astype(np.intp)


def count_units(clusters: NDArray[np.intp] | None, rows: int) -> int:
    """Return the number of clusters, or of rows if each row is its own cluster."""
    return rows if clusters is None else int(clusters.max()) + 1


def assign_folds(
    rows: int,
    cv: CV,
    seed: int | None,
    kept: NDArray[np.bool_] | None = None,
    clusters: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """Return the fold in which each row is held out, shape (n,).

    Folds are balanced and shuffled.

    Args:
        rows: Number of rows n.
        cv: Number of folds, or pairs of train and test rows that test each row once.
        seed: Seed of the shuffling.
        kept: Mask of these rows among the rows that the pairs in ``cv`` index; defaults to all.
        clusters: Index of each row's cluster, shape (n,), or `None`. Clusters are held out as a
            whole. Ignored if ``cv`` is a list of pairs.
    """
    if isinstance(cv, int | np.integer) and clusters is not None:
        return _assign_clusters(clusters, int(cv), seed)
    if isinstance(cv, int | np.integer):
        assigned = np.zeros(rows, dtype=np.intp)
        splitter = KFold(max(2, min(cv, rows)), shuffle=True, random_state=seed or 0)
        for fold, (_, held_out) in enumerate(splitter.split(np.empty(rows))):
            assigned[held_out] = fold
        return assigned
    tested = np.concatenate([np.asarray(held_out, dtype=np.intp) for _, held_out in cv])
    number = np.repeat(np.arange(len(cv)), [len(held_out) for _, held_out in cv])
    total = rows if kept is None else len(kept)
    if not np.array_equal(np.sort(tested), np.arange(total)):
        raise ArgumentError(
            f"cv must test each of {total} rows once, got {len(tested)} test rows; make the pairs"
            " with KFold(...).split(X)."
        )
    assigned = number[np.argsort(tested)]
    return assigned if kept is None else assigned[kept]


def _assign_clusters(clusters: NDArray[np.intp], cv: int, seed: int | None) -> NDArray[np.intp]:
    """Return folds of whole clusters; the largest come first and go to the smallest fold."""
    sizes = np.bincount(clusters)
    shuffled = np.random.default_rng(seed or 0).permutation(len(sizes))
    filled = np.zeros(max(1, min(cv, len(sizes))), dtype=np.intp)
    assigned = np.empty(len(sizes), dtype=np.intp)
    for cluster in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        assigned[cluster] = fold = int(filled.argmin())
        filled[fold] += sizes[cluster]
    return assigned[clusters]
