"""A number that stands for the content of a row: the same wherever the row stands, dense or sparse."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mildroute.errors import ArgumentError

__all__ = ["coins", "hash_rows", "mix", "row_coins"]

_BLOCK_ELEMENTS = 1 << 20
"""Entries hashed at once, so that memory does not grow with the rows."""


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers evenly, one to one (the finaliser of SplitMix64).

    Args:
        values: Any shape.

    Returns:
        The same shape.

    Example:
        >>> mix(np.array([0, 1], dtype=np.uint64))
        array([                   0,  6238072747940578789], dtype=uint64)
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def hash_rows(X: Any, seed: int = 0) -> NDArray[np.uint64]:
    """Hash of each row's values as float64; zeros do not count, so a sparse row and its dense form hash alike.

    Args:
        X: Vectors, shape (n, d), dense or sparse (CSR).
        seed: Another seed gives an unrelated hash.

    Returns:
        Shape (n,).

    Example:
        >>> hashes = hash_rows(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
        >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
        (True, False)
    """
    rows, columns = X.shape
    keys = mix(np.arange(1, columns + 1, dtype=np.uint64))
    step = max(1, _BLOCK_ELEMENTS // max(1, columns))
    blocks = [_sums(X[start : start + step], keys) for start in range(0, rows, step)]
    sums = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.uint64)
    return mix(sums + mix(np.array([(seed + 1) % 2**64], dtype=np.uint64)))


def _sums(X: Any, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sum of the hashes of the entries that are not zero, modulo 2^64."""
    if not sparse.issparse(X):
        bits = np.ascontiguousarray(X, dtype=np.float64).view(np.uint64)
        return np.where(np.asarray(X) == 0, np.uint64(0), mix(bits ^ keys)).sum(axis=1, dtype=np.uint64)
    entries = sparse.csr_array(X, dtype=np.float64, copy=True)
    entries.sum_duplicates()
    hashes = np.where(entries.data == 0, np.uint64(0), mix(entries.data.view(np.uint64) ^ keys[entries.indices]))
    totals = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return np.asarray(totals[entries.indptr[1:]] - totals[entries.indptr[:-1]])


def coins(keys: Iterable[str | bytes], seed: int = 0) -> NDArray[np.float64]:
    """A number from 0 to just below 1 for each key, the same in every process: how a request decides between two vertices.

    Args:
        keys: Ids of requests, or their texts.
        seed: Another seed gives unrelated numbers.

    Returns:
        Shape (n,).

    Example:
        >>> coins(["req-1", "req-2", "req-1"]).round(3)
        array([0.105, 0.31 , 0.105])
    """
    prefix = hashlib.blake2b(int(seed).to_bytes(16, "little", signed=True), digest_size=8)
    return np.array([_uniform(prefix.copy(), key) for key in keys], dtype=np.float64)


def row_coins(X: Any, seed: int = 0) -> NDArray[np.float64]:
    """The same for rows without ids, by their content, shape (n,).

    Example:
        >>> row_coins(np.array([[1.0], [2.0], [1.0]])).round(3)
        array([0.877, 0.703, 0.877])
    """
    return np.asarray((hash_rows(X, seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _uniform(digest: Any, key: str | bytes) -> float:
    if not isinstance(key, (str, bytes)):
        raise ArgumentError(f"request ids must be strings, got {key!r}; take str of it.")
    digest.update(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key)
    # 53 bits, so that the largest number is still below 1.
    return (int.from_bytes(digest.digest(), "little") >> 11) * 2.0**-53
