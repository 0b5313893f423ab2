"""Hashes of rows, texts and tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Number of entries per block, so that memory does not grow with the rows.
_BLOCK_ELEMENTS = 1 << 20


def hash_rows(X: Any, seed: int = 0) -> NDArray[np.uint64]:
    """Return a hash of each row's content, independent of the row's position.

    Zeros are ignored, so a sparse row and its dense form have the same hash.

    Args:
        X: Vectors, shape (n, d), dense or sparse (CSR).
        seed: Different seeds give unrelated hashes.
    """
    rows, columns = X.shape
    seeded_hash = hashlib.blake2b(int(seed).to_bytes(16, "little", signed=True), digest_size=8)
    step = max(1, _BLOCK_ELEMENTS // max(1, columns))
    hashes = [
        row
        for start in range(0, rows, step)
        for row in _digests_of(X[start : start + step], seeded_hash)
    ]
    return np.frombuffer(b"".join(hashes), "<u8").astype(np.uint64)


def _digests_of(X: Any, seeded_hash: Any) -> Iterator[bytes]:
    """Yield the digest of the positions and values of each row's nonzero entries."""
    # Imported here because hashing tables does not need scipy, which is slow to load.
    from scipy import sparse

    entries = sparse.csr_array(X, dtype=np.float64, copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    positions = entries.indices.astype("<i8")
    values = entries.data.astype("<f8")
    for first, last in pairwise(entries.indptr):
        digest = seeded_hash.copy()
        digest.update(positions[first:last].tobytes())
        digest.update(values[first:last].tobytes())
        yield digest.digest()


def rehash(hashes: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a new hash for each pair of a hash and a number, shape (n,)."""
    pairs = np.stack([hashes, numbers], axis=1).astype("<u8")
    digests_of_pairs = [hashlib.blake2b(pair.tobytes(), digest_size=8).digest() for pair in pairs]
    return np.frombuffer(b"".join(digests_of_pairs), "<u8").astype(np.uint64)


def hash_of_data(X: Any, costs: NDArray[np.float64]) -> str:
    """Return the SHA-256 of the rows in order, which is the same for dense and sparse vectors.

    Args:
        X: Vectors, shape (n, d).
        costs: Shape (n, p).
    """
    return hashlib.sha256(hash_rows(X).tobytes() + hash_rows(costs, seed=1).tobytes()).hexdigest()
