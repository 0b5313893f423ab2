"""Collection of a cost table: estimate, call experts, judge answers, write the table."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mildroute.collection.budget import Budget
from mildroute.collection.estimate import (
    CollectionEstimate,
    estimate_collection,
    measure_past_calls,
)
from mildroute.collection.event_loop import run_coroutine
from mildroute.collection.job import CollectionJob, make_job
from mildroute.collection.progress import STOPPED, ExpertProgress, Progress
from mildroute.collection.reasons import empty_reasons, group_reasons
from mildroute.collection.results import (
    CollectionInterrupted,
    CollectionPlan,
    CollectionResult,
    JudgeCoverage,
)
from mildroute.collection.run import CollectionRun
from mildroute.collection.runner import run_all
from mildroute.collection.store import AnswerStore, StoredState
from mildroute.collection.table import TABLE, write_costs
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Expert, Query
from mildroute.judges.base import Judge

__all__ = ["collect"]

# Folder of the store, below the folder of the table.
_STORE = "_collected"
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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

    Answers that the folder already contains are never paid for again, and a run that was killed can
    be resumed. The function also works if an event loop is running, as in a notebook.

    Args:
        queries: Queries in a form that :func:`~mildroute.collection.open_queries` reads (a path, a
            pandas or polars data frame, or a list of dicts), or a :class:`CollectionJob`, which
            includes the next four arguments.
        experts: Experts, or the path of an ``experts.yaml``.
        judge: A judge or its name.
        folder: Folder of the table and of everything that was answered.
        max_dollars: Cap on all dollars ever spent in this folder; ``None`` means no cap.
        agree: Function that receives the planned calls and costs; no call is made unless it returns
            ``True``.
        progress: Function that is called after each batch.

    Returns:
        The result, or ``None`` if ``agree`` returned ``False``.

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
            f" {os.strerror(error.errno)}; free some space and run the same command again, which"
            " keeps all stored answers."
        ) from error


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
    gaps = write_costs(job, store, stopped)
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
        job.queries.shuffled(),
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
    if len(reasons) == len(job.queries):
        raise ArgumentError(
            f"judge {job.judge.name!r} can score no answer to any of the queries, got for the"
            f" first: {reasons[0]}; correct the judge's settings or the file of queries;"
            " nothing was called."
        )
    scorable = len(job.queries) - len(reasons)
    return JudgeCoverage(job.judge.name, len(job.queries), scorable, group_reasons(reasons))


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
