"""Calls to an expert or a judge, paid from the budget and recorded in the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

from mildroute.collection.entries import CallFinished, CallStarted, Judged
from mildroute.collection.progress import STOPPED
from mildroute.collection.run import Cell, CollectionRun
from mildroute.experts.base import RESERVE_RETRY, Answer, Expert, Query
from mildroute.judges.base import ReadingJudge, Verdict

__all__ = ["MAX_INLINE_ANSWER_CHARS", "call_expert", "judge_answer"]

T = TypeVar("T")

# The longest answer, in characters, that is judged on the event loop itself: the slowest of 150
# degenerate answers took 13 ms. A thread costs 0.26 ms, a tenth of the work per answer.
MAX_INLINE_ANSWER_CHARS = 120


async def call_expert(run: CollectionRun, expert: Expert, cells: list[Cell]) -> list[Answer] | None:
    """Return the expert's answers to the queries, or ``None`` if the budget cannot cover them."""
    queries = [cell.query for cell in cells]
    call = _PaidCall(run, expert, cells, [expert.max_attempt_cost(query) for query in queries])
    if not await call.reserve():
        return None
    answers = await call.run_and_settle(
        expert.answer(queries),
        lambda answers: sum(answer.dollars + answer.unconfirmed_cost for answer in answers),
    )
    for cell, answer in zip(cells, answers, strict=True):
        run.store.add(
            CallFinished.from_answer(
                answer, expert.name, expert.version, cell.digest, cell.query.query_id
            )
        )
    return answers


async def judge_answer(
    run: CollectionRun, expert: Expert, cell: Cell, answer: Answer | None
) -> bool:
    """Judge an answer and count it.

    Args:
        run: The run.
        expert: The expert that answered.
        cell: The cell.
        answer: The answer; ``None`` means the cell's stored text.

    Returns:
        Whether the budget covers the verdict; if not, a later run may still produce it.
    """
    text = cell.text if answer is None else answer.text
    is_answered = answer is None or not answer.error
    verdict: Verdict | None = Verdict(None)
    if text is not None and is_answered:
        verdict = await _judge_and_store(run, expert, cell, text)
    counted = verdict or Verdict(None)
    answer = answer or Answer(text, attempts=0)
    run.tallies[expert.name].count(
        dollars=answer.dollars + counted.dollars,
        attempts=answer.attempts,
        score=counted.score,
        is_answered=is_answered,
        reserved=answer.unconfirmed_cost + counted.unconfirmed_cost,
    )
    return verdict is not None


async def _judge_and_store(
    run: CollectionRun, expert: Expert, cell: Cell, text: str
) -> Verdict | None:
    """Judge a text and store the verdict; return ``None`` if the budget cannot cover it."""
    if type(run.judge).judge is ReadingJudge.judge and len(text) <= MAX_INLINE_ANSWER_CHARS:
        verdict = cast("ReadingJudge", run.judge).score(cell.query, text)
        # Without a pause, a run over stored answers would block the event loop until it ends.
        await asyncio.sleep(0)
    else:
        max_cost = run.judge.max_attempt_cost(cell.query, text)
        call = _PaidCall(run, expert, [cell], [max_cost], run.judge.name)
        if not await call.reserve():
            return None
        verdict = await call.run_and_settle(
            run.judge.judge(cell.query, text),
            lambda verdict: verdict.dollars + verdict.unconfirmed_cost,
        )
    run.store.add(
        Judged(
            expert.name,
            expert.version,
            cell.digest,
            run.judge.name,
            run.judge_version,
            verdict.score,
            verdict.reason,
            verdict.dollars,
            verdict.unconfirmed_cost,
        )
    )
    return verdict


class _PaidCall:
    """A call in flight, to an expert or a judge, with money reserved for an attempt at each query.

    Args:
        run: The run.
        expert: The expert whose cells are filled.
        cells: The cells.
        max_costs: Upper bound on the dollars of one attempt at each cell.
        judge: Name of the judge if the call is for a verdict; empty otherwise.
    """

    def __init__(
        self,
        run: CollectionRun,
        expert: Expert,
        cells: Sequence[Cell],
        max_costs: Sequence[float],
        judge: str = "",
    ) -> None:
        self._run = run
        self._expert = expert
        self._judge = judge
        self._cells = {cell.query.query_id: cell for cell in cells}
        self._max_costs = dict(zip(self._cells, max_costs, strict=True))
        # The rank of the batch's last query: if the budget cannot cover the whole batch, it may
        # still cover the earlier queries.
        self._rank = cells[-1].rank
        self._attempts = Counter[str]()
        self._charged_retries: dict[str, float] = dict.fromkeys(self._cells, 0.0)
        self._reserved = 0.0

    async def reserve(self) -> bool:
        """Reserve money for the first attempts; return ``False`` if there is not enough."""
        max_cost = sum(self._max_costs.values())
        if not await self._run.budget.reserve(max_cost, rank=self._rank):
            return False
        self._reserved = max_cost
        for query_id in self._max_costs:
            self._record_attempt(query_id)
        return True

    async def run_and_settle(self, work: Awaitable[T], cost: Callable[[T], float]) -> T:
        """Await a call, reserving budget for each retry, and settle its actual cost.

        Args:
            work: The call.
            cost: Function that returns the dollars of the work's result.
        """
        dollars: float | None = None
        token = RESERVE_RETRY.set(self._reserve_retry)
        try:
            result = await work
            dollars = cost(result)
        finally:
            RESERVE_RETRY.reset(token)
            if dollars is None:
                # After a failure, everything reserved may have been charged.
                spent = self._reserved
            else:
                spent = max(0.0, dollars - sum(self._charged_retries.values()))
            self._run.budget.settle(self._reserved, spent)
        return result

    async def _reserve_retry(self, query: Query, max_cost: float) -> bool:
        """Count an attempt as charged, and reserve money for another one."""
        # A judge sends its expert queries of its own; they all belong to the single cell.
        query_id = query.query_id if query.query_id in self._cells else next(iter(self._cells))
        self._run.budget.settle(max_cost, max_cost)
        self._reserved -= max_cost
        self._charged_retries[query_id] += max_cost
        # A call that holds a reservation must not wait for another one; two calls could deadlock.
        can_wait = self._reserved <= 0
        if not await self._run.budget.reserve(max_cost, rank=self._rank, wait=can_wait):
            self._run.tallies[self._expert.name].state = STOPPED
            return False
        self._reserved += max_cost
        self._record_attempt(query_id)
        return True

    def _record_attempt(self, query_id: str) -> None:
        self._attempts[query_id] += 1
        max_cost = self._charged_retries[query_id] + self._max_costs[query_id]
        if max_cost:
            self._run.store.add(
                CallStarted(
                    self._expert.name,
                    self._expert.version,
                    self._cells[query_id].digest,
                    max_cost,
                    self._attempts[query_id],
                    self._judge,
                )
            )
