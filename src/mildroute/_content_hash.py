"""The hash of a table's content, independent of how it is stored.

Each column has its own running SHA-256: over float64 values (little endian), or over the digests
of its texts. The hash does not depend on the file format, shards, row groups, batch sizes, column
order or number width. It depends on the row order and on every value in the format's columns, but
not on prices and ignored columns, because the dollars already contain the experts' costs.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def digests(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return a 128-bit digest of each text as a pair of numbers, shape (n, 2).

    Args:
        column: A string or large-string column of length n.
    """
    digest_bytes = b"".join(
        hashlib.blake2b(text, digest_size=16).digest()
        for chunk in column.chunks
        for text in chunk.cast(pa.large_binary()).to_pylist()
    )
    return np.frombuffer(digest_bytes, "<u8").reshape(-1, 2).astype(np.uint64)


def fingerprints(text_digests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return one 64-bit number per digest, shape (n,).

    The probability of a collision among ten million texts is below 3 in a million.
    """
    return np.ascontiguousarray(text_digests[:, 0])


def text_fingerprints(table: Any) -> NDArray[np.int64]:
    """Return fingerprints of a table's inputs as signed integers, which an artifact can hold.

    Args:
        table: A ``CostTable`` with inputs.
    """
    return fingerprints(digests(table.arrow.column("input"))).view(np.int64)


def content_hash(table: pa.Table) -> str:
    """Return the hash of a canonical table as 64 hexadecimal digits."""
    total = hashlib.sha256(b"mildroute cost table 2\n")
    for name in sorted(table.column_names):
        column = table.column(name)
        if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
            kind = "digests"
            parts = [digests(column)]
        else:
            kind = "microseconds" if pa.types.is_timestamp(column.type) else "float64"
            parts = [_numbers_of(chunk) for chunk in column.chunks]
        stream = hashlib.sha256()
        for values in parts:
            stream.update(_to_little_endian(values))
        total.update(f"{len(name.encode())} {name} {kind} ".encode() + stream.digest())
    return total.hexdigest()


def _numbers_of(chunk: pa.Array) -> Any:
    if pa.types.is_timestamp(chunk.type):
        return chunk.cast(pa.int64()).to_numpy()
    # Log-probabilities may be null. Adding zero turns minus zero into zero, because they are equal.
    return chunk.to_numpy(zero_copy_only=False) + 0.0


def _to_little_endian(values: Any) -> Any:
    return np.ascontiguousarray(values if sys.byteorder == "little" else values.byteswap())
