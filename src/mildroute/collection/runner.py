"""Concurrent calls to experts and judges, which fill the empty cells."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterator, Sequence
from itertools import islice
from typing import Any

from mildroute.collection.calls import call_expert, judge_answer
from mildroute.collection.progress import HOPELESS, STOPPED, ExpertProgress, Progress
from mildroute.collection.run import Cell, CollectionRun, empty_cells
from mildroute.experts.base import Answer, Expert

__all__ = ["run_all"]

# Minimum number of consecutive calls without an answer after which an expert is no longer called.
_HOPELESS_CALLS = 20


async def run_all(run: CollectionRun, progress: Progress | None = None) -> list[ExpertProgress]:
    """Fill every empty cell.

    Args:
        run: The inputs of the run.
        progress: Function that is called after each batch, or ``None``.
    """
    report = progress or (lambda _tallies: None)
    for expert in run.experts:
        run.tallies.setdefault(expert.name, ExpertProgress(expert.name)).begin()
    pacer = _Pacer(run)
    await _gather([_run_expert(run, expert, pacer, report) for expert in run.experts])
    return list(run.tallies.values())


class _Pacer:
    """A pacer, which keeps paid experts within some queries of each other."""

    def __init__(self, run: CollectionRun) -> None:
        # This lead keeps all workers busy and wastes little money if the cap ends the run.
        concurrency = max((expert.concurrency for expert in run.experts), default=1)
        self._max_lead = 2 * concurrency if run.complete_queries else math.inf
        self._last_ranks = dict.fromkeys((expert.name for expert in run.experts), -1.0)
        self._moved = asyncio.Event()

    def next_batch(self, cells: Iterator[Cell], expert: Expert) -> tuple[list[Cell], bool]:
        """Return the next batch of an expert, and whether it costs money."""
        first = next(cells, None)
        if first is None:
            return [], False
        is_paid = expert.max_attempt_cost(first.query) > 0
        size = min(expert.batch_size, self._max_lead) if is_paid else expert.batch_size
        batch = [first, *islice(cells, int(size) - 1)]
        self.record(expert.name, batch[-1].rank)
        return batch, is_paid

    def record(self, expert: str, rank: float) -> None:
        """Record the rank of an expert's last query; infinite if the expert has no more cells."""
        self._last_ranks[expert] = rank
        self._moved.set()

    async def wait(self, rank: int) -> None:
        """Wait until no expert is too far behind a rank."""
        while rank > min(self._last_ranks.values()) + self._max_lead:
            self._moved.clear()
            await self._moved.wait()


async def _run_expert(run: CollectionRun, expert: Expert, pacer: _Pacer, report: Progress) -> None:
    """Fill an expert's cells with as many workers as the expert allows concurrent calls."""
    cells = empty_cells(run, expert)
    tally = run.tallies[expert.name]
    max_failures = max(_HOPELESS_CALLS, 2 * expert.concurrency * expert.batch_size)

    async def work() -> None:
        while tally.state == "calling":
            batch, is_paid = pacer.next_batch(cells, expert)
            if not batch:
                break
            if is_paid:
                await pacer.wait(batch[-1].rank)
            if not await _fill_cells(run, expert, batch):
                tally.state = STOPPED
            elif tally.failures >= max_failures:
                tally.state = HOPELESS
            report(list(run.tallies.values()))

    await _gather([work() for _ in range(expert.concurrency)])
    pacer.record(expert.name, math.inf)
    if tally.state == "calling":
        tally.state = "done"
    report(list(run.tallies.values()))


async def _gather(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently; if one fails, cancel the others before raising its error."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _fill_cells(run: CollectionRun, expert: Expert, cells: list[Cell]) -> bool:
    """Get missing answers and judge all; return ``False`` if the budget is not sufficient."""
    unanswered = [cell for cell in cells if cell.text is None]
    answers: dict[str, Answer] = {}
    if unanswered:
        new_answers = await call_expert(run, expert, unanswered)
        if new_answers is None:
            if len(cells) == 1:
                return False
            # The remaining budget may be sufficient for some of the cells.
            return all([await _fill_cells(run, expert, [cell]) for cell in cells])
        answers = {
            cell.digest: answer for cell, answer in zip(unanswered, new_answers, strict=True)
        }
    # Every cell is judged even if one fails, because the budget may be sufficient for some of them.
    judged = [await judge_answer(run, expert, cell, answers.get(cell.digest)) for cell in cells]
    return all(judged)
