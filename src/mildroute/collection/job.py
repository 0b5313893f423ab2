"""Collection of a cost table: estimate, call experts, judge answers, write the table."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mildroute._format import pluralize
from mildroute.collection.assignment import sample_experts
from mildroute.collection.budget import Budget
from mildroute.collection.estimate import (
    CollectionEstimate,
    estimate_collection,
    measure_past_calls,
)
from mildroute.collection.event_loop import run_coroutine
from mildroute.collection.progress import STOPPED, ExpertProgress, Progress
from mildroute.collection.queries import QueryFile, ShuffledQueries, open_queries
from mildroute.collection.reasons import empty_reasons, group_reasons
from mildroute.collection.run import CollectionRun
from mildroute.collection.runner import run_all
from mildroute.collection.store import AnswerStore, Spending, StoredState
from mildroute.collection.table import TABLE, write_costs
from mildroute.costs.prices import PriceList
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Expert, Query
from mildroute.experts.config import build_expert, read_experts
from mildroute.judges.base import Judge
from mildroute.judges.registry import get_judge, judge_from_config

__all__ = [
    "CollectionInterrupted",
    "CollectionJob",
    "CollectionPlan",
    "CollectionResult",
    "JudgeCoverage",
    "collect",
    "make_job",
]

# Folder of the store, below the folder of the table.
_STORE = "_collected"
# Maximum number of reasons in a message.
_MAX_REASONS = 2
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class CollectionJob:
    """A cost table to collect.

    Args:
        queries: The queries.
        experts: Experts that answer.
        judge: The judge that scores.
        folder: Folder of the table and of everything that was answered.
        prices: List prices to store with the table, or None.
        max_dollars: Cap on everything ever spent in this folder; None means no cap.
        experts_per_query: Number of experts that get each query; None means all.
        answers: Whether the table also holds the texts of the answers.

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

    def __post_init__(self) -> None:
        """Validate the cap and the folder."""
        if self.max_dollars is not None and not 0 <= self.max_dollars < math.inf:
            raise ArgumentError(
                "max_dollars (--max-dollars) must be a number of dollars, not negative, got"
                f" {self.max_dollars!r}."
            )
        if self.folder.is_file():
            raise ArgumentError(
                "the folder of a collection (--out) must be a folder, got the file"
                f" {str(self.folder)!r}; choose another."
            )

    @property
    def is_assigned(self) -> Callable[[str, str], bool]:
        """A function that tells whether an expert gets a query, by their names."""
        return sample_experts([expert.name for expert in self.experts], self.experts_per_query)

    @property
    def versions(self) -> dict[str, str]:
        """The version of each expert."""
        return {expert.name: expert.version for expert in self.experts}

    @property
    def judge_key(self) -> tuple[str, str]:
        """The name and version of the judge."""
        return self.judge.name, self.judge.version


@dataclass(frozen=True)
class CollectionResult:
    """The result of a collection.

    Args:
        table: The cost table's file.
        tallies: Counts of each expert.
        empty: Number of assigned cells without a score.
        spending: Dollars of this run and of earlier ones in this folder, and of lost calls.
        is_capped: Whether the cap ended the run.
        reasons: Reasons for empty cells with their counts, the most frequent first, by expert.
        unwanted: Number of cells without a score because the expert did not get the query.
        complete: Number of queries with a score of every expert that got them.
        left_out: Number of queries that the cap left incomplete, which are not in the table.
        left_out_cells: Number of empty cells of those queries.
        coverage: The queries that the judge can score.

    Example:
        >>> CollectionResult(Path("costs.parquet"), [], 0, Spending(2.0), False).spent
        2.0
    """

    table: Path
    tallies: list[ExpertProgress]
    empty: int
    spending: Spending
    is_capped: bool
    reasons: Mapping[str, list[tuple[str, int]]] = field(default_factory=dict)
    unwanted: int = 0
    complete: int = 0
    left_out: int = 0
    left_out_cells: int = 0
    coverage: JudgeCoverage | None = None

    @property
    def spent(self) -> float:
        """The dollars that count toward the cap, including possible charges for lost calls."""
        return self.spending.total


class JudgeCoverage(NamedTuple):
    """The number of queries to which a judge can score answers.

    Args:
        judge: Name of the judge.
        queries: Number of all queries.
        scorable: Number of queries to which the judge can score answers.
        reasons: Reasons why it cannot score the others, with their counts, the most frequent first.

    Example:
        >>> print(JudgeCoverage("exact", 300, 150, [("the query has no reference", 150)]))
        exact can score 150 of 300 queries; 150 queries: the query has no reference
    """

    judge: str
    queries: int
    scorable: int
    reasons: list[tuple[str, int]]

    def __str__(self) -> str:
        """Return both numbers and the reasons in words."""
        summary = f"{self.judge} can score {self.scorable:,} of {pluralize(self.queries, 'query')}"
        reasons = [
            f"{pluralize(count, 'query')}: {reason}"
            for reason, count in self.reasons[:_MAX_REASONS]
        ]
        return "; ".join([summary, *reasons])


@dataclass(frozen=True)
class CollectionPlan:
    """The calls and costs of a collection, before the first call.

    Args:
        estimates: Calls, dollars and seconds of each expert.
        spending: Dollars of earlier runs in the same folder.
        coverage: The queries that the judge can score.

    Example:
        >>> plan = CollectionPlan([], Spending(2.0), JudgeCoverage("exact", 4, 4, []))
        >>> plan.spending.paid
        2.0
    """

    estimates: list[CollectionEstimate]
    spending: Spending
    coverage: JudgeCoverage


class CollectionInterrupted(KeyboardInterrupt):
    """A collection that was stopped by Ctrl-C and can be resumed.

    Args:
        stored: Number of answers that are stored and will not be paid again.
        total: Number of cells of the job.
        spending: Dollars so far.

    Example:
        >>> print(CollectionInterrupted(425, 900, Spending(2.0)))
        stopped: 425 of 900 kept, $2.00 paid; the same command resumes it
    """

    def __init__(self, stored: int, total: int, spending: Spending) -> None:
        self.stored = stored
        self.total = total
        self.spending = spending
        super().__init__(
            f"stopped: {stored:,} of {total:,} kept, {spending}; the same command resumes it"
        )


def collect(
    queries: Any,
    experts: Sequence[Expert] | str | Path | None = None,
    judge: Judge | str | None = None,
    folder: str | Path = "costs",
    *,
    max_dollars: float | None = None,
    agree: Callable[[CollectionPlan], bool] | None = None,
    progress: Progress | None = None,
) -> CollectionResult | None:
    """Call experts, judge their answers and write a cost table.

    Answers that the folder already has are never paid again, and a run that was killed resumes. The
    function also works where an event loop is running, as in a notebook.

    Args:
        queries: Queries in a form that :func:`~mildroute.collection.open_queries` reads: a path, a
            pandas or polars data frame, or a list of dicts. Or a :class:`CollectionJob`, which
            includes the next four arguments.
        experts: Experts, or the path of an ``experts.yaml``.
        judge: A judge or its name.
        folder: Folder of the table and of everything that was answered.
        max_dollars: Cap on everything ever spent in this folder; None means no cap.
        agree: Called with the planned calls and costs; no call is made unless it returns True.
        progress: Called after each batch.

    Returns:
        The result, or None if ``agree`` returned False.

    Raises:
        CollectionInterrupted: Ctrl-C stopped the collection; the same call resumes it.

    Example:
        >>> import tempfile
        >>> from mildroute.experts.annotators import AnnotatorExpert
        >>> rows = [{"input": "2 + 2?", "answer": "4", "ann": "4", "bob": "5"}]
        >>> people = [AnnotatorExpert("ann", "ann"), AnnotatorExpert("bob", "bob")]
        >>> result = collect(rows, people, "exact", Path(tempfile.mkdtemp(), "costs"))
        >>> [tally.score for tally in result.tallies]
        [1.0, 0.0]
    """
    if isinstance(queries, CollectionJob):
        job = queries
    else:
        job = make_job(queries, experts, judge, Path(folder), max_dollars)
    coverage = _measure_coverage(job)
    try:
        with AnswerStore(job.folder / _STORE) as store:
            return _collect(job, store, coverage, agree, progress)
    except OSError as error:
        if error.errno is None or error.errno not in _DISK_FULL_ERRORS:
            raise
        raise TableError(
            f"the disk of {str(job.folder)!r} must have space for the answers, got:"
            f" {os.strerror(error.errno)}; free some space and run the same command again: what was"
            " written is kept."
        ) from error


def make_job(
    queries: Any,
    experts: Sequence[Expert] | str | Path | None,
    judge: Judge | str | None,
    folder: Path,
    max_dollars: float | None,
) -> CollectionJob:
    """Return the job that the arguments of :func:`collect` describe."""
    if experts is None or judge is None:
        raise ArgumentError(
            "collect needs a CollectionJob, or queries, experts and a judge, got"
            f" {'no experts' if experts is None else 'no judge'}; give experts (or the path of an"
            " experts.yaml) and a judge such as 'exact'."
        )
    if not isinstance(experts, (str, Path)):
        if isinstance(judge, str):
            judge = get_judge(judge)
        return CollectionJob(
            open_queries(queries), list(experts), judge, folder, max_dollars=max_dollars
        )
    file = read_experts(experts)
    if isinstance(judge, str):
        judge = judge_from_config(judge, {}, [*file.judges, *file.experts])
    return CollectionJob(
        open_queries(queries),
        [build_expert(spec) for spec in file.experts],
        judge,
        folder,
        file.prices,
        max_dollars,
    )


def _collect(
    job: CollectionJob,
    store: AnswerStore,
    coverage: JudgeCoverage,
    agree: Callable[[CollectionPlan], bool] | None,
    progress: Progress | None,
) -> CollectionResult | None:
    stored, estimates = _estimate_job(job, store)
    _validate_cap(job, estimates)
    if agree is not None and not agree(CollectionPlan(estimates, stored.spending, coverage)):
        return None
    try:
        run = _plan_run(job, store, stored, estimates)
        tallies = run_coroutine(_run_and_close(run, progress))
    except KeyboardInterrupt:
        store.compact()
        _, estimates = _estimate_job(job, store)
        total = sum(estimate.cells for estimate in estimates)
        calls = sum(estimate.calls for estimate in estimates)
        raise CollectionInterrupted(total - calls, total, store.spending()) from None
    store.compact()
    stopped = [tally.expert for tally in tallies if tally.state == STOPPED]
    gaps = write_costs(
        job.folder,
        store,
        job.queries,
        job.experts,
        job.judge,
        job.prices,
        job.experts_per_query,
        answers=job.answers,
        stopped=stopped,
    )
    return CollectionResult(
        job.folder / TABLE,
        tallies,
        gaps.empty,
        store.spending(),
        bool(stopped),
        empty_reasons(store, job.versions, job.judge_key) if gaps.empty else {},
        gaps.unwanted,
        gaps.complete,
        gaps.left_out,
        gaps.left_out_cells,
        coverage,
    )


def _estimate_job(
    job: CollectionJob, store: AnswerStore
) -> tuple[StoredState, list[CollectionEstimate]]:
    stored = store.read_state(job.versions, job.judge_key)
    past_calls = measure_past_calls(store, job.versions)
    estimates = estimate_collection(job.queries, job.experts, stored, past_calls, job.is_assigned)
    return stored, estimates


def _plan_run(
    job: CollectionJob,
    store: AnswerStore,
    stored: StoredState,
    estimates: list[CollectionEstimate],
) -> CollectionRun:
    return CollectionRun(
        ShuffledQueries(job.queries),
        job.experts,
        job.judge,
        store,
        stored,
        Budget(job.max_dollars, stored.spending.total),
        job.is_assigned,
        {
            estimate.expert: ExpertProgress(
                estimate.expert, estimate.cells, estimate.cells - estimate.missing
            )
            for estimate in estimates
        },
        complete_queries=job.max_dollars is not None,
    )


async def _run_and_close(run: CollectionRun, progress: Progress | None) -> list[ExpertProgress]:
    try:
        return await run_all(run, progress)
    finally:
        await run.close()


def _measure_coverage(job: CollectionJob) -> JudgeCoverage:
    """Count the queries that the judge can score; raise an error if there are none."""
    reasons = [reason for query in job.queries if (reason := job.judge.missing_fields(query))]
    if len(reasons) == job.queries.rows:
        raise ArgumentError(
            f"judge {job.judge.name!r} can score no answer to any of the queries, got for the"
            f" first: {reasons[0]}; correct the judge's settings or the file of queries, nothing"
            " was called."
        )
    scorable = job.queries.rows - len(reasons)
    return JudgeCoverage(job.judge.name, job.queries.rows, scorable, group_reasons(reasons))


def _validate_cap(job: CollectionJob, estimates: list[CollectionEstimate]) -> None:
    """Raise an error if there is a cap but no bound on the cost of an answer or a verdict."""
    if job.max_dollars is None:
        return
    unbounded = [estimate.expert for estimate in estimates if math.isinf(estimate.at_most)]
    if unbounded:
        raise ArgumentError(
            f"a cap of {job.max_dollars:g} dollars needs a bound on each answer, got none for"
            f" {', '.join(unbounded)}; set max_tokens in its request."
        )
    for expert in job.judge.experts():
        if math.isinf(expert.max_cost(Query("bound", ""))):
            raise ArgumentError(
                f"a cap of {job.max_dollars:g} dollars needs a bound on each verdict, got none for"
                f" {expert.name}, which the judge calls; set max_tokens in its request."
            )
