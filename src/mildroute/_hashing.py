"""Hashes of rows, texts and tables."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def digests(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return a 128-bit digest of each text as a pair of numbers, shape (n, 2).

    Args:
        column: Strings, large or not, length n.
    """
    hashed = b"".join(
        hashlib.blake2b(text, digest_size=16).digest()
        for chunk in column.chunks
        for text in chunk.cast(pa.large_binary()).to_pylist()
    )
    return np.frombuffer(hashed, "<u8").reshape(-1, 2).astype(np.uint64)


def fingerprints(marks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return digests as one 64-bit number each, shape (n,).

    A chance repeat among ten million texts has probability below 3 in a million.
    """
    return np.ascontiguousarray(marks[:, 0])


def text_fingerprints(table: Any) -> NDArray[np.int64]:
    """Return fingerprints of a table's inputs as signed numbers, which an artifact can hold.

    Args:
        table: A ``CostTable`` with inputs.
    """
    return fingerprints(digests(table.arrow.column("input"))).view(np.int64)


# A hash of a table's content, independent of how it is stored.
#
# Each column has its own running SHA-256: over float64 values (little endian), or over the digests
# of its texts. Such a stream does not see where one part ends and the next begins, so the file
# format, shards, row groups and batch sizes leave no trace; neither do the order of the columns and
# the width of equal numbers. The order of the rows counts, and so does every value of the format's
# columns. Prices and ignored columns do not count: the dollars already contain what experts cost.


class ContentHasher:
    """A running hash of a table that arrives in parts."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], Any] = {}

    def update(
        self, table: pa.Table, marks: Mapping[str, NDArray[np.uint64]] | None = None
    ) -> None:
        """Add rows in canonical form, with the digests of text columns if they are known."""
        for name in table.column_names:
            column = table.column(name)
            if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
                self._add(
                    name, "digests", marks[name] if marks and name in marks else digests(column)
                )
            else:
                for kind, values in map(_numbers_of, column.chunks):
                    self._add(name, kind, values)

    def _add(self, name: str, kind: str, values: Any) -> None:
        self._streams.setdefault((name, kind), hashlib.sha256()).update(_little(values))

    def hexdigest(self) -> str:
        """Return the hash of everything added so far."""
        total = hashlib.sha256(b"mildroute cost table 2\n")
        for (name, kind), stream in sorted(self._streams.items()):
            total.update(f"{len(name.encode())} {name} {kind} ".encode() + stream.digest())
        return total.hexdigest()


def content_hash(table: pa.Table) -> str:
    """Hash of a canonical table.

    Returns:
        64 hexadecimal digits.
    """
    hasher = ContentHasher()
    hasher.update(table)
    return hasher.hexdigest()


def _numbers_of(chunk: pa.Array) -> tuple[str, Any]:
    if pa.types.is_timestamp(chunk.type):
        return "microseconds", chunk.cast(pa.int64()).to_numpy()
    # adding zero turns minus zero into zero: they are equal values
    # log-probabilities may be unknown
    return "float64", chunk.to_numpy(zero_copy_only=False) + 0.0


def _little(values: Any) -> Any:
    return np.ascontiguousarray(values if sys.byteorder == "little" else values.byteswap())


# Entries hashed at once, so that memory does not grow with the rows.
_BLOCK_ELEMENTS = 1 << 20


def hash_rows(X: Any, seed: int = 0) -> NDArray[np.uint64]:
    """Return a hash of each row's content, independent of the row's position.

    Zeros do not count, so a sparse row and its dense form hash alike.

    Args:
        X: Vectors, shape (n, d), dense or sparse (CSR).
        seed: Another seed gives an unrelated hash.
    """
    rows, columns = X.shape
    seeded = hashlib.blake2b(int(seed).to_bytes(16, "little", signed=True), digest_size=8)
    step = max(1, _BLOCK_ELEMENTS // max(1, columns))
    hashes = [
        row
        for start in range(0, rows, step)
        for row in _digests_of(X[start : start + step], seeded)
    ]
    return np.frombuffer(b"".join(hashes), "<u8").astype(np.uint64)


def _digests_of(X: Any, seeded: Any) -> Iterator[bytes]:
    """Yield the digest of the positions and values of each row's nonzero entries."""
    # Not at the top: tables are hashed without scipy, which takes longer to load than everything
    # else here.
    from scipy import sparse

    entries = sparse.csr_array(X, dtype=np.float64, copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    positions = entries.indices.astype("<i8")
    values = entries.data.astype("<f8")
    for first, last in pairwise(entries.indptr):
        digest = seeded.copy()
        digest.update(positions[first:last].tobytes())
        digest.update(values[first:last].tobytes())
        yield digest.digest()


def rehash(hashes: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return an unrelated hash for each pair of a hash and a number, shape (n,)."""
    pairs = np.stack([hashes, numbers], axis=1).astype("<u8")
    digests_of_pairs = [hashlib.blake2b(pair.tobytes(), digest_size=8).digest() for pair in pairs]
    return np.frombuffer(b"".join(digests_of_pairs), "<u8").astype(np.uint64)


def hash_of_data(X: Any, costs: NDArray[np.float64]) -> str:
    """Return the SHA-256 of the rows in order; the same for dense and sparse vectors.

    Args:
        X: Vectors, shape (n, d).
        costs: Shape (n, p).
    """
    return hashlib.sha256(hash_rows(X).tobytes() + hash_rows(costs, seed=1).tobytes()).hexdigest()
