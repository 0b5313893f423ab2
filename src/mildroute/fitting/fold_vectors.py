"""Vectors of inputs by encoders that were not trained on a fold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack
from sklearn.base import clone

from mildroute.exceptions import ArgumentError
from mildroute.routers.frontier.folds import cut_into_folds
from mildroute.routers.training_rows import FoldVectors

__all__ = ["fold_vectors"]

# Up to this many rows, an encoder's vectors of its own training rows differ from those of new rows:
# at "keep 99%", a router measured on such vectors served a bill that was off by 6% on average, and
# by 1% if each fold had its own encoder (30 fits on 500 to 3,000 rows). At 11,000 rows the bill was
# still off by 8% in one run.
_OWN_ROWS = 20_000


def fold_vectors(
    encoder: Any,
    X: Any,
    vectors: Any,
    router: Any,
    clusters: NDArray[np.intp] | None = None,
) -> list[FoldVectors] | None:
    """Return vectors of all inputs by encoders that were not trained on a fold.

    Return `None` if ``vectors`` themselves may be cut into folds.
    """
    rows = vectors.shape[0]
    if not getattr(encoder, "learns_from_rows", True) or rows > _OWN_ROWS:
        return None
    inputs = X if isinstance(X, list) else list(X)
    folds = []
    for held_out in cut_into_folds(rows, router.random_state, clusters):
        seen = np.setdiff1d(np.arange(rows), held_out)
        own = clone(encoder)
        try:
            own_vectors = own.fit_transform([inputs[row] for row in seen])
        except ArgumentError:
            return None  # some folds alone have nothing to encode
        both = (own_vectors, own.transform([inputs[row] for row in held_out]))
        back = np.argsort(np.concatenate([seen, held_out]))
        stacked = vstack(both, format="csr") if issparse(own_vectors) else np.concatenate(both)
        folds.append(FoldVectors(held_out, stacked[back]))
    return folds or None
