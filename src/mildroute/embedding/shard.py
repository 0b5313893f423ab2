"""One shard: some rows of a table with their vectors, computed and written unless it is there already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from mildroute.embedding.content import RowsDigest
from mildroute.embedding.folder import ShardFolder, shard_name
from mildroute.embedding.table import TextTable, runs
from mildroute.errors import MildrouteError, TableError

__all__ = ["Made", "Part", "Work", "half_vectors", "make_shard"]

_RUN = 1024
"""Rows that are encoded together: encoders put texts of like length together within a run."""
_GROUP = 8 * _RUN
_HALF = np.dtype("<f2")


@dataclass(frozen=True)
class Part:
    """Rows of a table that become a shard, from ``start`` to before ``stop``.

    Example:
        >>> Part(50_000, 80_000).rows
        30000
    """

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of the rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class Work:
    """All that is needed to make any shard of a job, in any process.

    Args:
        table: Where the rows are.
        encoder: Fitted.
        folder: Where the shards go.
        identity: Digest of the encoder.
        recipe: Digest of all that a shard depends on apart from its rows.
        vector: Name of their column.

    Example:
        >>> Work.__name__
        'Work'
    """

    table: TextTable
    encoder: Any
    folder: ShardFolder
    identity: str
    recipe: str
    vector: str = "vector"


@dataclass(frozen=True)
class Made:
    """A shard that is whole.

    Args:
        part: Its rows.
        name: Its name.
        is_new: Whether it was computed now.
        seconds: What that took.

    Example:
        >>> Made(Part(0, 10), "rows-...", is_new=False).seconds
        0.0
    """

    part: Part
    name: str
    is_new: bool
    seconds: float = 0.0


def make_shard(work: Work, part: Part, tell: Callable[[int], None] | None = None) -> Made:
    """Make a shard, or find it: one of the same rows and the same recipe is never computed twice.

    Args:
        work: What to do.
        part: Which rows.
        tell: Called with the number of rows after each run of them; or none.

    Returns:
        The shard.

    Example:
        >>> make_shard.__name__
        'make_shard'
    """
    begin = time.perf_counter()
    content = RowsDigest(work.table.schema)
    for run in _runs(work, part):
        content.add(run)
    name = shard_name(part.start, part.stop, work.recipe, content.hexdigest())
    if work.folder.has(name, part.rows):
        return Made(part, name, is_new=False)
    written = work.folder.write(lambda stream: _fill(stream, work, part, tell))
    if written != name:
        raise TableError(f"a source must not change while it is read, got other rows {part.start} to {part.stop - 1}; run it again.")
    return Made(part, name, is_new=True, seconds=time.perf_counter() - begin)


def half_vectors(encoder: Any, texts: list[str], first_row: int = 0) -> NDArray[np.float16]:
    """Vectors of texts as they are stored, float16, shape (n, d).

    Args:
        encoder: Fitted.
        texts: n texts.
        first_row: Number of the first one, for messages.

    Returns:
        The vectors.

    Example:
        >>> from mildroute.encoders.hashing import HashingEncoder
        >>> half_vectors(HashingEncoder(columns=4).fit(["a"]), ["one", "two"]).dtype
        dtype('float16')
    """
    try:
        # One thread: on several, sums may be rounded otherwise, and a shard must be the same wherever it is made.
        with threadpool_limits(limits=1):
            vectors = encoder.transform(texts)
    except MildrouteError as error:
        raise TableError(f"rows {first_row} to {first_row + len(texts) - 1} cannot be encoded: {error}") from error
    dense = vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)
    with np.errstate(over="ignore"):
        halves = np.ascontiguousarray(dense, dtype=_HALF)
    bad = np.flatnonzero(~np.isfinite(halves).all(axis=1))
    if len(bad):
        largest = np.abs(dense[bad[0]]).max()
        raise TableError(
            f"vectors are kept as float16, whose numbers must be below {np.finfo(_HALF).max:,.0f}, got {largest:g} in row "
            f"{first_row + bad[0]}; scale or clip them first."
        )
    return halves


def _runs(work: Work, part: Part) -> Iterator[pa.Table]:
    return runs(work.table, part.start, part.stop, size=_RUN)


def _fill(stream: Any, work: Work, part: Part, tell: Callable[[int], None] | None) -> str:
    """Write the rows with their vectors in row groups; the name of what was read."""
    content, writer, at = RowsDigest(work.table.schema), None, part.start
    waiting: list[pa.Table] = []
    for run in _runs(work, part):
        content.add(run)
        vectors = half_vectors(work.encoder, run.column(work.table.text).to_pylist(), at)
        waiting.append(run.append_column(_field(work, vectors.shape[1]), _column(vectors)))
        writer = writer or _writer(stream, waiting[0].schema, work.vector)
        at += run.num_rows
        if sum(each.num_rows for each in waiting) >= _GROUP or at == part.stop:
            writer.write_table(pa.concat_tables(waiting))
            waiting = []
        if tell is not None:
            tell(run.num_rows)
    if writer is not None:
        writer.close()
    return shard_name(part.start, part.stop, work.recipe, content.hexdigest())


def _field(work: Work, width: int) -> pa.Field:
    return pa.field(work.vector, pa.binary(_HALF.itemsize * width), nullable=False)


def _column(vectors: NDArray[np.float16]) -> pa.Array:
    """Two bytes a number, without a copy: what ``mildroute.engine.train`` reads fastest."""
    return pa.Array.from_buffers(pa.binary(_HALF.itemsize * vectors.shape[1]), len(vectors), [None, pa.py_buffer(vectors)])


def _writer(stream: Any, schema: pa.Schema, vector: str) -> pq.ParquetWriter:
    """Texts and numbers are packed, vectors are not: they would hardly shrink, and be slower to read."""
    others = [name for name in schema.names if name != vector]
    packing = dict.fromkeys(others, "zstd") | {vector: "none"}
    return pq.ParquetWriter(stream, schema, compression=packing, use_dictionary=others, write_page_checksum=True)
