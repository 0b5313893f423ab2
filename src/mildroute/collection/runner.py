"""Concurrent calls to experts and judges, with progress for each expert."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeAlias

from mildroute.collection.queries import query_digest
from mildroute.collection.store import CallFinished, CallStarted, Entry, Judged, StoredState
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.judges.base import Judge, Verdict

__all__ = [
    "STOPPED",
    "Budget",
    "BudgetProtocol",
    "CollectionRun",
    "EventSink",
    "ExpertProgress",
    "Progress",
    "Task",
    "all_experts",
    "pending_tasks",
    "run_all",
]


# A cap on dollars that holds while many calls are under way: what a call may cost at most is set
# aside before it is made.


class BudgetProtocol(Protocol):
    """Where money for calls comes from.

    A budget of this process, or a part of one that many processes share.
    """

    async def reserve(self, worst: float) -> bool:
        """Set dollars aside; false if they can never be had."""
        ...

    def settle(self, worst: float, dollars: float) -> None:
        """Give back what was set aside, and count what was spent."""
        ...


class Budget:
    """Dollars that may be spent.

    Args:
        cap: At most, or none for no cap.
    """

    def __init__(self, cap: float | None = None, spent: float = 0.0) -> None:
        if cap is not None and not (math.isfinite(cap) and cap > 0):
            raise ArgumentError(
                f"a cap must be a positive number of dollars, got {cap!r}; leave it out for none."
            )
        self.cap, self.spent, self.reserved, self.is_exhausted = cap, spent, 0.0, False
        self._settled: asyncio.Event | None = None

    async def reserve(self, worst: float) -> bool:
        """Set dollars aside, and wait for calls under way if they may free enough.

        False if it can never fit.
        """
        while self.cap is not None and worst > 0 and self.spent + self.reserved + worst > self.cap:
            if self.reserved <= 0:
                self.is_exhausted = True
                return False
            self._settled = self._settled or asyncio.Event()
            self._settled.clear()
            await self._settled.wait()
        self.reserved += worst
        return True

    def settle(self, worst: float, dollars: float) -> None:
        """Give back what was set aside, and count what was spent."""
        # Sums of many small numbers: what is left of none is none.
        self.reserved = max(0.0, self.reserved - worst) if self.reserved - worst > 1e-12 else 0.0
        self.spent += dollars
        if self._settled is not None:
            self._settled.set()


# Progress of one expert.


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
        state: ``"waiting"``, ``"calling"``, ``"done"``, ``"stopped by the cap"`` or ``"gives no
            answers"``.

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
        """Start the clock."""
        self.state = "calling"
        self.started = self.latest = self.clock()

    def count(
        self, *, dollars: float, attempts: int, score: float | None, is_answered: bool = True
    ) -> None:
        """One more cell is filled."""
        self.done += 1
        self.failures = 0 if is_answered else self.failures + 1
        self.errors += score is None
        self.score += score or 0.0
        self.dollars += dollars
        self.calls += attempts
        self.latest = self.clock()


# Call experts, judge their answers, and write everything down, many calls at a time in one
# process.


# Called after each batch with the counts of all experts.
Progress: TypeAlias = Callable[[Sequence[ExpertProgress]], None]
STOPPED, HOPELESS = "stopped by the cap", "gives no answers"
# Calls in a row without an answer, after which an expert is called no more; twice as many as are
# made at once, if that is more.
_HOPELESS = 20
"""State of an expert for whose next call there was not enough money."""


class EventSink(Protocol):
    """Where everything is written down."""

    def add(self, entry: Entry) -> None:
        """Write an entry down; when this returns, a kill cannot undo it."""
        ...


def all_experts(_expert: str, _query_id: str) -> bool:
    """Every expert gets every query."""
    return True


@dataclass(frozen=True)
class CollectionRun:
    """Everything that one run needs.

    Args:
        queries: The queries; iterated once for each expert.
        wanted: Which expert gets which query, by names; all by default.
        lanes: Batches that each expert works on at the same time, if other processes call it, too;
            none for as many as it can.
    """

    queries: Iterable[Query]
    experts: Sequence[Expert]
    judge: Judge
    notes: EventSink
    known: StoredState
    budget: BudgetProtocol
    wanted: Callable[[str, str], bool] = all_experts
    tallies: dict[str, ExpertProgress] = field(default_factory=dict)
    lanes: int | None = None

    @functools.cached_property
    def judge_version(self) -> str:
        """Version of the judge, which is a hash of its settings.

        Computed once and not for each cell.
        """
        return self.judge.version

    async def close(self) -> None:
        """Let go of all connections, also those of experts that only the judge calls."""
        await asyncio.gather(*(expert.close() for expert in (*self.experts, *self.judge.experts())))


@dataclass(frozen=True)
class Task:
    """A query for one expert.

    Args:
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
    """
    tell = progress or (lambda _tallies: None)
    for expert in job.experts:
        job.tallies.setdefault(expert.name, ExpertProgress(expert.name)).begin()
    await _together([_run_expert(job, expert, tell) for expert in job.experts])
    return list(job.tallies.values())


async def _run_expert(job: CollectionRun, expert: Expert, tell: Progress) -> None:
    """As many workers as the expert can serve, all drawing from one list of empty cells."""
    cells, tally = pending_tasks(job, expert), job.tallies[expert.name]

    async def work() -> None:
        while tally.state == "calling" and (batch := list(islice(cells, expert.batch_size))):
            if not await _fill(job, expert, batch):
                tally.state = STOPPED
            elif tally.failures >= max(_HOPELESS, 2 * expert.concurrency * expert.batch_size):
                tally.state = HOPELESS
            tell(list(job.tallies.values()))

    await _together([work() for _ in range(job.lanes or expert.concurrency)])
    if tally.state == "calling":
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
    """The wanted cells of an expert that have no verdict yet, in the order of the queries."""
    answered, judged = job.known.answered[expert.name], job.known.judged[expert.name]
    for query in job.queries:
        if not job.wanted(expert.name, query.query_id):
            continue
        digest = query_digest(query)
        if digest not in judged:
            yield Task(
                query,
                digest,
                job.known.texts.get((expert.name, digest)) if digest in answered else None,
            )


async def _fill(job: CollectionRun, expert: Expert, cells: list[Task]) -> bool:
    """Get the answers that are missing, judge all; false if the money does not suffice."""
    unanswered = [cell for cell in cells if cell.text is None]
    answers: dict[str, Answer] = {}
    if unanswered:
        found = await _call(job, expert, unanswered)
        if found is None:
            # What is left may still do for some of them.
            return len(cells) > 1 and all([await _fill(job, expert, [cell]) for cell in cells])
        answers = {cell.digest: answer for cell, answer in zip(unanswered, found, strict=True)}
    # All are judged: for some of them the money may suffice.
    return all([await _judge(job, expert, cell, answers.get(cell.digest)) for cell in cells])


async def _call(job: CollectionRun, expert: Expert, cells: list[Task]) -> list[Answer] | None:
    bounds = [expert.max_cost(cell.query) for cell in cells]
    worst = sum(bounds)
    if not await job.budget.reserve(worst):
        return None
    for cell, bound in zip(cells, bounds, strict=True):
        if bound:
            job.notes.add(CallStarted(expert.name, expert.version, cell.digest, bound))
    dollars = worst
    try:
        answers = await expert.answer([cell.query for cell in cells])
        dollars = sum(answer.dollars + answer.unconfirmed_cost for answer in answers)
    finally:
        job.budget.settle(worst, dollars)
    for cell, answer in zip(cells, answers, strict=True):
        job.notes.add(
            CallFinished.of(answer, expert.name, expert.version, cell.digest, cell.query.query_id)
        )
    return answers


async def _judge(job: CollectionRun, expert: Expert, cell: Task, answer: Answer | None) -> bool:
    """Judge an answer and count it.

    False if the money does not suffice for the verdict, which a later run may give.
    """
    text = cell.text if answer is None else answer.text
    verdict: Verdict | None = Verdict(None)
    if text is not None and (answer is None or not answer.error):
        verdict = await _verdict(job, expert, cell, text)
    score, charged = (None, 0.0) if verdict is None else (verdict.score, verdict.dollars)
    paid = 0.0 if answer is None else answer.dollars + answer.unconfirmed_cost
    job.tallies[expert.name].count(
        dollars=paid + charged,
        attempts=0 if answer is None else answer.attempts,
        score=score,
        is_answered=answer is None or not answer.error,
    )
    return verdict is not None


async def _verdict(job: CollectionRun, expert: Expert, cell: Task, text: str) -> Verdict | None:
    worst = job.judge.max_cost(cell.query, text)
    if not await job.budget.reserve(worst):
        return None
    dollars = worst
    try:
        verdict = await job.judge.judge(cell.query, text)
        dollars = verdict.dollars
    finally:
        job.budget.settle(worst, dollars)
    job.notes.add(
        Judged(
            expert.name,
            expert.version,
            cell.digest,
            job.judge.name,
            job.judge_version,
            verdict.score,
            verdict.reason,
            verdict.dollars,
        )
    )
    return verdict
