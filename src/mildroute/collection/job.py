"""Collect a cost table: look, estimate, call, judge, write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mildroute.collection.estimate import (
    CollectionEstimate,
    estimate_collection,
    measure_past_calls,
)
from mildroute.collection.queries import QueryFile, sample_experts
from mildroute.collection.runner import (
    STOPPED,
    Budget,
    CollectionRun,
    ExpertProgress,
    Progress,
    run_all,
)
from mildroute.collection.store import AnswerStore, empty_reasons
from mildroute.collection.table import TABLE, write_costs
from mildroute.costs.prices import PriceList
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Expert, Query
from mildroute.judges.base import Judge

__all__ = ["CollectionJob", "CollectionResult", "Executor", "PendingWork", "collect", "run_local"]


_INSIDE = "_collected"


@dataclass(frozen=True)
class CollectionJob:
    """What to collect.

    Args:
        queries: The queries.
        experts: Experts that answer.
        judge: The judge that scores.
        folder: Where the table goes, and beside it all that was answered.
        prices: List prices to keep beside the table, or none.
        max_dollars: Cap on all that was ever spent in this folder, or none.
        experts_per_query: How many experts each query is given to, or none for all.
        answers: Whether the table holds the texts of the answers, too.

    Example:
        >>> CollectionJob.__name__
        'CollectionJob'
    """

    queries: QueryFile
    experts: Sequence[Expert]
    judge: Judge
    folder: Path
    prices: PriceList | None = None
    max_dollars: float | None = None
    experts_per_query: int | None = None
    answers: bool = False

    @property
    def wanted(self) -> Callable[[str, str], bool]:
        """Which expert gets which query."""
        return sample_experts([expert.name for expert in self.experts], self.experts_per_query)

    @property
    def versions(self) -> dict[str, str]:
        """Version of each expert."""
        return {expert.name: expert.version for expert in self.experts}


@dataclass(frozen=True)
class CollectionResult:
    """What came of it.

    Args:
        table: The cost table's file.
        tallies: Counts of each expert.
        empty: Cells that have no score, though they were wanted.
        spent: Dollars spent in this folder so far, in this run and before.
        is_capped: Whether the cap ended the run.
        reasons: Why cells are empty, the commonest first, by expert.
        unwanted: Cells that have no score because each query was given to some of the experts only.

    Example:
        >>> CollectionResult(Path("costs.parquet"), [], 0, 0.0, False).empty
        0
    """

    table: Path
    tallies: list[ExpertProgress]
    empty: int
    spent: float
    is_capped: bool
    reasons: Mapping[str, list[tuple[str, int]]] = field(default_factory=dict)
    unwanted: int = 0


@dataclass(frozen=True)
class PendingWork:
    """What is left to do once everything was looked at and agreed to.

    Args:
        round: The calls to make; its notes are the archive.
    """

    round: CollectionRun
    archive: AnswerStore
    budget: Budget


class Executor(Protocol):
    """Fills the cells, in this process or elsewhere.

    Afterwards the archive's folder holds all entries.
    """

    def __call__(self, work: PendingWork, progress: Progress | None) -> list[ExpertProgress]:
        """Call and judge; returns the counts of each expert."""
        ...


def run_local(work: PendingWork, progress: Progress | None) -> list[ExpertProgress]:
    """Fill the cells in this process.

    Args:
        work: What to do.
        progress: Told after each batch, or none.
    """
    return asyncio.run(_run(work.round, progress))


def collect(
    job: CollectionJob,
    *,
    agree: Callable[[list[CollectionEstimate], float], bool] | None = None,
    progress: Progress | None = None,
    execute: Executor = run_local,
) -> CollectionResult | None:
    """Fill the cells that are empty, then write the table.

    What was answered before is not called again, in this run or in any other with the same folder.
    A run that was killed goes on.

    Args:
        job: What to collect.
        agree: Shown the estimates and what was spent so far; no call is made unless it returns
            true.
        progress: Told after each batch, or none.
        execute: Fills the cells; in this process by default.

    Returns:
        What came of it, or none if it was not agreed to.

    Example:
        >>> import tempfile
        >>> from mildroute.collection.queries import open_queries
        >>> from mildroute.experts.annotators import AnnotatorExpert
        >>> from mildroute.judges.exact_match import ExactMatchJudge
        >>> folder = Path(tempfile.mkdtemp())
        >>> row = '{"input": "2 + 2?", "answer": "4", "ann": "4", "bob": "5"}'
        >>> _ = (folder / "q.jsonl").write_text(row)
        >>> people = [AnnotatorExpert("ann", "ann"), AnnotatorExpert("bob", "bob")]
        >>> queries = open_queries(folder / "q.jsonl")
        >>> found = collect(CollectionJob(queries, people, ExactMatchJudge(), folder / "costs"))
        >>> [tally.score for tally in found.tallies]
        [1.0, 0.0]
    """
    _check_judge(job)
    with AnswerStore(job.folder / _INSIDE) as archive:
        known = archive.known(job.versions, (job.judge.name, job.judge.version))
        estimates = estimate_collection(
            job.queries, job.experts, known, measure_past_calls(archive, job.versions), job.wanted
        )
        _check_cap(job, estimates)
        if agree is not None and not agree(estimates, known.spent):
            return None
        budget = Budget(job.max_dollars, known.spent)
        counts = {
            each.expert: ExpertProgress(each.expert, each.cells, each.cells - each.missing)
            for each in estimates
        }
        todo = CollectionRun(
            job.queries, job.experts, job.judge, archive, known, budget, job.wanted, counts
        )
        tallies = execute(PendingWork(todo, archive, budget), progress)
        archive.compact()
        gaps = write_costs(
            job.folder,
            archive,
            job.queries,
            job.experts,
            job.judge,
            job.prices,
            job.experts_per_query,
            answers=job.answers,
        )
        spent = archive.spent()
        reasons = (
            empty_reasons(archive, job.versions, (job.judge.name, job.judge.version))
            if gaps.empty
            else {}
        )
    is_capped = any(tally.state == STOPPED for tally in tallies)
    return CollectionResult(
        job.folder / TABLE, tallies, gaps.empty, spent, is_capped, reasons, gaps.unwanted
    )


async def _run(todo: CollectionRun, progress: Progress | None) -> list[ExpertProgress]:
    try:
        return await run_all(todo, progress)
    finally:
        await todo.close()


def _check_judge(job: CollectionJob) -> None:
    """Refuse a judge that can score no answer to any query, before any is paid for."""
    first = ""
    for query in job.queries:
        lack = job.judge.missing_fields(query)
        if not lack:
            return
        first = first or lack
    told = (
        f"judge {job.judge.name!r} can score no answer to any of the queries, got for the first:"
        f" {first}"
    )
    raise ArgumentError(
        f"{told}; correct the judge's settings or the file of queries, nothing was called."
    )


def _check_cap(job: CollectionJob, estimates: list[CollectionEstimate]) -> None:
    unbounded = [each.expert for each in estimates if each.at_most == float("inf")]
    if job.max_dollars is not None and unbounded:
        rule = f"a cap of {job.max_dollars:g} dollars needs a bound on each answer"
        raise ArgumentError(
            f"{rule}, got none for {', '.join(unbounded)}; set max_tokens in its request."
        )
    judging = [
        expert.name
        for expert in job.judge.experts()
        if expert.max_cost(Query("bound", "")) == float("inf")
    ]
    if job.max_dollars is not None and judging:
        rule = f"a cap of {job.max_dollars:g} dollars needs a bound on each verdict"
        raise ArgumentError(
            f"{rule}, got none for {judging[0]}, which the judge calls; set max_tokens in its"
            " request."
        )
