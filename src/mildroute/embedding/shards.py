"""Content-addressed Parquet shards of vectors, and the folder that holds them."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from mildroute._files import file_lock, one_line, open_location
from mildroute._hashing import RowsDigest
from mildroute.embedding.texts import TextTable, runs
from mildroute.exceptions import MildrouteError, TableError
from mildroute.persistence.serialization import encode

__all__ = [
    "RowRange",
    "ShardFolder",
    "ShardResult",
    "ShardTask",
    "encode_float16",
    "encoder_fingerprint",
    "make_shard",
    "shard_name",
    "shard_stem",
    "with_threads",
]


# A folder of vector shards: one whole version in the open, the next one out of sight until it is
# whole too.
#
# Shards are named after their rows, their recipe and their content. Those of a run lie under
# ``_unfinished``, where no reader of ours looks, and are moved up when all are there; before
# that, those of an older version are removed. So a kill at any time leaves whole shards of one
# version. ``_manifest.json`` is there only while the version beside it is whole.


_MANIFEST, _UNFINISHED, _SOURCE, _LOCK = "_manifest.json", "_unfinished", "_source", "_lock"
_NAME = re.compile(r"rows-\d{12}-\d{12}-[0-9a-f]{12}-[0-9a-f]{24}\.parquet")


def shard_name(start: int, stop: int, recipe: str, content: str) -> str:
    """Name of a shard; names in order are rows in order."""
    return f"{shard_stem(start, stop, recipe)}-{content[:24]}.parquet"


def shard_stem(start: int, stop: int, recipe: str) -> str:
    """The name of a shard without its content."""
    return f"rows-{start:012d}-{stop:012d}-{recipe[:12]}"


@dataclass(frozen=True)
class ShardFolder:
    """Where shards lie; it can be sent to other processes.

    Args:
        uri: A path, or a URI of pyarrow or fsspec.
    """

    uri: str

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return open_location(self.uri)

    def __getstate__(self) -> dict[str, str]:
        """Another process finds its own way to the folder."""
        return {"uri": self.uri if "://" in self.uri else self._place[1]}

    @property
    def system(self) -> Any:
        """The file system."""
        return self._place[0]

    @property
    def root(self) -> str:
        """The folder in its file system."""
        return self._place[1]

    @property
    def source(self) -> str:
        """Where rows of text files wait as Parquet."""
        return f"{self.root}/{_SOURCE}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one process alone, if its file system has locks.

        A folder that holds other things than vectors is rejected.
        """
        try:
            others = sorted(
                name
                for name in self._listed("")
                if not (_NAME.fullmatch(name) or name.startswith("_"))
            )
            if others:
                raise TableError(
                    f"vectors must go to a folder of their own, got {self.uri!r} with {others[0]!r}"
                    " in it; choose a new one."
                )
            self.system.create_dir(f"{self.root}/{_UNFINISHED}", recursive=True)
        except (OSError, pa.ArrowException) as error:
            raise TableError(
                f"vectors must go to a folder that can be written, got {self.uri!r}:"
                f" {one_line(error)}."
            ) from error
        if not isinstance(self.system, pafs.LocalFileSystem):
            yield
            return
        with file_lock(f"{self.root}/{_LOCK}", create=True):
            yield

    def names(self) -> set[str]:
        """Names of all shards that are written, in the open or not."""
        return {
            name
            for name in {*self._listed(""), *self._listed(_UNFINISHED)}
            if _NAME.fullmatch(name)
        }

    def has(self, name: str, rows: int) -> bool:
        """Whether a shard is there with all its rows."""
        return any(
            self._rows(path) == rows
            for path in (f"{self.root}/{name}", f"{self.root}/{_UNFINISHED}/{name}")
        )

    def write(self, fill: Callable[[Any], str]) -> str:
        """Write a shard out of sight.

        Args:
            fill: Writes to a stream and returns the name of what it wrote.

        Returns:
            The name, under which there is the whole shard.
        """
        partial = f"{_UNFINISHED}/{secrets.token_hex(8)}.partial"
        try:
            with self.system.open_output_stream(f"{self.root}/{partial}") as stream:
                name = fill(stream)
            self._move(partial, f"{_UNFINISHED}/{name}")
        except OSError as error:
            raise TableError(
                f"a shard cannot be written to {self.uri!r}: {one_line(error)}."
            ) from error
        return name

    def publish(self, names: Sequence[str], manifest: dict[str, Any]) -> None:
        """Bring these shards into the open, and no others; a manifest says what they are."""
        there = {name for name in self._listed("") if _NAME.fullmatch(name)}
        fresh = set(names).intersection(self._listed(_UNFINISHED))
        if fresh or there != set(names) or self.manifest() != manifest:
            self._delete(_MANIFEST)
            for name in sorted(there - set(names)):
                self._delete(name)
            for name in sorted(fresh):
                self._move(f"{_UNFINISHED}/{name}", name)
            self._write_manifest(manifest)
        for name in (_UNFINISHED, _SOURCE):
            if self._kind(name) == pafs.FileType.Directory:
                self.system.delete_dir(f"{self.root}/{name}")

    def manifest(self) -> dict[str, Any] | None:
        """What the manifest says, or none where no whole version is there."""
        if self._kind(_MANIFEST) != pafs.FileType.File:
            return None
        with self.system.open_input_stream(f"{self.root}/{_MANIFEST}") as stream:
            try:
                said = json.loads(stream.read())
            except ValueError:
                return None
        return said if isinstance(said, dict) else None

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        partial = f"{_UNFINISHED}/{_MANIFEST}.partial"
        with self.system.open_output_stream(f"{self.root}/{partial}") as stream:
            stream.write(json.dumps(manifest, indent=2).encode())
        self._move(partial, _MANIFEST)

    def _listed(self, inner: str) -> list[str]:
        selector = pafs.FileSelector(f"{self.root}/{inner}".rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self.system.get_file_info(selector)]

    def _kind(self, name: str) -> Any:
        return self.system.get_file_info(f"{self.root}/{name}").type

    def _move(self, name: str, target: str) -> None:
        self.system.move(f"{self.root}/{name}", f"{self.root}/{target}")

    def _delete(self, name: str) -> None:
        if self._kind(name) == pafs.FileType.File:
            self.system.delete_file(f"{self.root}/{name}")

    def _rows(self, path: str) -> int | None:
        """Rows of a shard by its last bytes, or none where it is not there or not whole."""
        if self.system.get_file_info(path).type != pafs.FileType.File:
            return None
        try:
            with self.system.open_input_file(path) as stream:
                return int(pq.read_metadata(stream).num_rows)
        except (pa.ArrowException, OSError):
            return None


# One shard: some rows of a table with their vectors, computed and written unless it is there
# already.


# Rows that are encoded together: encoders put texts of like length together within a run.
_RUN = 1024
_GROUP = 8 * _RUN
_HALF = np.dtype("<f2")


@dataclass(frozen=True)
class RowRange:
    """Rows of a table that become a shard, from ``start`` to before ``stop``."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of the rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class ShardTask:
    """All that is needed to make any shard of a job, in any process.

    Args:
        recipe: Digest of all that a shard depends on apart from its rows.
    """

    table: TextTable
    encoder: Any
    folder: ShardFolder
    identity: str
    recipe: str
    vector: str = "vector"


@dataclass(frozen=True)
class ShardResult:
    """A shard that is whole."""

    part: RowRange
    name: str
    is_new: bool
    seconds: float = 0.0


def make_shard(
    work: ShardTask, part: RowRange, tell: Callable[[int], None] | None = None
) -> ShardResult:
    """Make a shard, or find it: one of the same rows and the same recipe is never computed twice.

    Args:
        work: What to do.
        part: Which rows.
        tell: Called with the number of rows after each run of them; or none.
    """
    begin = time.perf_counter()
    content = RowsDigest(work.table.schema)
    for run in runs(work.table, part.start, part.stop, size=_RUN):
        content.add(run)
    name = shard_name(part.start, part.stop, work.recipe, content.hexdigest())
    if work.folder.has(name, part.rows):
        return ShardResult(part, name, is_new=False)
    written = work.folder.write(lambda stream: _fill(stream, work, part, tell))
    if written != name:
        raise TableError(
            f"a source must not change while it is read, got other rows {part.start} to"
            f" {part.stop - 1}; run it again."
        )
    return ShardResult(part, name, is_new=True, seconds=time.perf_counter() - begin)


def encode_float16(encoder: Any, texts: list[str], first_row: int = 0) -> NDArray[np.float16]:
    """Vectors of texts as they are stored, float16, shape (n, d)."""
    try:
        # One thread: on several, sums may be rounded otherwise, and a shard must be the same
        # wherever it is made.
        with threadpool_limits(limits=1):
            vectors = encoder.transform(texts)
    except MildrouteError as error:
        raise TableError(
            f"rows {first_row} to {first_row + len(texts) - 1} cannot be encoded: {error}"
        ) from error
    dense = vectors.toarray() if sparse.issparse(vectors) else np.asarray(vectors)
    with np.errstate(over="ignore"):
        halves = np.ascontiguousarray(dense, dtype=_HALF)
    bad = np.flatnonzero(~np.isfinite(halves).all(axis=1))
    if len(bad):
        largest = np.abs(dense[bad[0]]).max()
        raise TableError(
            f"vectors are kept as float16, whose numbers must be below {np.finfo(_HALF).max:,.0f},"
            f" got {largest:g} in row {first_row + bad[0]}; scale or clip them first."
        )
    return halves


def _fill(stream: Any, work: ShardTask, part: RowRange, tell: Callable[[int], None] | None) -> str:
    """Write the rows with their vectors in row groups; the name of what was read."""
    content, writer, at = RowsDigest(work.table.schema), None, part.start
    waiting: list[pa.Table] = []
    for run in runs(work.table, part.start, part.stop, size=_RUN):
        content.add(run)
        vectors = encode_float16(work.encoder, run.column(work.table.text).to_pylist(), at)
        waiting.append(_with_vectors(run, work.vector, vectors))
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


def _with_vectors(run: pa.Table, name: str, vectors: NDArray[np.float16]) -> pa.Table:
    """Two bytes a number, without a copy: what ``mildroute.distributed.train`` reads fastest."""
    kind = pa.binary(_HALF.itemsize * vectors.shape[1])
    column = pa.Array.from_buffers(kind, len(vectors), [None, pa.py_buffer(vectors)])
    return run.append_column(pa.field(name, kind, nullable=False), column)


def _writer(stream: Any, schema: pa.Schema, vector: str) -> pq.ParquetWriter:
    """Texts and numbers are packed, vectors are not.

    They would hardly shrink, and be slower to read.
    """
    others = [name for name in schema.names if name != vector]
    packing = dict.fromkeys(others, "zstd") | {vector: "none"}
    return pq.ParquetWriter(
        stream, schema, compression=packing, use_dictionary=others, write_page_checksum=True
    )


# What an encoder is: a digest of all that its vectors depend on, and a copy of it that runs on
# fewer threads.


def encoder_fingerprint(encoder: Any) -> str:
    """A digest of a fitted encoder's parameters and fitted numbers.

    The number of its threads does not count.
    """
    tensors: dict[str, NDArray[Any]] = {}
    tree = encode(with_threads(encoder, None), ("encoder",), tensors)
    hasher = hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        hasher.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        hasher.update(tensor.tobytes())
    return hasher.hexdigest()


def with_threads(encoder: Any, threads: int | None) -> Any:
    """A copy of an encoder whose models run on so many threads each.

    Args:
        encoder: Fitted or not.
        threads: Threads, or none to leave it to the library.
    """
    copied = copy.deepcopy(encoder)
    for each in _nested(copied):
        if hasattr(each, "threads"):
            each.threads = threads
    return copied


def _nested(encoder: Any) -> Iterator[Any]:
    yield encoder
    for name in ("encoder", "encoder_"):
        if getattr(encoder, name, None) is not None:
            yield from _nested(getattr(encoder, name))
    for name in ("encoders", "encoders_"):
        for inner in getattr(encoder, name, ()):
            yield from _nested(inner)
