"""A digest of rows of any columns: of their values alone, not of how Arrow happens to hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["RowsDigest"]


class RowsDigest:
    """Running digest of rows that arrive in runs; the same runs give the same digest, whatever file they come from.

    Args:
        schema: Of the rows; its names and types count, its metadata too.

    Example:
        >>> one, two = (RowsDigest(pa.schema([("text", pa.string())])) for _ in range(2))
        >>> one.add(pa.table({"text": ["a", "b"]}))
        >>> two.add(pa.table({"text": ["x", "a", "b"]}).slice(1))
        >>> one.hexdigest() == two.hexdigest()
        True
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._hasher = hashlib.blake2b(schema.serialize(), digest_size=16)

    def add(self, run: pa.Table) -> None:
        """Add a run of rows."""
        for column in run.columns:
            for part in _bytes_of(pa.concat_arrays(column.chunks)):
                self._hasher.update(part)

    def hexdigest(self) -> str:
        """Thirty-two hexadecimal digits of all rows so far."""
        return self._hasher.hexdigest()


def _bytes_of(values: pa.Array) -> Iterator[Any]:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        yield values.is_null().to_numpy(zero_copy_only=False).tobytes()
        plain = values.cast(pa.large_binary()).fill_null(b"")
        yield pc.binary_length(plain).to_numpy().tobytes()
        ends = np.frombuffer(plain.buffers()[1], np.int64)[plain.offset : plain.offset + len(plain) + 1]
        yield memoryview(plain.buffers()[2] or b"")[ends[0] : ends[-1]]
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        yield values.is_null().to_numpy(zero_copy_only=False).tobytes()
        yield values.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy(zero_copy_only=False).tobytes()
    else:
        yield repr(values.to_pylist()).encode("utf-8", "surrogatepass")
