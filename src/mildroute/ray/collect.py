"""Cost collection on a Ray cluster: an ordinary collection for each shard of queries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow.parquet as pq

from mildroute._files import atomic_write
from mildroute._optional import needs_extra
from mildroute.collection.collector import collect
from mildroute.collection.job import make_job
from mildroute.collection.results import CollectionResult
from mildroute.exceptions import ArgumentError, MildrouteError, TableError
from mildroute.experts.base import Expert
from mildroute.judges.base import Judge

with needs_extra("ray", extra="ray", user="mildroute.ray"):
    import ray
    from ray.data import Dataset

if TYPE_CHECKING:
    from ray import ObjectRef

__all__ = ["collect_shards"]


# Files whose names begin with an underscore are not part of the table.
_QUERIES = "_queries"
_MANIFEST = "_shards.json"
# Columns that may hold query ids.
_ID_COLUMNS = {"query_id", "id"}
# Maximum number of worker deaths per shard.
_MAX_RETRIES = 3
# Seconds to wait for other shards to stop after one has failed.
_STOP_TIMEOUT_S = 60.0

# The path to an experts.yaml, or a function that creates the experts on the machine that calls it.
Experts: TypeAlias = str | Path | Callable[[], Sequence[Expert]]


@dataclass(frozen=True)
class _Shard:
    """A Parquet file of queries, and its collection folder."""

    queries: Path
    rows: int
    folder: Path


@dataclass(frozen=True)
class _ShardJob:
    """The inputs that a worker needs to collect one shard."""

    shard: _Shard
    experts: Experts
    judge: str | Callable[[], Judge]
    max_dollars: float | None
    workers: int


def collect_shards(
    queries: str | Path | Sequence[str | Path] | Dataset,
    experts: Experts,
    judge: str | Callable[[], Judge],
    folder: str | Path,
    *,
    max_dollars: float | None = None,
    workers: int | None = None,
    progress: Callable[[CollectionResult], None] | None = None,
) -> list[CollectionResult]:
    """Collect each shard of the queries in a Ray task.

    Every shard has its own folder in ``folder``, with the journal and the table of an ordinary
    :func:`mildroute.collect`. After a crash, run the same call again: only the missing calls are
    made. If a worker dies, Ray restarts its shard, which resumes.

    All machines must see the queries and the folder under the same paths. Experts are created on
    the machine that calls them, so their keys are never sent: export them before starting Ray
    there.

    Args:
        queries: Parquet files, as a folder or a list of files, with a column ``query_id`` or
            ``id``; or a Ray dataset, which is first written to ``folder/_queries``.
        experts: Path of an ``experts.yaml``, or a function that creates the experts.
        judge: Name of a judge, or a function that creates one.
        folder: Folder for the tables. ``CostTable.read(folder)`` reads all of them.
        max_dollars: Maximum dollars to spend in this folder over all runs. Each shard gets a part
            in proportion to its rows, and unspent dollars do not move between shards.
        workers: Number of shards to collect at the same time; defaults to the cluster's processors.
            Each of them gets an equal part of an expert's ``concurrency``, but at least 1.
        progress: Called with each shard's result when it finishes.

    Returns:
        The results, in shard order.

    Raises:
        ArgumentError: The shards differ from earlier runs in this folder.

    Example:
        >>> collect_shards([], "experts.yaml", "exact", "costs")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: queries must be Parquet files with at least one row ...
    """
    root = Path(folder).resolve()
    source = _write_queries(queries, root) if isinstance(queries, Dataset) else queries
    shards = _find_shards(source, root)
    _check_manifest(root, shards)
    if not ray.is_initialized():
        ray.init()
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    n_concurrent = min(workers or max(1, int(resources.get("CPU", 1))), len(shards))
    expert_source = Path(experts).resolve() if isinstance(experts, str | Path) else experts
    total = sum(shard.rows for shard in shards)
    jobs = [
        _ShardJob(
            shard,
            expert_source,
            judge,
            None if max_dollars is None else max_dollars * shard.rows / total,
            n_concurrent,
        )
        for shard in shards
    ]
    results = {}
    for index, result in _run_tasks(jobs, n_concurrent):
        results[index] = result
        if progress is not None:
            progress(result)
    return [results[index] for index in range(len(jobs))]


def _write_queries(dataset: Dataset, root: Path) -> Path:
    """Write a dataset once, because its blocks may be split differently the next time."""
    root.mkdir(parents=True, exist_ok=True)
    target = root / _QUERIES
    if target.exists():
        raise ArgumentError(
            f"{str(root)!r} already has an earlier run's queries; to resume it, pass"
            f" {str(target)!r} instead of the dataset."
        )
    unfinished = root / f"{_QUERIES}.partial"
    shutil.rmtree(unfinished, ignore_errors=True)
    dataset.write_parquet(str(unfinished))
    unfinished.rename(target)
    return target


def _find_shards(source: str | Path | Sequence[str | Path], root: Path) -> list[_Shard]:
    paths = [Path(source)] if isinstance(source, str | Path) else [Path(path) for path in source]
    files = [
        file.resolve()
        for path in paths
        for file in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])
    ]
    shards: list[_Shard] = []
    for file in files:
        if not file.is_file():
            raise TableError(f"a shard of queries must be a Parquet file, got {str(file)!r}.")
        metadata = pq.read_metadata(file)
        if not _ID_COLUMNS & set(metadata.schema.to_arrow_schema().names):
            raise TableError(
                f"shards of queries need a query_id column, so that ids are unique across shards,"
                f" got none in {str(file)!r}; add it."
            )
        if metadata.num_rows:
            shards.append(_Shard(file, metadata.num_rows, root / f"{len(shards):05d}-{file.stem}"))
    if not shards:
        raise TableError(f"queries must be Parquet files with at least one row, got {source!r}.")
    return shards


def _check_manifest(root: Path, shards: Sequence[_Shard]) -> None:
    """Raise an error if shards differ from earlier runs, whose dollars would be lost."""
    manifest = [{"file": shard.queries.name, "rows": shard.rows} for shard in shards]
    root.mkdir(parents=True, exist_ok=True)
    path = root / _MANIFEST
    if not path.exists():
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(manifest, indent=2))
    elif json.loads(path.read_text()) != manifest:
        raise ArgumentError(
            f"{str(root)!r} was collected from other shards, which {_MANIFEST} lists; pass the same"
            " files, or choose another folder."
        )


def _run_tasks(
    jobs: Sequence[_ShardJob], n_concurrent: int
) -> Iterator[tuple[int, CollectionResult]]:
    task = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(_collect_shard)
    pending = iter(enumerate(jobs))
    running: dict[ObjectRef[CollectionResult], int] = {}
    try:
        while True:
            for index, job in islice(pending, n_concurrent - len(running)):
                running[task.remote(job)] = index
            if not running:
                return
            (finished,), _ = ray.wait(list(running), num_returns=1)
            index = running.pop(finished)
            yield index, _get_result(finished, jobs[index])
    finally:
        _cancel(running)


def _get_result(finished: ObjectRef[CollectionResult], job: _ShardJob) -> CollectionResult:
    try:
        return ray.get(finished)
    except ray.exceptions.RayTaskError as error:
        # Raise the same error as without Ray.
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise MildrouteError(
            f"the shard {str(job.shard.queries)!r} lost its worker {_MAX_RETRIES + 1} times"
            f" ({type(error).__name__}); find the cause, such as too little memory,"
            " and run the same call again to resume."
        ) from error


def _cancel(running: Mapping[ObjectRef[CollectionResult], int]) -> None:
    """Interrupt the running shards; each keeps its answers."""
    for task in running:
        ray.cancel(task)
    if running:
        ray.wait(list(running), num_returns=len(running), timeout=_STOP_TIMEOUT_S)


def _collect_shard(job: _ShardJob) -> CollectionResult:
    experts = job.experts() if callable(job.experts) else job.experts
    judge = job.judge if isinstance(job.judge, str) else job.judge()
    collection_job = make_job(job.shard.queries, experts, judge, job.shard.folder, job.max_dollars)
    for expert in collection_job.experts:
        expert.concurrency = max(1, expert.concurrency // job.workers)
    # Without a prompt before the calls, there is always a result.
    return cast("CollectionResult", collect(collection_job))
