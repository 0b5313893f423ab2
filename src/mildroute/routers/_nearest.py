"""Search for the nearest rows by matrix products, in blocks that bound the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

# Number of distances held at once: 128 MiB of float64.
_BLOCK_ELEMENTS = 1 << 24
# Squared distances are rounded to this fraction of the rows' mean squared norm, so that neither the
# batch nor its order breaks a tie.
_RESOLUTION = 1e-10


def nearest_blocks(
    queries: Any, rows: Any, size: int, *, own: NDArray[np.intp] | None = None, width: int = 1
) -> Iterator[tuple[slice, NDArray[np.intp], NDArray[np.float64]]]:
    """Yield the nearest rows of each query, nearest first.

    Args:
        queries: Shape (m, d), dense or sparse.
        rows: Shape (n, d), dense or sparse, at least ``size`` of them (excluding a query's own).
        size: Number of neighbors of each query.
        own: Index of the row to exclude for each query, shape (m,): the query itself in
            leave-one-out.
        width: Number of values that the caller holds per neighbor; a larger one means smaller
            blocks.

    Yields:
        The block of queries, the indices of their neighbors and the squared Euclidean distances,
        both of shape (block, size). Distances are positive and at least the resolution.
    """
    lengths = _squared_lengths(rows)
    unit = _RESOLUTION * (float(lengths.mean()) or 1.0)
    step = max(1, _BLOCK_ELEMENTS // (len(lengths) + size * width))
    for start in range(0, queries.shape[0], step):
        block = slice(start, min(start + step, queries.shape[0]))
        squares = _products(queries[block], rows)
        squares *= -2
        squares += lengths
        squares += _squared_lengths(queries[block])[:, None]
        squares /= unit
        np.rint(np.maximum(squares, 0, out=squares), out=squares)
        if own is not None:
            squares[np.arange(len(squares)), own[block]] = np.inf
        near = _smallest(squares, size)
        yield block, near, np.maximum(np.take_along_axis(squares, near, axis=1), 1) * unit


def _smallest(values: NDArray[np.float64], size: int) -> NDArray[np.intp]:
    """Return the columns of the smallest values of each row, ascending."""
    near = (
        np.argpartition(values, size - 1, axis=1)[:, :size]
        if size < values.shape[1]
        else np.tile(np.arange(size), (len(values), 1))
    )
    near.sort(axis=1)
    order = np.argsort(np.take_along_axis(values, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def _products(queries: Any, rows: Any) -> NDArray[np.float64]:
    if not sparse.issparse(rows):
        return np.asarray(queries @ rows.T, dtype=np.float64)
    dense = queries.toarray() if sparse.issparse(queries) else queries
    return np.ascontiguousarray(np.asarray(rows @ dense.T).T)


def _squared_lengths(rows: Any) -> NDArray[np.float64]:
    if sparse.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
