"""Vector shards: read locally or through Ray Data, dealt out to workers, made by actors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from mildroute._files import open_location
from mildroute.costs.schema import DOLLARS, SCORE
from mildroute.distributed.cluster import connected, load_ray, quiet_data
from mildroute.embedding.job import EmbeddingProgress, Runner
from mildroute.embedding.shards import RowRange, ShardResult, ShardTask, make_shard
from mildroute.exceptions import MildrouteError, TableError

__all__ = [
    "Piece",
    "Rows",
    "ShardMaker",
    "Shards",
    "ahead",
    "dataset_of",
    "on_ray",
    "open_shards",
    "passes_of",
    "read_piece",
    "rows_of",
    "uneven_split",
    "vector_column",
]


# Parquet shards with a vector and the scores of experts in each row: where they lie, what they
# hold, and their rows as arrays.


# Bytes of vectors that are read at once; row groups are put together or taken as they are up to
# about this size.
_LARGEST_PIECE = 1 << 26


@dataclass(frozen=True)
class Piece:
    """Some row groups of one file: what is read at once."""

    path: str
    groups: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class Shards:
    """A set of Parquet files with the same columns.

    Args:
        uri: Where they are: a folder or a file, as a path or as a URI of pyarrow or fsspec
            (``s3://``, ``gs://``, ``memory://``).
        pieces: What they consist of, in the order of their names.
        experts: Names of the experts.
        width: Length of a vector.
        vector: Name of its column.
        price_weight: What a dollar weighs against an error; 0 leaves money out.

    Example:
        >>> Shards("data", (), ("small", "large"), 384).columns
        ('vector', 'score:small', 'score:large')
    """

    uri: str
    pieces: tuple[Piece, ...]
    experts: tuple[str, ...]
    width: int
    vector: str = "vector"
    price_weight: float = 0.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        prices = tuple(f"{DOLLARS}{name}" for name in self.experts) if self.price_weight else ()
        return (self.vector, *(f"{SCORE}{name}" for name in self.experts), *prices)

    @property
    def rows(self) -> int:
        """Rows of all pieces."""
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True)
class Rows:
    """Rows in memory: vectors (n, d) in the type they are stored in, and costs (n, p)."""

    vectors: NDArray[np.floating]
    costs: NDArray[np.float64]


def open_shards(uri: str, *, vector: str = "vector", price_weight: float = 0.0) -> Shards:
    """Look at shards: their files, row groups and columns; no row is read.

    Args:
        uri: A folder of Parquet files or one file, as a path or URI.
        vector: Column of the vectors: a fixed-size list of floats, or fixed-size binary of float16
            numbers, which reads ten times as fast.
        price_weight: What a dollar weighs against an error; above 0 every expert needs its column
            ``cost:``.

    Returns:
        What was found.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> vectors = vector_column(np.ones((4, 2)))
        >>> table = pa.table({"vector": vectors, "score:a": [1.0] * 4, "score:b": [0.0] * 4})
        >>> pq.write_table(table, f"{folder}/0.parquet")
        >>> found = open_shards(folder)
        >>> found.experts, found.width, found.rows
        (('a', 'b'), 2, 4)
    """
    system, root = open_location(uri)
    paths = _parquet_files(system, root, uri)
    first = pq.read_schema(paths[0], filesystem=system)
    experts = tuple(name.removeprefix(SCORE) for name in first.names if name.startswith(SCORE))
    if vector not in first.names or len(experts) < 2:
        wanted = (
            f"shards need a column {vector!r} and a column {SCORE}<name> for each of at least two"
            " experts"
        )
        raise TableError(f"{wanted}, got {', '.join(first.names)} in {paths[0]!r}.")
    width = _width(first.field(vector))
    found = Shards(uri, (), experts, width, vector, price_weight)
    missing = [name for name in found.columns if name not in first.names]
    if missing:
        raise TableError(
            f"a price weight of {price_weight:g} needs the columns {', '.join(missing)}; add them,"
            " or take a weight of 0."
        )
    pieces = tuple(piece for path in paths for piece in _pieces_of(system, path, first, found))
    if not any(piece.rows for piece in pieces):
        raise TableError(f"shards need at least one row, got none in {uri!r}.")
    return Shards(uri, pieces, experts, width, vector, price_weight)


def read_piece(shards: Shards, piece: Piece) -> pa.Table:
    """The rows of a piece as an Arrow table with the columns that training needs."""
    system, _ = open_location(shards.uri)
    with system.open_input_file(piece.path) as file:
        return pq.ParquetFile(file).read_row_groups(
            list(piece.groups), columns=list(shards.columns), use_threads=False
        )


def rows_of(table: pa.Table, shards: Shards) -> Iterator[Rows]:
    """Rows of a table as arrays, vectors without a copy where they lie in one buffer."""
    for batch in table.to_batches():
        if batch.num_rows:
            yield Rows(_vectors(batch.column(shards.vector), shards), _costs(batch, shards))


def vector_column(vectors: NDArray[np.floating]) -> pa.Array:
    """Vectors as a column of fixed-size binary, two bytes a number.

    What :func:`open_shards` reads fastest.

    Args:
        vectors: Shape (n, d).

    Returns:
        The column.

    Example:
        >>> vector_column(np.ones((3, 4))).type
        FixedSizeBinaryType(fixed_size_binary[8])
    """
    halves = np.ascontiguousarray(vectors, dtype="<f2")
    return pa.Array.from_buffers(
        pa.binary(2 * halves.shape[1]), len(halves), [None, pa.py_buffer(halves)]
    )


def _parquet_files(system: fs.FileSystem, root: str, uri: str) -> list[str]:
    kind = system.get_file_info(root).type
    if kind == fs.FileType.NotFound:
        raise TableError(f"shards must lie in a folder or file that exists, got {uri!r}.")
    if kind == fs.FileType.File:
        return [root]
    paths = sorted(
        info.path
        for info in system.get_file_info(fs.FileSelector(root))
        if info.path.endswith(".parquet")
    )
    if not paths:
        raise TableError(
            f"a folder of shards must have files that end in .parquet, got none in {uri!r}."
        )
    return paths


def _pieces_of(
    system: fs.FileSystem, path: str, first: pa.Schema, shards: Shards
) -> Iterator[Piece]:
    """Row groups of a file, small ones together."""
    metadata = pq.read_metadata(path, filesystem=system)
    schema = metadata.schema.to_arrow_schema()
    differing = [
        name
        for name in shards.columns
        if name not in schema.names or schema.field(name).type != first.field(name).type
    ]
    if differing:
        raise TableError(
            f"all shards must have the same columns, got another {differing[0]!r} in {path!r};"
            " write it as in the first one."
        )
    most = max(1, _LARGEST_PIECE // (2 * shards.width))
    groups: list[int] = []
    rows = 0
    for place in range(metadata.num_row_groups):
        count = metadata.row_group(place).num_rows
        if groups and rows + count > most:
            yield Piece(path, tuple(groups), rows)
            groups, rows = [], 0
        groups, rows = [*groups, place], rows + count
    if groups:
        yield Piece(path, tuple(groups), rows)


def _width(field: pa.Field) -> int:
    kind = field.type
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width % 2 == 0:
        return int(kind.byte_width) // 2
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
        return int(kind.list_size)
    wanted = "must be a fixed-size list of floats or fixed-size binary of float16 numbers"
    raise TableError(
        f"the column {field.name!r} {wanted}, got {kind};"
        " mildroute.distributed.shards.vector_column makes one."
    )


def _vectors(column: pa.Array, shards: Shards) -> NDArray[np.floating]:
    if column.null_count:
        raise TableError(
            f"every row must have a vector, got {column.null_count} nulls in {shards.vector!r};"
            " drop those rows first."
        )
    if pa.types.is_fixed_size_binary(column.type):
        flat = np.frombuffer(column.buffers()[1], dtype="<f2")
        return flat[
            column.offset * shards.width : (column.offset + len(column)) * shards.width
        ].reshape(-1, shards.width)
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(-1, shards.width)


def _costs(batch: pa.RecordBatch, shards: Shards) -> NDArray[np.float64]:
    costs = 1.0 - _numbers(batch, SCORE, shards.experts)
    if shards.price_weight:
        costs += shards.price_weight * _numbers(batch, DOLLARS, shards.experts)
    if not np.isfinite(costs).all():
        expert = shards.experts[int((~np.isfinite(costs)).any(axis=0).argmax())]
        raise TableError(
            f"scores and dollars must be known and finite, got nulls or NaN for {expert!r}; drop"
            " those rows first."
        )
    return costs


def _numbers(batch: pa.RecordBatch, prefix: str, experts: Sequence[str]) -> NDArray[np.float64]:
    return np.stack(
        [
            batch.column(f"{prefix}{name}").to_numpy(zero_copy_only=False).astype(np.float64)
            for name in experts
        ],
        axis=1,
    )


# Shards over Ray Data: it deals out which pieces a worker reads; the rows themselves go straight
# from storage into the worker.
#
# To send the rows through Ray's object store would copy each of them again in every pass, and
# take processors for reading alone. Pieces are dealt once, in the first pass, to the worker that is
# ready: a faster worker gets more of them, and keeps them.


_PLACE = "place"


def dataset_of(shards: Shards) -> Any:
    """A Ray data set of the places of all pieces.

    There is one block for each, so that each can go to a worker that is ready.

    Returns:
        A ``ray.data.Dataset``.
    """
    load_ray()
    from ray.data import from_arrow

    # Blocks that are there already: a pass needs no task of its own to make them.
    return from_arrow([pa.table({_PLACE: [place]}) for place in range(len(shards.pieces))])


def passes_of(iterator: Any, shards: Shards) -> Callable[[], Iterator[Rows]]:
    """Passes over the share of one worker.

    Args:
        iterator: A ``ray.data.DataIterator`` over places.
        shards: What they are places of.
    """
    own: list[int] = []
    is_dealt = False

    def dealt() -> Iterator[int]:
        nonlocal is_dealt
        for batch in iterator.iter_batches(
            batch_size=None, batch_format="numpy", prefetch_batches=1
        ):
            for place in batch[_PLACE]:
                own.append(int(place))
                yield int(place)
        is_dealt = True

    def begin() -> Iterator[Rows]:
        places = iter(own) if is_dealt else dealt()
        for table in ahead(lambda place: read_piece(shards, shards.pieces[place]), places):
            yield from rows_of(table, shards)

    return begin


def ahead(read: Callable[[int], Any], places: Iterator[int]) -> Iterator[Any]:
    """What is read at each place, one of them ahead of the one in use.

    Args:
        read: Reads a place; its time is spent beside that of the consumer.
        places: The places.
    """
    with ThreadPoolExecutor(1) as reader:
        waiting: deque[Any] = deque()
        for place in places:
            waiting.append(reader.submit(read, place))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def uneven_split() -> Any:
    """How the pieces of a pass are dealt out: to the next free worker, and none is left out.

    Ray Train would by default cut off what does not divide evenly.

    Returns:
        A ``ray.train.DataConfig``.
    """
    load_ray()
    from ray.train import DataConfig

    class Uneven(DataConfig):
        def configure(
            self,
            datasets: Any,
            world_size: int,
            worker_handles: Any = None,  # noqa: ARG002
            worker_node_ids: Any = None,
            **_rest: Any,
        ) -> list[dict[str, Any]]:
            shares: list[dict[str, Any]] = [{} for _ in range(world_size)]
            for name, dataset in datasets.items():
                parts = dataset.streaming_split(
                    world_size, equal=False, locality_hints=worker_node_ids
                )
                for share, part in zip(shares, parts, strict=True):
                    share[name] = part
            return shares

    return Uneven()


# Shards that a pool of Ray actors makes: each holds the encoder and writes its shards itself.
# Only names and row numbers go through Ray. A shard of an actor that dies is made again by another
# one, or found whole.


# Deaths of an actor over one shard; a shard that kills its worker must not go round forever.
_RETRIES = 3


class ShardMaker:
    """Makes the shards of the rows that it is given; Ray Data runs it as an actor.

    Args:
        work: What to do, or a reference to it in Ray's object store.
    """

    def __init__(self, work: Any) -> None:
        self._work: ShardTask = _fetched(work)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Rows of parts become rows of results.

        An error is one too, so that it arrives as it is.
        """
        rows = [
            self._made(RowRange(int(start), int(stop)))
            for start, stop in zip(batch["start"], batch["stop"], strict=True)
        ]
        return {
            name: [row[place] for row in rows]
            for place, name in enumerate(("start", "stop", "name", "is_new", "seconds", "error"))
        }

    def _made(self, part: RowRange) -> tuple[int, int, str, bool, float, str]:
        try:
            made = make_shard(self._work, part)
        except MildrouteError as error:
            return (part.start, part.stop, "", False, 0.0, str(error))
        return (part.start, part.stop, made.name, made.is_new, made.seconds, "")


def on_ray(workers: int) -> Runner:
    """Shards by actors on the cluster that is connected, that of ``RAY_ADDRESS``, or a local one.

    The folder of the job must be one that all of its machines see.

    Returns:
        What :func:`mildroute.embedding.job.embed` takes as ``run``.
    """

    def run(
        work: ShardTask, parts: Sequence[RowRange], counts: EmbeddingProgress
    ) -> Iterator[ShardResult]:
        with connected(workers) as ray:
            for row in _rows(ray, work, parts, min(workers, len(parts))):
                if row["error"]:
                    raise MildrouteError(row["error"])
                made = ShardResult(
                    RowRange(row["start"], row["stop"]), row["name"], row["is_new"], row["seconds"]
                )
                counts.count(made.part.rows, encoded=made.is_new)
                yield made

    return run


def _rows(
    ray: Any, work: ShardTask, parts: Sequence[RowRange], workers: int
) -> Iterator[dict[str, Any]]:
    from ray import data

    blocks = [pa.table({"start": [part.start], "stop": [part.stop]}) for part in parts]
    results = data.from_arrow(blocks).map_batches(
        ShardMaker,
        fn_constructor_args=(ray.put(work),),
        batch_size=1,
        num_cpus=1,
        compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=2),
        max_task_retries=_RETRIES,
    )
    try:
        with quiet_data():
            yield from results.iter_rows()
    except ray.exceptions.RayError as failed:
        cause = _innermost(failed)
        said = f"{type(cause).__name__}: {cause}"[:300]
        raise MildrouteError(
            f"the cluster could not make all shards: {said}; those that are whole are kept, run it"
            " again."
        ) from failed


def _innermost(error: BaseException) -> BaseException:
    while (inner := getattr(error, "cause", None) or error.__cause__) is not None:
        error = inner
    return error


def _fetched(work: Any) -> Any:
    if work is None or isinstance(work, ShardTask):
        return work
    import ray

    return ray.get(work)
