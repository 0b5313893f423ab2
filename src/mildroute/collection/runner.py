"""Concurrent calls to experts and judges, with progress for each expert."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeAlias

from mildroute.collection.budget import BudgetProtocol
from mildroute.collection.queries import digest_of
from mildroute.collection.store import CallFinished, CallStarted, Entry, Judged, StoredState
from mildroute.experts.base import Answer, Expert, Query
from mildroute.judges.base import Judge, Verdict

__all__ = [
    "STOPPED",
    "CollectionRun",
    "EventSink",
    "ExpertProgress",
    "Progress",
    "Task",
    "everyone",
    "judge_experts",
    "max_cost",
    "pending_tasks",
    "run_all",
]


# How far the questioning of one expert is.


@dataclass
class ExpertProgress:
    """Counts of one expert.

    Args:
        expert: Its name.
        total: Cells to fill.
        known: Cells that were filled before.
        done: Cells filled now.
        errors: Cells of now that have no answer, or whose judge could not tell.
        score: Sum of the scores of now.
        dollars: Spent now, with what may have been charged besides.
        calls: Calls that were made, repeated ones too.
        failures: Calls without an answer, one after the other, up to now.
        state: ``"waiting"``, ``"asking"``, ``"done"``, ``"stopped by the cap"`` or ``"gives no answers"``.

    Example:
        >>> tally = ExpertProgress("small", total=10, known=4, done=2)
        >>> tally.left
        4
    """

    expert: str
    total: int = 0
    known: int = 0
    done: int = 0
    errors: int = 0
    score: float = 0.0
    dollars: float = 0.0
    calls: int = 0
    failures: int = 0
    state: str = "waiting"
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    started: float = 0.0
    latest: float = 0.0

    @property
    def left(self) -> int:
        """Cells that are still empty."""
        return max(0, self.total - self.known - self.done)

    @property
    def rate(self) -> float:
        """Cells a second so far."""
        spent = self.latest - self.started
        return self.done / spent if spent > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate, or none if nothing is known yet."""
        return self.left / self.rate if self.rate else None

    def begin(self) -> None:
        """Asking begins."""
        self.state, self.started = "asking", self.clock()
        self.latest = self.started

    def count(self, *, dollars: float, attempts: int, score: float | None, is_answered: bool = True) -> None:
        """One more cell is filled."""
        self.done += 1
        self.failures = 0 if is_answered else self.failures + 1
        self.errors += score is None
        self.score += score or 0.0
        self.dollars += dollars
        self.calls += attempts
        self.latest = self.clock()


# Ask experts, judge what they say, and write everything down, many calls at a time in one
# process.


Progress: TypeAlias = Callable[[Sequence[ExpertProgress]], None]
"""Called after each batch with the counts of all experts."""
STOPPED, HOPELESS = "stopped by the cap", "gives no answers"
_HOPELESS = 20
"""Calls in a row without an answer, after which an expert is left alone; twice as many as are made at once, if that is more."""
"""State of an expert for whose next call there was not enough money."""


class EventSink(Protocol):
    """Where everything is written down.

    Example:
        >>> class Forgetful:
        ...     def add(self, entry):
        ...         pass
        >>> notes: EventSink = Forgetful()
    """

    def add(self, entry: Entry) -> None:
        """Write an entry down; when this returns, a kill cannot undo it."""
        ...


def everyone(_expert: str, _query_id: str) -> bool:
    """Every expert is asked every query.

    Example:
        >>> everyone("small", "q1")
        True
    """
    return True


@dataclass(frozen=True)
class CollectionRun:
    """Everything that one run of questioning needs.

    Args:
        queries: The queries; iterated once for each expert.
        experts: Who is asked.
        judge: Who scores.
        notes: Where everything is written.
        known: What is there already.
        budget: What may be spent.
        wanted: Which expert is asked which query, by names; all by default.
        tallies: Counts by expert.
        lanes: Batches that each expert works on at the same time, where others ask it, too; none for as many as it can.
    """

    queries: Iterable[Query]
    experts: Sequence[Expert]
    judge: Judge
    notes: EventSink
    known: StoredState
    budget: BudgetProtocol
    wanted: Callable[[str, str], bool] = everyone
    tallies: dict[str, ExpertProgress] = field(default_factory=dict)
    lanes: int | None = None

    @functools.cached_property
    def judge_version(self) -> str:
        """Version of the judge, which is a hash of its settings: computed once and not for each cell."""
        return self.judge.version

    async def close(self) -> None:
        """Let go of all connections, also those of an expert whom only the judge asks."""
        await asyncio.gather(*(expert.close() for expert in (*self.experts, *judge_experts(self.judge))))


def judge_experts(judge: Judge) -> list[Expert]:
    """The expert that a judge asks, if it asks one.

    Example:
        >>> from mildroute.judges.exact_match import ExactMatchJudge
        >>> judge_experts(ExactMatchJudge())
        []
    """
    expert: Expert | None = getattr(judge, "expert", None)
    return [] if expert is None else [expert]


@dataclass(frozen=True)
class Task:
    """What one expert is to be asked.

    Args:
        query: The query.
        digest: Its fingerprint.
        text: The answer, if it is there already and waits for a verdict.
    """

    query: Query
    digest: str
    text: str | None = None


async def run_all(job: CollectionRun, progress: Progress | None = None) -> list[ExpertProgress]:
    """Fill every cell that is empty.

    Args:
        job: What to do.
        progress: Told after each batch, or none.

    Returns:
        Counts of each expert.
    """
    tell = progress or (lambda _tallies: None)
    for expert in job.experts:
        job.tallies.setdefault(expert.name, ExpertProgress(expert.name)).begin()
    await _together([_ask_expert(job, expert, tell) for expert in job.experts])
    return list(job.tallies.values())


def max_cost(asked: object, query: Query) -> float:
    """At most what asking or judging a query costs; 0 where the expert or judge cannot say.

    Args:
        asked: An expert or a judge.
        query: The query.

    Returns:
        Dollars.

    Example:
        >>> max_cost(object(), Query("q1", "Hi"))
        0.0
    """
    bound = getattr(asked, "max_cost", None)
    return 0.0 if bound is None else float(bound(query))


async def _ask_expert(job: CollectionRun, expert: Expert, tell: Progress) -> None:
    """As many workers as the expert can serve, all drawing from one list of empty cells."""
    cells, tally = pending_tasks(job, expert), job.tallies[expert.name]

    async def work() -> None:
        while tally.state == "asking" and (batch := list(islice(cells, expert.batch_size))):
            if not await _fill(job, expert, batch):
                tally.state = STOPPED
            elif tally.failures >= max(_HOPELESS, 2 * expert.concurrency * expert.batch_size):
                tally.state = HOPELESS
            tell(list(job.tallies.values()))

    await _together([work() for _ in range(job.lanes or expert.concurrency)])
    if tally.state == "asking":
        tally.state = "done"
    tell(list(job.tallies.values()))


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All side by side; when one fails, the others end before its error goes on."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def pending_tasks(job: CollectionRun, expert: Expert) -> Iterator[Task]:
    """The cells of an expert that are wanted and have no verdict yet, in the order of the queries.

    Args:
        job: What to do.
        expert: Who is asked.

    Yields:
        Cells.
    """
    answered, judged = job.known.answered[expert.name], job.known.judged[expert.name]
    for query in job.queries:
        if not job.wanted(expert.name, query.query_id):
            continue
        digest = digest_of(query)
        if digest not in judged:
            yield Task(query, digest, job.known.texts.get((expert.name, digest)) if digest in answered else None)


async def _fill(job: CollectionRun, expert: Expert, cells: list[Task]) -> bool:
    """Ask for what has no answer, judge all; false if the money does not suffice."""
    unanswered = [cell for cell in cells if cell.text is None]
    answers: dict[str, Answer] = {}
    if unanswered:
        found = await _ask(job, expert, unanswered)
        if found is None:
            # What is left may still do for some of them.
            return len(cells) > 1 and all([await _fill(job, expert, [cell]) for cell in cells])
        answers = {cell.digest: answer for cell, answer in zip(unanswered, found, strict=True)}
    # All are judged: for some of them the money may suffice.
    return all([await _judge(job, expert, cell, answers.get(cell.digest)) for cell in cells])


async def _ask(job: CollectionRun, expert: Expert, cells: list[Task]) -> list[Answer] | None:
    bounds = [max_cost(expert, cell.query) for cell in cells]
    worst = sum(bounds)
    if not await job.budget.reserve(worst):
        return None
    for cell, bound in zip(cells, bounds, strict=True):
        if bound:
            job.notes.add(CallStarted(expert.name, expert.version, cell.digest, bound))
    dollars = worst
    try:
        answers = await expert.answer([cell.query for cell in cells])
        dollars = sum(answer.dollars + answer.doubtful_dollars for answer in answers)
    finally:
        job.budget.settle(worst, dollars)
    for cell, answer in zip(cells, answers, strict=True):
        job.notes.add(CallFinished.of(answer, expert.name, expert.version, cell.digest, cell.query.query_id))
    return answers


async def _judge(job: CollectionRun, expert: Expert, cell: Task, answer: Answer | None) -> bool:
    """Judge an answer and count it; false if the money does not suffice for the verdict, which a later run may give."""
    text = cell.text if answer is None else answer.text
    verdict: Verdict | None = Verdict(None)
    if text is not None and (answer is None or not answer.error):
        verdict = await _verdict(job, expert, cell, text)
    score, charged = (None, 0.0) if verdict is None else (verdict.score, verdict.dollars)
    paid = 0.0 if answer is None else answer.dollars + answer.doubtful_dollars
    job.tallies[expert.name].count(
        dollars=paid + charged,
        attempts=0 if answer is None else answer.attempts,
        score=score,
        is_answered=answer is None or not answer.error,
    )
    return verdict is not None


async def _verdict(job: CollectionRun, expert: Expert, cell: Task, text: str) -> Verdict | None:
    bound: Callable[[Query, str], float] | None = getattr(job.judge, "max_cost", None)
    worst = 0.0 if bound is None else bound(cell.query, text)
    if not await job.budget.reserve(worst):
        return None
    dollars = worst
    try:
        verdict = await job.judge.judge(cell.query, text)
        dollars = verdict.dollars
    finally:
        job.budget.settle(worst, dollars)
    job.notes.add(
        Judged(expert.name, expert.version, cell.digest, job.judge.name, job.judge_version, verdict.score, verdict.reason, verdict.dollars)
    )
    return verdict
