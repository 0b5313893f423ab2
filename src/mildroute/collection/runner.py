"""Concurrent calls to experts and judges, with progress for each expert."""

from __future__ import annotations

import asyncio
import functools
import heapq
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias, TypeVar, cast

from mildroute.collection.queries import query_digest
from mildroute.collection.store import AnswerStore, CallFinished, CallStarted, Judged, StoredState
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import RESERVE_RETRY, Answer, Expert, Query
from mildroute.judges.base import Judge, ReadingJudge, Verdict

__all__ = [
    "STOPPED",
    "Budget",
    "CollectionRun",
    "ExpertProgress",
    "Progress",
    "Task",
    "all_experts",
    "pending_tasks",
    "run_all",
    "run_coroutine",
]

T = TypeVar("T")


# A cap on dollars that holds while many calls are in flight: what an attempt may cost at most is
# set aside before it is made.


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
        self._settled = asyncio.Event()
        self._waiting: list[int] = []
        self._last_rank = math.inf

    async def reserve(self, worst: float, *, rank: int = 0, wait: bool = True) -> bool:
        """Set dollars aside, and wait for calls in flight if they may free enough.

        False if it can never fit, or if a query of a lower rank could not be paid.

        Args:
            worst: Number of dollars.
            rank: Index of the query; when money is short, queries of a lower rank come first.
            wait: Whether to wait for calls in flight that may free enough.
        """
        if self.cap is not None and worst > 0:
            heapq.heappush(self._waiting, rank)
            try:
                if not await self._has(worst, self.cap, rank, wait=wait):
                    return False
            finally:
                self._waiting.remove(rank)
                heapq.heapify(self._waiting)
                if self._waiting and self._waiting[0] > rank:
                    self._settled.set()
        self.reserved += worst
        return True

    async def _has(self, worst: float, cap: float, rank: int, *, wait: bool) -> bool:
        """Whether the dollars are there, now or after waiting for calls in flight."""
        while rank <= self._last_rank:
            is_first = self._waiting[0] == rank
            if is_first and self.spent + self.reserved + worst <= cap:
                return True
            if not wait:
                return False
            if is_first and self.reserved <= 0:
                self.is_exhausted, self._last_rank = True, rank
                return False
            self._settled.clear()
            await self._settled.wait()
        return False

    def settle(self, worst: float, dollars: float) -> None:
        """Give back what was set aside, and count what was spent."""
        # Sums of many small numbers: what is left of none is none.
        self.reserved = max(0.0, self.reserved - worst) if self.reserved - worst > 1e-12 else 0.0
        self.spent += dollars
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
        dollars: Paid now.
        reserved: Upper bound for attempts of now without an answer, which may have been charged.
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
    reserved: float = 0.0
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
        self,
        *,
        dollars: float,
        attempts: int,
        score: float | None,
        is_answered: bool = True,
        reserved: float = 0.0,
    ) -> None:
        """One more cell is filled."""
        self.done += 1
        self.failures = 0 if is_answered else self.failures + 1
        self.errors += score is None
        self.score += score or 0.0
        self.dollars += dollars
        self.reserved += reserved
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
# Characters of an answer that is read in the event loop: the slowest of 150 degenerate ones took 13
# ms. The thread in which a judge reads costs 0.26 ms, a tenth of all that is done for an answer.
_SHORT = 120


def all_experts(_expert: str, _query_id: str) -> bool:
    """Every expert gets every query."""
    return True


@dataclass(frozen=True)
class CollectionRun:
    """Everything that one run needs.

    Args:
        queries: The queries in the order in which they are asked; iterated once for each expert.
        wanted: Which expert gets which query, by names; all by default.
        complete_queries: Whether paid experts stay near each other in the order of the queries, so
            that a run that a cap ends has few queries that only some of them answered.
    """

    queries: Iterable[Query]
    experts: Sequence[Expert]
    judge: Judge
    notes: AnswerStore
    known: StoredState
    budget: Budget
    wanted: Callable[[str, str], bool] = all_experts
    tallies: dict[str, ExpertProgress] = field(default_factory=dict)
    complete_queries: bool = False

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
        rank: Place of the query in the order of the run.
    """

    query: Query
    digest: str
    text: str | None = None
    rank: int = 0


async def run_all(job: CollectionRun, progress: Progress | None = None) -> list[ExpertProgress]:
    """Fill every cell that is empty.

    Args:
        job: What to do.
        progress: Told after each batch, or none.
    """
    tell = progress or (lambda _tallies: None)
    for expert in job.experts:
        job.tallies.setdefault(expert.name, ExpertProgress(expert.name)).begin()
    pace = _Pace(job)
    await _together([_run_expert(job, expert, pace, tell) for expert in job.experts])
    return list(job.tallies.values())


class _Pace:
    """Keeps experts within some queries of each other."""

    def __init__(self, job: CollectionRun) -> None:
        # Enough to keep all calls of the slowest expert busy, and little that is paid for nothing.
        widest = max((expert.concurrency for expert in job.experts), default=1)
        self._ahead = 2 * widest if job.complete_queries else math.inf
        self._drawn = dict.fromkeys((expert.name for expert in job.experts), -1.0)
        self._moved = asyncio.Event()

    def draw(self, cells: Iterator[Task], expert: Expert) -> tuple[list[Task], bool]:
        """The next batch of an expert, and whether it is paid."""
        first = next(cells, None)
        if first is None:
            return [], False
        is_paid = expert.max_attempt_cost(first.query) > 0
        size = min(expert.batch_size, self._ahead) if is_paid else expert.batch_size
        batch = [first, *islice(cells, int(size) - 1)]
        self.move(expert.name, batch[-1].rank)
        return batch, is_paid

    def move(self, expert: str, rank: float) -> None:
        """An expert has drawn the query of this rank; infinite when it draws no more."""
        self._drawn[expert] = rank
        self._moved.set()

    async def wait(self, rank: int) -> None:
        """Wait until no expert is too far behind this rank."""
        while rank > min(self._drawn.values()) + self._ahead:
            self._moved.clear()
            await self._moved.wait()


async def _run_expert(job: CollectionRun, expert: Expert, pace: _Pace, tell: Progress) -> None:
    """As many workers as the expert can serve, all drawing from one list of empty cells."""
    cells, tally = pending_tasks(job, expert), job.tallies[expert.name]

    async def work() -> None:
        while tally.state == "calling":
            batch, is_paid = pace.draw(cells, expert)
            if not batch:
                break
            if is_paid:
                await pace.wait(batch[-1].rank)
            if not await _fill(job, expert, batch):
                tally.state = STOPPED
            elif tally.failures >= max(_HOPELESS, 2 * expert.concurrency * expert.batch_size):
                tally.state = HOPELESS
            tell(list(job.tallies.values()))

    await _together([work() for _ in range(expert.concurrency)])
    pace.move(expert.name, math.inf)
    if tally.state == "calling":
        tally.state = "done"
    tell(list(job.tallies.values()))


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All side by side; when one fails, the others end before its error propagates."""
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
    for rank, query in enumerate(job.queries):
        if not job.wanted(expert.name, query.query_id):
            continue
        digest = query_digest(query)
        if digest not in judged:
            yield Task(
                query,
                digest,
                job.known.texts.get((expert.name, digest)) if digest in answered else None,
                rank,
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


class _Reservation:
    """Money of a call or a verdict in flight: one attempt at each of its queries.

    Args:
        cells: Its queries.
        bounds: Upper bound of one attempt at each of them.
        judge: Name of the judge that is asked for a verdict, if one is.
    """

    def __init__(
        self,
        job: CollectionRun,
        expert: Expert,
        cells: Sequence[Task],
        bounds: Sequence[float],
        judge: str = "",
    ) -> None:
        self._job = job
        self._expert = expert
        self._judge = judge
        self._cells = {cell.query.query_id: cell for cell in cells}
        self._bounds = dict(zip(self._cells, bounds, strict=True))
        # The last of a batch, so that its first ones may be paid if the batch as a whole cannot.
        self._rank = cells[-1].rank
        self._attempts = Counter[str]()
        self._lost: dict[str, float] = dict.fromkeys(self._cells, 0.0)
        self._held = 0.0

    async def begin(self) -> bool:
        """Set money aside for the first attempts; false if there is not enough."""
        worst = sum(self._bounds.values())
        if not await self._job.budget.reserve(worst, rank=self._rank):
            return False
        self._held = worst
        for query_id in self._bounds:
            self._write_down(query_id)
        return True

    async def spend(self, work: Awaitable[T], cost: Callable[[T], float]) -> T:
        """Do the work, whose retries reserve money, and count what it cost."""
        dollars: float | None = None
        token = RESERVE_RETRY.set(self._retry)
        try:
            found = await work
            dollars = cost(found)
        finally:
            RESERVE_RETRY.reset(token)
            # If it failed, all that is reserved may have been charged.
            spent = self._held if dollars is None else max(0.0, dollars - sum(self._lost.values()))
            self._job.budget.settle(self._held, spent)
        return found

    async def _retry(self, query: Query, worst: float) -> bool:
        """Count an attempt as charged, and set money aside for another one."""
        # A judge asks prompts of its own about its one query.
        query_id = query.query_id if query.query_id in self._cells else next(iter(self._cells))
        self._job.budget.settle(worst, worst)
        self._held -= worst
        self._lost[query_id] += worst
        # Who waits for money must hold none, or two calls could wait for each other's.
        if not await self._job.budget.reserve(worst, rank=self._rank, wait=self._held <= 0):
            self._job.tallies[self._expert.name].state = STOPPED
            return False
        self._held += worst
        self._write_down(query_id)
        return True

    def _write_down(self, query_id: str) -> None:
        self._attempts[query_id] += 1
        worst = self._lost[query_id] + self._bounds[query_id]
        if worst:
            self._job.notes.add(
                CallStarted(
                    self._expert.name,
                    self._expert.version,
                    self._cells[query_id].digest,
                    worst,
                    self._attempts[query_id],
                    self._judge,
                )
            )


async def _call(job: CollectionRun, expert: Expert, cells: list[Task]) -> list[Answer] | None:
    queries = [cell.query for cell in cells]
    reservation = _Reservation(job, expert, cells, [*map(expert.max_attempt_cost, queries)])
    if not await reservation.begin():
        return None
    answers = await reservation.spend(
        expert.answer(queries),
        lambda found: sum(answer.dollars + answer.unconfirmed_cost for answer in found),
    )
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
    told = verdict or Verdict(None)
    answer = answer or Answer(text, attempts=0)
    job.tallies[expert.name].count(
        dollars=answer.dollars + told.dollars,
        attempts=answer.attempts,
        score=told.score,
        is_answered=not answer.error,
        reserved=answer.unconfirmed_cost + told.unconfirmed_cost,
    )
    return verdict is not None


async def _verdict(job: CollectionRun, expert: Expert, cell: Task, text: str) -> Verdict | None:
    if type(job.judge).judge is ReadingJudge.judge and len(text) <= _SHORT:
        verdict = cast("ReadingJudge", job.judge).score(cell.query, text)  # costs nothing
        # Cells that have their answers already would else be judged in one go.
        await asyncio.sleep(0)
    else:
        worst = job.judge.max_attempt_cost(cell.query, text)
        reservation = _Reservation(job, expert, [cell], [worst], job.judge.name)
        if not await reservation.begin():
            return None
        verdict = await reservation.spend(
            job.judge.judge(cell.query, text),
            lambda found: found.dollars + found.unconfirmed_cost,
        )
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
            verdict.unconfirmed_cost,
        )
    )
    return verdict


# Coroutines from code that may itself run in an event loop, as in a notebook.


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; in a thread of its own if this thread has a running event loop.

    An interrupt cancels it and continues when it has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def main() -> T:
        task = asyncio.current_task()
        if task is not None:
            running.set_result((asyncio.get_running_loop(), task))
        return await coroutine

    # An interrupt while the pool starts its thread would leave the thread out of the pool, and
    # nobody would wait for it: the coroutine starts when an interrupt would be caught.
    is_ready = threading.Event()

    def work() -> T:
        is_ready.wait()
        return asyncio.run(main())

    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            done = pool.submit(work)
            is_ready.set()
            return done.result()
        except KeyboardInterrupt:
            is_ready.set()
            loop, task = running.result()
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)
            raise
