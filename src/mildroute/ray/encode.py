"""Encoding of a Ray dataset's texts with a pool of actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from mildroute._optional import needs_extra
from mildroute.exceptions import ArgumentError, TableError
from mildroute.persistence.artifact import load_router

with needs_extra("ray", extra="ray", user="mildroute.ray"):
    from ray.data import ActorPoolStrategy, Dataset

__all__ = ["encode_dataset"]


_BATCH_SIZE = 1024


def encode_dataset(
    dataset: Dataset,
    encoder: Any,
    *,
    column: str = "input",
    vector: str = "vector",
    workers: int = 2,
) -> Dataset:
    """Add the vectors of a text column to a dataset.

    Each actor holds one encoder and uses one processor. Nothing is encoded until the dataset is
    read: write it with ``write_parquet`` to encode once and train many times.

    Args:
        dataset: Rows with a text column.
        encoder: A fitted encoder, or the folder of a stored router with an encoder. Set
            ``threads=1`` on a :class:`~mildroute.encoders.SentenceEncoder`.
        column: Name of the text column.
        vector: Name of the new column, a fixed-size list of 32-bit floats.
        workers: Number of actors.

    Returns:
        The dataset with the new column.

    Example:
        >>> encode_dataset.__name__
        'encode_dataset'
    """
    if isinstance(encoder, str | Path):
        router = load_router(encoder)
        if not hasattr(router, "encoder_"):
            raise ArgumentError(
                f"{str(encoder)!r} must hold a router with an encoder, got a"
                f" {type(router).__name__}; pass a fitted encoder."
            )
        encoder = router.encoder_
    check_is_fitted(encoder)
    return dataset.map_batches(
        _EncodingActor,
        fn_constructor_args=(encoder, column, vector),
        batch_size=_BATCH_SIZE,
        batch_format="pyarrow",
        num_cpus=1,
        compute=ActorPoolStrategy(size=workers),
    )


class _EncodingActor:
    """An encoder in its own process."""

    def __init__(self, encoder: Any, column: str, vector: str) -> None:
        self._encoder = encoder
        self._column = column
        self._vector = vector

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the rows with their texts' vectors."""
        texts = rows.column(self._column)
        if texts.null_count:
            raise TableError(
                f"every row must have a text, got {texts.null_count} nulls in {self._column!r};"
                " drop those rows first."
            )
        encoded = self._encoder.transform(texts.to_pylist())
        dense = encoded.toarray() if sparse.issparse(encoded) else encoded
        vectors = np.ascontiguousarray(dense, dtype=np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        return rows.append_column(self._vector, column)
