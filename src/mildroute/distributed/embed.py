"""Embedding over Ray Data.

It deals out rows to a pool of actors, each of which holds the encoder and writes its shards itself.

Only names and row numbers go through Ray. A shard of an actor that dies is made again by another
one, or found whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from mildroute.distributed.cluster import connected, quiet_data
from mildroute.embedding.job import EmbeddingProgress, Runner
from mildroute.embedding.shards import RowRange, ShardResult, ShardTask, make_shard
from mildroute.exceptions import MildrouteError

__all__ = ["ShardMaker", "on_ray"]


# Deaths of an actor over one shard; a shard that kills its worker must not go round for ever.
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
