"""A hash of what a table says, not of how it is stored.

Each column has its own running SHA-256: over float64 values (little endian), or over the digests of its texts. Such a stream does
not see where one part ends and the next begins, so the file format, shards, row groups and batch sizes leave no trace; neither do the
order of the columns and the width of equal numbers. The order of the rows counts, and so does every value of the format's columns.
Prices and ignored columns do not: what experts cost is in the dollars.

Texts go through ``mildroute.costs.text_digests``, because SHA-256 of every byte of a large table would take as long as reading
it. The hash notices every accidental change; it is no proof against someone who forges texts on purpose.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mildroute.costs.text_digests import digests

__all__ = ["ContentHasher", "content_hash"]


class ContentHasher:
    """Running hash of a table that arrives in parts.

    Example:
        >>> whole, parts = ContentHasher(), ContentHasher()
        >>> table = pa.table({"query_id": pa.array(["q1", "q2"], pa.large_string()), "score:a": [0.5, 1.0]})
        >>> whole.update(table)
        >>> parts.update(table[:1]); parts.update(table[1:])
        >>> whole.hexdigest() == parts.hexdigest()
        True
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], Any] = {}

    def update(self, table: pa.Table, marks: Mapping[str, NDArray[np.uint64]] | None = None) -> None:
        """Add rows in canonical form, with the digests of those text columns for which they are known."""
        for name in table.column_names:
            column = table.column(name)
            if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
                self._add(name, "digests", marks[name] if marks and name in marks else digests(column))
            else:
                for kind, values in map(_numbers_of, column.chunks):
                    self._add(name, kind, values)

    def _add(self, name: str, kind: str, values: Any) -> None:
        self._streams.setdefault((name, kind), hashlib.sha256()).update(_little(values))

    def hexdigest(self) -> str:
        """The hash of everything added so far."""
        total = hashlib.sha256(b"mildroute cost table 1\n")
        for (name, kind), stream in sorted(self._streams.items()):
            total.update(f"{len(name.encode())} {name} {kind} ".encode() + stream.digest())
        return total.hexdigest()


def content_hash(table: pa.Table) -> str:
    """Hash of a canonical table.

    Args:
        table: Canonical columns.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> one = content_hash(pa.table({"score:a": [0.5, 1.0], "score:b": [1.0, 0.0]}))
        >>> one == content_hash(pa.table({"score:b": [1.0, 0.0], "score:a": [0.5, 1.0]}))
        True
    """
    hasher = ContentHasher()
    hasher.update(table)
    return hasher.hexdigest()


def _numbers_of(chunk: pa.Array) -> tuple[str, Any]:
    if pa.types.is_timestamp(chunk.type):
        return "microseconds", chunk.cast(pa.int64()).to_numpy()
    # adding zero turns minus zero into zero: they are equal values
    return "float64", chunk.to_numpy() + 0.0


def _little(values: Any) -> Any:
    return np.ascontiguousarray(values if sys.byteorder == "little" else values.byteswap())
