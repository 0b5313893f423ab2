"""Embed a table: estimate, encode what is missing, publish the shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from mildroute._fingerprint import text_digest
from mildroute._yaml import validate_count
from mildroute.costs.files import SourceFile, resolve_files
from mildroute.embedding.shards import (
    RowRange,
    ShardFolder,
    ShardResult,
    ShardTask,
    encode_float16,
    encoder_fingerprint,
    make_shard,
    shard_stem,
    with_threads,
)
from mildroute.embedding.texts import open_table, runs, stage_as_parquet
from mildroute.encoders.sentence import SentenceEncoder
from mildroute.encoders.text import HashingEncoder, UnionEncoder
from mildroute.exceptions import ArgumentError, TableError
from mildroute.persistence.artifact import load_router
from mildroute.persistence.registry import get_encoder

__all__ = [
    "EmbeddingEstimate",
    "EmbeddingJob",
    "EmbeddingProgress",
    "EmbeddingResult",
    "Runner",
    "embed",
    "embed_local",
    "encoder_of",
    "encoder_without_data",
]


# Encoders that are ready before the first row: by a name that needs no data, or fitted, from a
# stored router.


def encoder_without_data(name: str) -> Any:
    """An encoder by its short name, fitted; only those that learn nothing from the rows.

    An encoder that learns would have to see all rows first, and what it learned would be lost with
    it: a router that is trained on its vectors could never route a text.

    Args:
        name: As for :func:`mildroute.persistence.registry.get_encoder`.

    Returns:
        The fitted encoder.

    Example:
        >>> encoder_without_data("tfidf")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: an encoder must need no fitting, got 'tfidf' ...
    """
    encoder = get_encoder(name)
    if not _learns_nothing(encoder):
        way_out = (
            "fit a router with it first and take the fitted one (--encoder-of router), or take"
            " minilm"
        )
        raise ArgumentError(
            f"an encoder must need no fitting, got {name!r}, which learns from data; {way_out}."
        )
    return encoder.fit(["a text"])


def encoder_of(folder: str | Path) -> Any:
    """The fitted encoder of a stored router.

    Args:
        folder: What ``mildroute fit`` or :func:`mildroute.persistence.artifact.save_router` wrote.

    Returns:
        The encoder.

    Example:
        >>> encoder_of("no/such/router")
        Traceback (most recent call last):
        mildroute.exceptions.ArtifactError: no/such/router must be a folder with ...
    """
    router = load_router(folder)
    encoder = getattr(router, "encoder_", None)
    if encoder is None:
        raise ArgumentError(
            f"{str(folder)!r} must hold a router with an encoder, got a {type(router).__name__}"
            " without; take another one."
        )
    return encoder


def _learns_nothing(encoder: Any) -> bool:
    if isinstance(encoder, UnionEncoder):
        return all(map(_learns_nothing, encoder.encoders))
    return isinstance(encoder, SentenceEncoder | HashingEncoder)


# How far a job is, and how fast it goes.


@dataclass
class EmbeddingProgress:
    """Counts rows and reports them.

    Args:
        report: Called with the rows done, the rows in all and the rows encoded per second so far;
            or none.
    """

    total: int
    report: Callable[[int, int, float], None] | None = None
    done: int = 0
    encoded: int = 0
    _begin: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.perf_counter() - self._begin

    @property
    def rate(self) -> float:
        """Rows encoded per second."""
        return self.encoded / max(self.seconds, 1e-9)

    def count(self, rows: int, *, encoded: bool = True) -> None:
        """Count rows that were encoded now, or whose vectors were there already."""
        self.done += rows
        self.encoded += rows if encoded else 0
        if self.report is not None:
            self.report(self.done, self.total, self.rate)


# Embed a table: look, measure, encode what is missing, bring it into the open as a whole.


_FORMAT = 1
_SAMPLE = 128
# Numbers of a vector; wide sparse vectors are better reduced than stored with all their zeros.
_WIDEST = 8192

# Makes all shards somewhere, and counts their rows.
Runner = Callable[[ShardTask, Sequence[RowRange], EmbeddingProgress], Iterator[ShardResult]]


@dataclass(frozen=True)
class EmbeddingJob:
    """What to embed, by what, and where to.

    Args:
        source: Parquet, CSV or JSON lines with a column ``input`` or ``text``: a file, folder,
            pattern, URL or a list of them.
        encoder: Fitted, and such that an artifact can hold it.
        out: Folder of the vectors, as a path or URI; another version in it is replaced once this
            one is whole.
        rows_per_shard: Rows of a file; what a kill can cost at most, for each process that encodes.
        vector: Name of the column of vectors.
        workers: Processes that encode side by side, for the estimate.
        threads: Threads of a model in each of them, or none for all.

    Example:
        >>> EmbeddingJob("costs.parquet", None, "vectors").rows_per_shard
        50000
    """

    source: Any
    encoder: Any
    out: str | Path
    rows_per_shard: int = 50_000
    vector: str = "vector"
    workers: int = 1
    threads: int | None = None


@dataclass(frozen=True)
class EmbeddingEstimate:
    """What a job will do.

    Args:
        rows: Rows of the source.
        shards: Files that they become.
        missing: Rows that are still to be encoded, as far as names of files tell.
        dimension: Numbers of a vector.
        rate: Rows a second that one process encodes, measured on some of them; 0 where none are
            missing.
        workers: Processes.

    Example:
        >>> EmbeddingEstimate(1000, 1, 600, 384, 100.0, 2).seconds
        3.0
    """

    rows: int
    shards: int
    missing: int
    dimension: int
    rate: float
    workers: int = 1

    @property
    def seconds(self) -> float:
        """Time that is left."""
        return self.missing / (self.rate * self.workers) if self.rate else 0.0

    @property
    def vector_bytes(self) -> int:
        """Bytes of all vectors."""
        return 2 * self.rows * self.dimension


@dataclass(frozen=True)
class EmbeddingResult:
    """Vectors that are whole.

    Args:
        folder: Where, for :func:`mildroute.distributed.train`.
        rows: Rows of the source.
        dimension: Numbers of a vector.
        shards: Names of the files, in order.
        encoded: Rows that were encoded now; the others were there.
        seconds: What that took.
        manifest: What ``_manifest.json`` says.

    Example:
        >>> EmbeddingResult("vectors", 10, 4, (), 10, 2.0, {}).rate
        5.0
    """

    folder: str
    rows: int
    dimension: int
    shards: tuple[str, ...]
    encoded: int
    seconds: float
    manifest: dict[str, Any]

    @property
    def rate(self) -> float:
        """Rows encoded a second."""
        return self.encoded / self.seconds if self.seconds else 0.0


def embed(
    job: EmbeddingJob,
    *,
    run: Runner | None = None,
    estimated: Callable[[EmbeddingEstimate], None] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> EmbeddingResult:
    r"""Write a table's rows with the vectors of its texts.

    What an earlier run has made of the same rows and encoder is kept.

    Args:
        job: What to do.
        run: Makes the shards; :func:`mildroute.distributed.shards.on_ray` does so on Ray, none does
            so in this process.
        estimated: Called with the estimate before anything is encoded, or none.
        progress: Called with the rows done, the rows in all and the rows encoded a second, or none.

    Returns:
        What was made.

    Example:
        >>> import tempfile
        >>> from mildroute.encoders.text import HashingEncoder
        >>> home = Path(tempfile.mkdtemp())
        >>> _ = (home / "texts.csv").write_text("text,label\nadd 2 and 3,sum\nsing a song,song\n")
        >>> encoder = HashingEncoder(columns=8).fit(["a"])
        >>> found = embed(EmbeddingJob(home / "texts.csv", encoder, home / "vectors"))
        >>> found.rows, found.dimension, found.encoded
        (2, 8, 2)
        >>> embed(EmbeddingJob(home / "texts.csv", encoder, home / "vectors")).encoded
        0
    """
    _check(job)
    files, folder = _absolute(resolve_files(job.source)), ShardFolder(str(job.out))
    _check_apart(files, folder)
    with folder.lock():
        work = _work(job, files, folder)
        rows, size = work.table.rows, job.rows_per_shard
        parts = [RowRange(start, min(start + size, rows)) for start in range(0, rows, size)]
        estimate = _estimate(job, work, parts)
        if estimated is not None:
            estimated(estimate)
        counts = EmbeddingProgress(rows, progress)
        made = sorted((run or embed_local)(work, parts, counts), key=lambda each: each.part.start)
        names = tuple(each.name for each in made)
        manifest = _manifest(job, work, files, names, estimate.dimension)
        folder.publish(names, manifest)
    made_now = counts.encoded, counts.seconds
    return EmbeddingResult(str(job.out), rows, estimate.dimension, names, *made_now, manifest)


def embed_local(
    work: ShardTask, parts: Sequence[RowRange], counts: EmbeddingProgress
) -> Iterator[ShardResult]:
    """Make all shards in this process, one after the other."""
    for part in parts:
        made = make_shard(work, part, counts.count)
        if not made.is_new:
            counts.count(part.rows, encoded=False)
        yield made


def _check(job: EmbeddingJob) -> None:
    validate_count("rows per shard", job.rows_per_shard)
    try:
        check_is_fitted(job.encoder)
    except (NotFittedError, TypeError):
        kind = type(job.encoder).__name__
        raise ArgumentError(
            f"the encoder of a job must be fitted, got a {kind} that is not; fit it, or take that"
            " of a router."
        ) from None


def _absolute(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Other processes may stand in other folders."""
    return [
        file if "://" in file.shown else replace(file, path=str(Path(file.path).absolute()))
        for file in files
    ]


def _check_apart(files: Sequence[SourceFile], folder: ShardFolder) -> None:
    home = str(Path(folder.root).resolve())
    inside = [
        file
        for file in files
        if "://" not in file.shown and str(Path(file.path).resolve()).startswith(f"{home}/")
    ]
    if inside and "://" not in folder.uri:
        raise ArgumentError(
            f"vectors must not go to the folder of their source, got {folder.uri!r}; choose another"
            " one."
        )


def _work(job: EmbeddingJob, files: list[SourceFile], folder: ShardFolder) -> ShardTask:
    is_text = files[0].kind != "parquet"
    table = open_table(
        stage_as_parquet(files, folder.system, folder.source) if is_text else files,
        parse=files[0].kind == "csv",
    )
    if job.vector in table.schema.names:
        raise TableError(
            f"the column of vectors must be new, got {job.vector!r}, which the source has; choose"
            " another name."
        )
    identity = encoder_fingerprint(job.encoder)
    recipe = text_digest("\n".join([str(_FORMAT), identity, table.text, job.vector]))
    encoder = job.encoder if job.threads is None else with_threads(job.encoder, job.threads)
    return ShardTask(table, encoder, folder, identity, recipe, job.vector)


def _estimate(job: EmbeddingJob, work: ShardTask, parts: Sequence[RowRange]) -> EmbeddingEstimate:
    known = {name.rpartition("-")[0] for name in work.folder.names()}
    missing = [
        part for part in parts if shard_stem(part.start, part.stop, work.recipe) not in known
    ]
    first = (missing or parts)[0]
    texts = (
        next(runs(work.table, first.start, first.stop, size=_SAMPLE))
        .column(work.table.text)
        .to_pylist()
    )
    # The first call also opens the model, which is not counted.
    dimension = encode_float16(work.encoder, texts[:1], first.start).shape[1]
    if dimension > _WIDEST:
        raise ArgumentError(
            f"vectors may have {_WIDEST:,} numbers, got {dimension:,}; reduce them with a"
            " ReducedEncoder."
        )
    rate = _measured(work.encoder, texts, first.start) if missing else 0.0
    return EmbeddingEstimate(
        work.table.rows,
        len(parts),
        sum(part.rows for part in missing),
        dimension,
        rate,
        job.workers,
    )


def _measured(encoder: Any, texts: list[str], first_row: int) -> float:
    """Rows a second."""
    begin = time.perf_counter()
    encode_float16(encoder, texts, first_row)
    return len(texts) / max(time.perf_counter() - begin, 1e-9)


def _manifest(
    job: EmbeddingJob,
    work: ShardTask,
    files: Sequence[SourceFile],
    names: Sequence[str],
    dimension: int,
) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "encoder": {"class": type(job.encoder).__name__, "hash": work.identity},
        "source": {
            "files": [file.shown for file in files],
            "text": work.table.text,
            "hash": text_digest("\n".join(name.rpartition("-")[2] for name in names)),
        },
        "rows": work.table.rows,
        "dimension": dimension,
        "vector": {"column": work.vector, "type": "float16"},
        "shards": list(names),
    }
