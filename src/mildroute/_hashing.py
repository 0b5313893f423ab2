"""Hashes of rows, texts and tables, and the uniform number that a request id stands for."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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
    """Fingerprints of a table's inputs as signed numbers, which an artifact can hold.

    Args:
        table: A ``CostTable`` with inputs.
    """
    return fingerprints(digests(table.arrow.column("input"))).view(np.int64)


# A hash of what a table says, not of how it is stored.
#
# Each column has its own running SHA-256: over float64 values (little endian), or over the
# digests of its texts. Such a stream does not see where one part ends and the next begins, so the
# file format, shards, row groups and batch sizes leave no trace; neither do the order of the
# columns and the width of equal numbers. The order of the rows counts, and so does every value of
# the format's columns. Prices and ignored columns do not: what experts cost is in the dollars.


class ContentHasher:
    """Running hash of a table that arrives in parts."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], Any] = {}

    def update(
        self, table: pa.Table, marks: Mapping[str, NDArray[np.uint64]] | None = None
    ) -> None:
        """Add rows in canonical form, with the digests of text columns where they are known."""
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
        """The hash of everything added so far."""
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


# A number that stands for the content of a row: the same wherever the row stands, dense or
# sparse.


# Entries hashed at once, so that memory does not grow with the rows.
_BLOCK_ELEMENTS = 1 << 20


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers evenly, one to one (the finalizer of SplitMix64).

    Args:
        values: Any shape.

    Returns:
        The same shape.
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def hash_rows(X: Any, seed: int = 0) -> NDArray[np.uint64]:
    """Hash of each row's values as float64.

    Zeros do not count, so a sparse row and its dense form hash alike.

    Args:
        X: Vectors, shape (n, d), dense or sparse (CSR).
        seed: Another seed gives an unrelated hash.
    """
    rows, columns = X.shape
    keys = mix(np.arange(1, columns + 1, dtype=np.uint64))
    step = max(1, _BLOCK_ELEMENTS // max(1, columns))
    blocks = [_sums(X[start : start + step], keys) for start in range(0, rows, step)]
    sums = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.uint64)
    return mix(sums + mix(np.array([(seed + 1) % 2**64], dtype=np.uint64)))


def _sums(X: Any, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sum of the hashes of the entries that are not zero, modulo 2^64."""
    if isinstance(X, np.ndarray):
        bits = np.ascontiguousarray(X, dtype=np.float64).view(np.uint64)
        return np.where(np.asarray(X) == 0, np.uint64(0), mix(bits ^ keys)).sum(
            axis=1, dtype=np.uint64
        )
    # Not at the top: tables are hashed without scipy, which takes longer to load than all else
    # here.
    from scipy import sparse

    entries = sparse.csr_array(X, dtype=np.float64, copy=True)
    entries.sum_duplicates()
    hashes = np.where(
        entries.data == 0, np.uint64(0), mix(entries.data.view(np.uint64) ^ keys[entries.indices])
    )
    totals = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return np.asarray(totals[entries.indptr[1:]] - totals[entries.indptr[:-1]])


def request_uniforms(keys: Iterable[str | bytes], seed: int = 0) -> NDArray[np.float64]:
    """A number from 0 to just below 1 for each key, the same in every process.

    How a request decides between two vertices.

    Args:
        keys: Ids of requests, or their texts.
        seed: Another seed gives unrelated numbers.
    """
    prefix = hashlib.blake2b(int(seed).to_bytes(16, "little", signed=True), digest_size=8)
    return np.array([_uniform(prefix.copy(), key) for key in keys], dtype=np.float64)


def row_uniforms(X: Any, seed: int = 0) -> NDArray[np.float64]:
    """Return a number from 0 to just below 1 for each row without an id, shape (n,).

    The number depends on the content of the row and on how many equal rows precede it in ``X``. So
    equal rows get unrelated numbers, and a row on its own always gets the same one.

    Args:
        X: Vectors, shape (n, d), dense or sparse (CSR).
        seed: Another seed gives unrelated numbers.
    """
    hashes = hash_rows(X, seed)
    repeats = _count_earlier(hashes)
    # The first of equal rows keeps its hash; the others continue with SplitMix64 from there.
    hashes = np.where(repeats == 0, hashes, mix(hashes + repeats * _GOLDEN))
    return np.asarray((hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _count_earlier(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return how many equal values precede each value."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(starts, len(values)))
    earlier = np.empty(len(values), dtype=np.uint64)
    earlier[order] = np.arange(len(values)) - np.repeat(starts, sizes)
    return earlier


def _uniform(digest: Any, key: str | bytes) -> float:
    if not isinstance(key, (str, bytes)):
        raise ArgumentError(f"request ids must be strings, got {key!r}; take str of it.")
    digest.update(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key)
    # 53 bits, so that the largest number is still below 1.
    return (int.from_bytes(digest.digest(), "little") >> 11) * 2.0**-53


def hash_of_data(X: Any, costs: NDArray[np.float64]) -> str:
    """SHA-256 of the rows in their order; the same for dense and sparse vectors.

    Args:
        X: Vectors, shape (n, d).
        costs: Shape (n, p).
    """
    return hashlib.sha256(hash_rows(X).tobytes() + hash_rows(costs, seed=1).tobytes()).hexdigest()
