"""Collect on a Ray cluster: the driver, which deals out blocks and follows their progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from mildroute import exceptions as errors
from mildroute._files import file_lock
from mildroute.collection.job import (
    CollectionJob,
    CollectionPlan,
    CollectionResult,
    PendingWork,
    collect,
)
from mildroute.collection.runner import (
    HOPELESS,
    STOPPED,
    ExpertProgress,
    Progress,
    pending_tasks,
    run_coroutine,
)
from mildroute.distributed.budget import BudgetServer
from mildroute.distributed.cluster import connected, quiet_data
from mildroute.distributed.collect_worker import (
    CollectWorker,
    WorkerSpec,
    block_size,
    journals_of,
    recover_entries,
    write_blocks,
)
from mildroute.exceptions import ArgumentError, MildrouteError, TableError
from mildroute.experts.base import Expert
from mildroute.experts.config import ExpertSpec, build_expert
from mildroute.judges.base import Judge
from mildroute.judges.registry import judge_from_config

__all__ = ["Factories", "collect_on_ray", "team_size"]


# How a worker makes its expert and its judge: descriptions travel, built objects and keys never
# do.


@dataclass(frozen=True)
class Factories:
    """Functions that can be sent to another machine and called there.

    Args:
        experts: What makes each expert, by its name.
        judge: What makes the judge.

    Example:
        >>> factories = Factories.of([ExpertSpec("crowd", "people", {"field": "label"})], "exact")
        >>> factories.experts["crowd"]().name, factories.judge().name
        ('crowd', 'exact')
    """

    experts: Mapping[str, Callable[[], Expert]]
    judge: Callable[[], Judge]

    @classmethod
    def of(
        cls,
        specs: Sequence[ExpertSpec],
        judge: str,
        settings: Mapping[str, Any] | None = None,
        judges: Sequence[ExpertSpec] = (),
    ) -> Factories:
        """From what files and commands say.

        Args:
            specs: The experts.
            judge: Name of the judge.
            settings: Settings of the judge.
            judges: Experts that only judge.

        Returns:
            The factories.
        """
        # Workers have folders of their own, in which a relative path leads elsewhere.
        answering, judging = (
            [replace(spec, path=spec.path.resolve()) for spec in group] for group in (specs, judges)
        )
        return cls(
            {spec.name: partial(build_expert, spec) for spec in answering},
            partial(judge_from_config, judge, settings or {}, [*judging, *answering]),
        )


# The driver of a run on Ray: cells go out as blocks, counts come back, and the table is written
# as it always is.


# Bytes of a local cluster's object store; what goes through it is small.
_STORE = 256 << 20
# Part of an expert's concurrency that may stay idle for the sake of more workers.
_LOSS = 0.125
# Part of the cluster's processors that all workers together claim: they mostly wait for answers.
_LOAD = 0.5
# Part of a processor; Ray knows no smaller one.
_LEAST = 0.0001
# Blocks that may wait for money at the same time.
_WAITING = 10_000


def collect_on_ray(
    job: CollectionJob,
    factories: Factories,
    *,
    workers: int | None = None,
    agree: Callable[[CollectionPlan], bool] | None = None,
    progress: Progress | None = None,
) -> CollectionResult | None:
    """Collect a cost table on a cluster.

    The one that is connected, that of ``RAY_ADDRESS``, or a local one.

    The same as :func:`mildroute.collection.collect`, and each may continue where the other stopped.
    All machines must see the job's folder under the same path, and keys must be in the environment
    of each: they are never sent. When a worker or its machine dies, another one repeats the calls
    that were in flight there, and nothing else. The cap holds for all workers together. An expert's
    concurrency is divided among its workers, each of which slows down on its own when a server
    refuses calls.

    Args:
        job: What to collect.
        factories: How workers make the job's experts and judge.
        workers: Processes for each expert, at most; as many as the cluster has processors by
            default.
        agree: Shown what would be called and paid; no call is made unless it returns true.
        progress: Told after each block, or none.

    Returns:
        What came of it, or none if it was not agreed to.

    Example:
        >>> collect_on_ray.__name__
        'collect_on_ray'
    """
    if workers is not None and workers < 1:
        raise ArgumentError(
            f"workers must be at least 1, got {workers}; leave them out for one a processor."
        )
    missing = [expert.name for expert in job.experts if expert.name not in factories.experts]
    if missing:
        raise ArgumentError(
            f"each expert needs a maker of its name, got none for {', '.join(missing)}; add them to"
            " the factories."
        )
    return collect(
        job, agree=agree, progress=progress, execute=partial(_execute, factories, workers)
    )


def team_size(concurrency: int, workers: int) -> tuple[int, int]:
    """Workers for an expert, and batches of each at the same time.

    Together they are never more than the expert can serve.

    Args:
        concurrency: Batches that the expert can work on at the same time.
        workers: Workers that there may be.

    Returns:
        Workers and batches; as many workers as leave little of the concurrency idle.
    """
    most = min(workers, concurrency)
    fit = [
        size
        for size in range(1, most + 1)
        if size * (concurrency // size) >= (1 - _LOSS) * concurrency
    ]
    return fit[-1], concurrency // fit[-1]


@dataclass(frozen=True)
class _Team:
    """The workers of one expert and their blocks."""

    expert: Expert
    size: int
    blocks: Sequence[Path]

    @property
    def lanes(self) -> int:
        """Batches of each worker at the same time."""
        return self.expert.concurrency // self.size


def _execute(
    factories: Factories, workers: int | None, work: PendingWork, progress: Progress | None
) -> list[ExpertProgress]:
    tallies, tell = work.round.tallies, partial(_tell, progress, sys.stdout)
    try:
        if any(tally.left for tally in tallies.values()):
            # Ray prints the deaths of workers, even to a standard output that another program
            # reads.
            with redirect_stdout(sys.stderr), connected(store_bytes=_STORE) as ray:
                _run_on_cluster(ray, factories, workers, work, tell)
    finally:
        run_coroutine(work.round.close())
    for tally in tallies.values():
        tally.state = tally.state if tally.state in (STOPPED, HOPELESS) else "done"
    return list(tallies.values())


def _run_on_cluster(
    ray: Any, factories: Factories, workers: int | None, work: PendingWork, tell: Progress
) -> None:
    processors = max(1.0, ray.cluster_resources().get("CPU", 1.0))
    try:
        teams = _teams(work, workers or int(processors))
        share = _LOAD * processors / max(1, sum(team.size for team in teams))
        with quiet_data(raise_original_map_exception=True):
            _follow(
                ray,
                _datasets(ray, factories, teams, work, min(_LOAD, share)),
                work.round.tallies,
                tell,
            )
    finally:
        # Workers that are still running stop by themselves and close their journals.
        work.archive.cancel_work()


def _teams(work: PendingWork, workers: int) -> list[_Team]:
    """Write all blocks."""
    folder, teams = work.archive.work.resolve() / f"{time.time_ns():020d}", []
    for place, expert in enumerate(work.round.experts):
        tally = work.round.tallies[expert.name]
        size, lanes = team_size(expert.concurrency, workers)
        cells = block_size(tally.left, size, lanes * expert.batch_size)
        blocks = write_blocks(pending_tasks(work.round, expert), folder, f"{place:03d}", cells)
        tally.begin()
        if blocks:
            teams.append(_Team(expert, min(size, len(blocks)), blocks))
    return teams


def _datasets(
    ray: Any, factories: Factories, teams: Sequence[_Team], work: PendingWork, processors: float
) -> list[Any]:
    """For each expert a data set of blocks that its workers turn into counts."""
    budget_server = _budget_server(ray, work, teams)
    judge = work.round.judge
    found = []
    for team in teams:
        expert = team.expert
        spec = WorkerSpec(
            factories.experts[expert.name],
            factories.judge,
            expert.name,
            (expert.version, judge.version),
            team.lanes,
            work.archive.journals.resolve(),
            budget_server,
        )
        blocks = ray.data.from_items(
            [{"path": str(path)} for path in team.blocks], override_num_blocks=len(team.blocks)
        )
        found.append(
            blocks.map_batches(
                CollectWorker,
                fn_constructor_kwargs={"spec": spec},
                batch_size=1,
                batch_format="pyarrow",
                # One block at a time, so that none waits behind another while a worker is idle.
                compute=ray.data.ActorPoolStrategy(size=team.size, max_tasks_in_flight_per_actor=1),
                num_cpus=max(_LEAST, round(processors - _LEAST / 2, 4)),
            )
        )
    return found


def _budget_server(ray: Any, work: PendingWork, teams: Sequence[_Team]) -> Any:
    """An actor beside the driver, or none without a cap."""
    if work.budget.cap is None or not teams:
        return None
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # If its machine is lost, so is the driver.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(
        num_cpus=0, max_restarts=0, max_concurrency=_WAITING, scheduling_strategy=here
    )(BudgetServer)
    audit = partial(_spent_by_the_dead, teams[0].blocks[0].parent, work.archive.journals.resolve())
    return actor.remote(work.budget.cap, work.budget.spent, audit)


def _spent_by_the_dead(folder: Path, journals: Path, block: str) -> float | None:
    """What attempts at a block have spent, or none if one of them lives."""
    try:
        with file_lock(folder / block):
            return recover_entries(journals_of(folder / block, journals)).dollars
    except (TableError, FileNotFoundError):
        return None


def _follow(
    ray: Any, datasets: Sequence[Any], tallies: dict[str, ExpertProgress], tell: Progress
) -> None:
    """Count as blocks are done."""
    try:
        with closing(_rows(datasets)) as rows:
            for row in rows:
                _count(tallies, row)
                tell(list(tallies.values()))
    except ray.exceptions.RayTaskError as failed:
        # The error itself, as it would be without Ray.
        raise failed.cause from failed
    except ray.exceptions.RayError as lost:
        raise MildrouteError(
            f"a run on Ray needs workers that live, got {type(lost).__name__}:"
            f" {' '.join(str(lost).split())[:300]}; run the same command again to resume."
        ) from lost


def _tell(progress: Progress | None, output: TextIO, tallies: Sequence[ExpertProgress]) -> None:
    if progress is not None:
        with redirect_stdout(output):
            progress(tallies)


def _rows(datasets: Sequence[Any]) -> Generator[dict[str, Any], None, None]:
    if datasets:
        first, *others = datasets
        counts = first.union(*others) if others else first
        for batch in counts.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=0
        ):
            yield from batch.to_pylist()


def _count(tallies: dict[str, ExpertProgress], row: dict[str, Any]) -> None:
    if row["failure"] is not None:
        failure: type[MildrouteError] = getattr(errors, row["failure"], MildrouteError)
        raise failure(row["message"])
    tally = tallies[row["expert"]]
    for name in ("done", "errors", "score", "dollars", "reserved", "calls"):
        setattr(tally, name, getattr(tally, name) + row[name])
    tally.latest = tally.clock()
    if row["state"] in (STOPPED, HOPELESS):
        tally.state = row["state"]
