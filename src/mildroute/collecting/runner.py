"""Ask experts, judge what they say, and write everything down, many calls at a time in one process."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeAlias

from mildroute.collecting.archive import Known
from mildroute.collecting.budget import Purse
from mildroute.collecting.entries import AnswerEntry, AskedEntry, Entry, VerdictEntry
from mildroute.collecting.queries import digest_of
from mildroute.collecting.tally import Tally
from mildroute.experts.protocol import Answer, Expert, Query
from mildroute.judges.protocol import Judge, Verdict

__all__ = ["STOPPED", "Cell", "Notes", "Progress", "Round", "ask_all", "asked_by", "empty_cells", "everyone", "worst_dollars"]

Progress: TypeAlias = Callable[[Sequence[Tally]], None]
"""Called after each batch with the counts of all experts."""
STOPPED, HOPELESS = "stopped by the cap", "gives no answers"
_HOPELESS = 20
"""Calls in a row without an answer, after which an expert is left alone; twice as many as are made at once, if that is more."""
"""State of an expert for whose next call there was not enough money."""


class Notes(Protocol):
    """Where everything is written down.

    Example:
        >>> class Forgetful:
        ...     def add(self, entry):
        ...         pass
        >>> notes: Notes = Forgetful()
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
class Round:
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

    Example:
        >>> Round.__name__
        'Round'
    """

    queries: Iterable[Query]
    experts: Sequence[Expert]
    judge: Judge
    notes: Notes
    known: Known
    budget: Purse
    wanted: Callable[[str, str], bool] = everyone
    tallies: dict[str, Tally] = field(default_factory=dict)
    lanes: int | None = None

    @functools.cached_property
    def judge_version(self) -> str:
        """Version of the judge, which is a hash of its settings: computed once and not for each cell."""
        return self.judge.version

    async def close(self) -> None:
        """Let go of all connections, also those of an expert whom only the judge asks."""
        await asyncio.gather(*(expert.close() for expert in (*self.experts, *asked_by(self.judge))))


def asked_by(judge: Judge) -> list[Expert]:
    """The expert that a judge asks, if it asks one.

    Example:
        >>> from mildroute.judges.exact import ExactJudge
        >>> asked_by(ExactJudge())
        []
    """
    expert: Expert | None = getattr(judge, "expert", None)
    return [] if expert is None else [expert]


@dataclass(frozen=True)
class Cell:
    """What one expert is to be asked.

    Args:
        query: The query.
        digest: Its fingerprint.
        text: The answer, if it is there already and waits for a verdict.

    Example:
        >>> Cell(Query("q1", "Hi"), "ab12").text
    """

    query: Query
    digest: str
    text: str | None = None


async def ask_all(job: Round, progress: Progress | None = None) -> list[Tally]:
    """Fill every cell that is empty.

    Args:
        job: What to do.
        progress: Told after each batch, or none.

    Returns:
        Counts of each expert.

    Example:
        >>> ask_all.__name__
        'ask_all'
    """
    tell = progress or (lambda _tallies: None)
    for expert in job.experts:
        job.tallies.setdefault(expert.name, Tally(expert.name)).begin()
    await _together([_ask_expert(job, expert, tell) for expert in job.experts])
    return list(job.tallies.values())


def worst_dollars(asked: object, query: Query) -> float:
    """At most what asking or judging a query costs; 0 where the expert or judge cannot say.

    Args:
        asked: An expert or a judge.
        query: The query.

    Returns:
        Dollars.

    Example:
        >>> worst_dollars(object(), Query("q1", "Hi"))
        0.0
    """
    bound = getattr(asked, "worst_dollars", None)
    return 0.0 if bound is None else float(bound(query))


async def _ask_expert(job: Round, expert: Expert, tell: Progress) -> None:
    """As many workers as the expert can serve, all drawing from one list of empty cells."""
    cells, tally = empty_cells(job, expert), job.tallies[expert.name]

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


def empty_cells(job: Round, expert: Expert) -> Iterator[Cell]:
    """The cells of an expert that are wanted and have no verdict yet, in the order of the queries.

    Args:
        job: What to do.
        expert: Who is asked.

    Yields:
        Cells.

    Example:
        >>> empty_cells.__name__
        'empty_cells'
    """
    answered, judged = job.known.answered[expert.name], job.known.judged[expert.name]
    for query in job.queries:
        if not job.wanted(expert.name, query.query_id):
            continue
        digest = digest_of(query)
        if digest not in judged:
            yield Cell(query, digest, job.known.texts.get((expert.name, digest)) if digest in answered else None)


async def _fill(job: Round, expert: Expert, cells: list[Cell]) -> bool:
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


async def _ask(job: Round, expert: Expert, cells: list[Cell]) -> list[Answer] | None:
    bounds = [worst_dollars(expert, cell.query) for cell in cells]
    worst = sum(bounds)
    if not await job.budget.reserve(worst):
        return None
    for cell, bound in zip(cells, bounds, strict=True):
        if bound:
            job.notes.add(AskedEntry(expert.name, expert.version, cell.digest, bound))
    dollars = worst
    try:
        answers = await expert.answer([cell.query for cell in cells])
        dollars = sum(answer.dollars + answer.doubtful_dollars for answer in answers)
    finally:
        job.budget.settle(worst, dollars)
    for cell, answer in zip(cells, answers, strict=True):
        job.notes.add(AnswerEntry.of(answer, expert.name, expert.version, cell.digest, cell.query.query_id))
    return answers


async def _judge(job: Round, expert: Expert, cell: Cell, answer: Answer | None) -> bool:
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


async def _verdict(job: Round, expert: Expert, cell: Cell, text: str) -> Verdict | None:
    bound: Callable[[Query, str], float] | None = getattr(job.judge, "worst_dollars", None)
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
        VerdictEntry(
            expert.name, expert.version, cell.digest, job.judge.name, job.judge_version, verdict.score, verdict.reason, verdict.dollars
        )
    )
    return verdict
