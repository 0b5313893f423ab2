"""Collect a cost table: look, estimate, call, judge, write."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mildroute._format import pluralize
from mildroute.collection.queries import (
    QueryFile,
    ShuffledQueries,
    open_queries,
    query_digest,
    sample_experts,
)
from mildroute.collection.runner import (
    STOPPED,
    Budget,
    CollectionRun,
    ExpertProgress,
    Progress,
    all_experts,
    run_all,
    run_coroutine,
)
from mildroute.collection.store import (
    ANSWERS,
    AnswerStore,
    Spending,
    StoredState,
    empty_reasons,
    group_reasons,
)
from mildroute.collection.table import TABLE, write_costs
from mildroute.costs.prices import PriceList
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Expert, Query
from mildroute.experts.config import build_expert, read_experts
from mildroute.judges.base import Judge
from mildroute.judges.registry import get_judge, judge_from_config

__all__ = [
    "CollectionEstimate",
    "CollectionInterrupted",
    "CollectionJob",
    "CollectionPlan",
    "CollectionResult",
    "JudgeCoverage",
    "PastCalls",
    "collect",
    "estimate_collection",
    "make_job",
    "measure_past_calls",
]


_INSIDE = "_collected"
# Reasons that a message names.
_REASONS = 2
# Errors of a full file system.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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

    def __post_init__(self) -> None:
        """Refuse a cap that is none, and a folder that is a file."""
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
        spending: Dollars of this run and of earlier ones in this folder, and those of lost calls.
        is_capped: Whether the cap ended the run.
        reasons: Why cells are empty, the commonest first, by expert.
        unwanted: Cells that have no score because each query was given to some of the experts only.
        complete: Queries with a score of every expert that was wanted.
        left_out: Queries that the cap left incomplete, which are not in the table.
        left_out_cells: Empty cells of those queries.
        coverage: Which queries the judge can score.

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
        """Dollars that count toward the cap: paid, or perhaps charged for lost calls."""
        return self.spending.total


class JudgeCoverage(NamedTuple):
    """How many queries have what a judge needs.

    Args:
        judge: Name of the judge.
        queries: All queries.
        scorable: Those to which it can score answers.
        reasons: What the others lack and how many of them do, the commonest first.

    Example:
        >>> print(JudgeCoverage("exact", 300, 150, [("the query has no reference", 150)]))
        exact can score 150 of 300 queries; 150 queries: the query has no reference
    """

    judge: str
    queries: int
    scorable: int
    reasons: list[tuple[str, int]]

    def __str__(self) -> str:
        """Both numbers and the reasons in words."""
        told = f"{self.judge} can score {self.scorable:,} of {pluralize(self.queries, 'query')}"
        lacks = [f"{pluralize(count, 'query')}: {lack}" for lack, count in self.reasons[:_REASONS]]
        return "; ".join([told, *lacks])


@dataclass(frozen=True)
class CollectionPlan:
    """What is about to be called and paid.

    Args:
        estimates: Calls, dollars and seconds of each expert.
        spending: Dollars of earlier runs in the same folder.
        coverage: Which queries the judge can score.

    Example:
        >>> plan = CollectionPlan([], Spending(2.0), JudgeCoverage("exact", 4, 4, []))
        >>> plan.spending.paid
        2.0
    """

    estimates: list[CollectionEstimate]
    spending: Spending
    coverage: JudgeCoverage


class CollectionInterrupted(KeyboardInterrupt):
    """A collection that was stopped by Ctrl-C; it can be continued.

    Args:
        kept: Answers that are stored and will not be paid again.
        total: All cells of the job.
        spending: Dollars so far.

    Example:
        >>> print(CollectionInterrupted(425, 900, Spending(2.0)))
        stopped: 425 of 900 kept, $2.00 paid; the same command resumes it
    """

    def __init__(self, kept: int, total: int, spending: Spending) -> None:
        self.kept = kept
        self.total = total
        self.spending = spending
        super().__init__(
            f"stopped: {kept:,} of {total:,} kept, {spending}; the same command resumes it"
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
    """Fill the cells that are empty, then write the table.

    What was answered before is not called again, in this run or in any other with the same folder.
    A run that was killed resumes. It also works where an event loop is running, as in a notebook.

    Args:
        queries: A :class:`CollectionJob`, which says all the rest; or queries as
            :func:`~mildroute.collection.open_queries` reads them: a path, a pandas or polars data
            frame, or a list of dicts.
        experts: Experts, or the path of an ``experts.yaml``.
        judge: A judge or its name.
        folder: Where the table goes, and beside it all that was answered.
        max_dollars: Cap on all that was ever spent in this folder, or none.
        agree: Shown what would be called and paid; no call is made unless it returns true.
        progress: Told after each batch, or none.

    Returns:
        What came of it, or none if it was not agreed to.

    Raises:
        CollectionInterrupted: By Ctrl-C; the same call resumes it.

    Example:
        >>> import tempfile
        >>> from mildroute.experts.annotators import AnnotatorExpert
        >>> rows = [{"input": "2 + 2?", "answer": "4", "ann": "4", "bob": "5"}]
        >>> people = [AnnotatorExpert("ann", "ann"), AnnotatorExpert("bob", "bob")]
        >>> found = collect(rows, people, "exact", Path(tempfile.mkdtemp(), "costs"))
        >>> [tally.score for tally in found.tallies]
        [1.0, 0.0]
    """
    job = (
        queries
        if isinstance(queries, CollectionJob)
        else make_job(queries, experts, judge, Path(folder), max_dollars)
    )
    coverage = _measure_coverage(job)
    try:
        with AnswerStore(job.folder / _INSIDE) as archive:
            return _collect(job, archive, coverage, agree, progress)
    except OSError as error:
        if error.errno is None or error.errno not in _FULL:
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
        found = get_judge(judge) if isinstance(judge, str) else judge
        return CollectionJob(
            open_queries(queries), list(experts), found, folder, max_dollars=max_dollars
        )
    file = read_experts(experts)
    return CollectionJob(
        open_queries(queries),
        [build_expert(spec) for spec in file.experts],
        judge_from_config(judge, {}, [*file.judges, *file.experts])
        if isinstance(judge, str)
        else judge,
        folder,
        file.prices,
        max_dollars,
    )


def _collect(
    job: CollectionJob,
    archive: AnswerStore,
    coverage: JudgeCoverage,
    agree: Callable[[CollectionPlan], bool] | None,
    progress: Progress | None,
) -> CollectionResult | None:
    known, estimates = _estimate_job(job, archive)
    _check_cap(job, estimates)
    if agree is not None and not agree(CollectionPlan(estimates, known.spending, coverage)):
        return None
    try:
        run = _plan_run(job, archive, known, estimates)
        tallies = run_coroutine(_run(run, progress))
    except KeyboardInterrupt:
        archive.compact()
        _, after = _estimate_job(job, archive)
        kept = sum(each.cells - each.calls for each in after)
        raise CollectionInterrupted(
            kept, sum(each.cells for each in after), archive.spending()
        ) from None
    archive.compact()
    stopped = [tally.expert for tally in tallies if tally.state == STOPPED]
    gaps = write_costs(
        job.folder,
        archive,
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
        archive.spending(),
        bool(stopped),
        empty_reasons(archive, job.versions, _judge_key(job)) if gaps.empty else {},
        gaps.unwanted,
        gaps.complete,
        gaps.left_out,
        gaps.left_out_cells,
        coverage,
    )


def _judge_key(job: CollectionJob) -> tuple[str, str]:
    return job.judge.name, job.judge.version


def _estimate_job(
    job: CollectionJob, archive: AnswerStore
) -> tuple[StoredState, list[CollectionEstimate]]:
    known = archive.known(job.versions, _judge_key(job))
    past = measure_past_calls(archive, job.versions)
    return known, estimate_collection(job.queries, job.experts, known, past, job.wanted)


def _plan_run(
    job: CollectionJob,
    archive: AnswerStore,
    known: StoredState,
    estimates: list[CollectionEstimate],
) -> CollectionRun:
    return CollectionRun(
        ShuffledQueries(job.queries),
        job.experts,
        job.judge,
        archive,
        known,
        Budget(job.max_dollars, known.spending.total),
        job.wanted,
        {
            each.expert: ExpertProgress(each.expert, each.cells, each.cells - each.missing)
            for each in estimates
        },
        complete_queries=job.max_dollars is not None,
    )


async def _run(todo: CollectionRun, progress: Progress | None) -> list[ExpertProgress]:
    try:
        return await run_all(todo, progress)
    finally:
        await todo.close()


def _measure_coverage(job: CollectionJob) -> JudgeCoverage:
    """Which queries the judge can score; none at all is an error, before any is paid for."""
    first, lacks = "", []
    for query in job.queries:
        lack = job.judge.missing_fields(query)
        if lack:
            first = first or lack
            lacks.append(lack)
    if len(lacks) == job.queries.rows:
        told = (
            f"judge {job.judge.name!r} can score no answer to any of the queries, got for the"
            f" first: {first}"
        )
        raise ArgumentError(
            f"{told}; correct the judge's settings or the file of queries, nothing was called."
        )
    scorable = job.queries.rows - len(lacks)
    return JudgeCoverage(job.judge.name, job.queries.rows, scorable, group_reasons(lacks))


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


# Estimate of the calls, dollars and seconds of a run, before the first call.


# Seconds that a call is taken to last where none has been made; the estimate says so.
_UNKNOWN_LATENCY = 1.0


@dataclass(frozen=True)
class PastCalls:
    """Means over an expert's earlier answers in the same version."""

    answers: int = 0
    dollars: float = 0.0
    latency: float = 0.0


@dataclass(frozen=True)
class CollectionEstimate:
    """Estimate of the calls to one expert.

    Args:
        expert: Its name.
        cells: Cells of the job.
        missing: Those that have no verdict yet.
        calls: Those that have no answer yet.
        tokens_in: Tokens of the calls' prompts, at four characters a token.
        dollars: What they will cost: by earlier answers where there are some, else with every
            answer as long as it may be.
        at_most: What they can cost at most, all attempts charged; infinite if nothing bounds an
            answer.
        seconds: How long they will take; by earlier answers, else at a second a call.
        is_measured: Whether earlier answers stand behind dollars and seconds.

    Example:
        >>> CollectionEstimate("small", 10, 4, 4, 100.0, 0.1, 0.2, 5.0, True).at_most
        0.2
    """

    expert: str
    cells: int
    missing: int
    calls: int
    tokens_in: float
    dollars: float
    at_most: float
    seconds: float
    is_measured: bool


def estimate_collection(
    queries: Iterable[Query],
    experts: Sequence[Expert],
    known: StoredState,
    experience: dict[str, PastCalls],
    wanted: Callable[[str, str], bool] = all_experts,
) -> list[CollectionEstimate]:
    """Estimates for all experts, from one pass over the queries."""
    counts = {expert.name: [0, 0, 0, 0.0, 0.0, 0.0] for expert in experts}
    for query in queries:
        digest = query_digest(query)
        for expert in experts:
            if wanted(expert.name, query.query_id):
                _count(counts[expert.name], query, digest, expert, known)
    return [
        _estimate(expert, counts[expert.name], experience.get(expert.name, PastCalls()))
        for expert in experts
    ]


def measure_past_calls(archive: AnswerStore, versions: dict[str, str]) -> dict[str, PastCalls]:
    """Means over the answers that an archive holds of experts in these versions."""
    sums: dict[str, list[float]] = {}
    for row in archive.entries(ANSWERS, ["expert", "version", "error", "dollars", "latency"]):
        if versions.get(row["expert"]) == row["version"] and not row["error"]:
            total = sums.setdefault(row["expert"], [0, 0.0, 0.0])
            for place, value in enumerate((1, row["dollars"], row["latency"])):
                total[place] += value
    return {
        name: PastCalls(int(count), *(part / count for part in rest))
        for name, (count, *rest) in sums.items()
    }


def _count(
    counts: list[float], query: Query, digest: str, expert: Expert, known: StoredState
) -> None:
    counts[0] += 1
    if digest in known.judged[expert.name]:
        return
    counts[1] += 1
    if digest not in known.answered[expert.name]:
        counts[2] += 1
        for place, amount in enumerate(expert.estimate_cost(query), start=3):
            counts[place] += amount


def _estimate(expert: Expert, counts: list[float], experience: PastCalls) -> CollectionEstimate:
    cells, missing, calls, tokens, once, at_most = counts
    latency = experience.latency if experience.answers else _UNKNOWN_LATENCY
    lanes = expert.concurrency * expert.batch_size
    return CollectionEstimate(
        expert.name,
        int(cells),
        int(missing),
        int(calls),
        tokens,
        min(at_most, experience.dollars * calls) if experience.answers else once,
        at_most,
        latency * calls / lanes,
        bool(experience.answers),
    )
