"""The sampler, which runs in the background after the response has been sent."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mildroute.decision.feedback import SampleLog, has_enough_samples
from mildroute.decision.prompt import text_of
from mildroute.experts.base import Query
from mildroute.experts.completion import answer_text
from mildroute.experts.settings import HIDDEN_PROMPT
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.context import RequestContext
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.headers import Header, forward_request_headers
from mildroute.gateway.http.request import Request
from mildroute.gateway.observability.logs import log_event
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.sampling.budget import FileBudget, Reserved
from mildroute.gateway.upstream.attempts import AttemptLog
from mildroute.gateway.upstream.base import UpstreamRequest
from mildroute.gateway.upstream.errors import UpstreamError
from mildroute.gateway.upstream.failover import Failover
from mildroute.gateway.upstream.pool import ExpertPool, UpstreamExpert
from mildroute.judges.base import Judge

__all__ = ["OPT_OUT", "Sampler"]


_LOG = logging.getLogger(__name__)
# Header of clients that do not want their requests sampled.
OPT_OUT = "x-mildroute-sampling"
# Required capabilities of requests that a text judge cannot assess.
_UNSEEN = frozenset({"tools", "vision"})
_TRACES = (b"traceparent", b"tracestate")
# Failures after which no answer can have been generated and billed.
_UNBILLED = frozenset(
    {
        *("connect", "rate_limited", "5xx", "error_body", "circuit_open"),
        *("overloaded", "misconfigured", "redirect", "context_length"),
    }
)
# Seconds that a sampled call waits for a free slot of its expert, and between two checks.
_SLOT_TIMEOUT = 60.0
_SLOT_INTERVAL = 0.05
# Maximum bytes of a request that may be sampled.
_MAX_BODY = 1 << 16


class _Asked(NamedTuple):
    """An expert's answer, without a text if the expert failed.

    Args:
        text: The answer, or ``None``.
        cost_usd: Dollars charged, or ``None``.
        seconds: Seconds from request to answer, or ``None``.
        tokens: Number of tokens of the request and of the answer.
        counted: Dollars counted against the budget: the reported cost, or the maximum without one.
    """

    text: str | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    tokens: tuple[int, int] = (0, 0)
    counted: float = 0.0


@dataclass(frozen=True)
class _Task:
    """A served request that waits to be sampled."""

    decision_id: str
    time: float
    parsed: ParsedRequest
    headers: Sequence[Header]
    served_by: str
    answer: bytes
    served: _Asked


class Sampler:
    """A sampler that compares all experts on a share of requests and logs the scores.

    Args:
        config: The gateway's configuration.
        names: Names of the experts to sample.
        judge: Scores answers without a reference.
        budget: The daily budget.
        log: The log of samples.
        metrics: Counts results and dollars.
        random: Returns uniform random numbers in [0, 1).
    """

    def __init__(
        self,
        config: GatewayConfig,
        names: Sequence[str],
        judge: Judge,
        budget: FileBudget,
        log: SampleLog,
        metrics: GatewayMetrics,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._config = config.sampling
        self._max_output_tokens = config.limits.max_output_tokens
        self._max_response_bytes = config.limits.max_response_bytes
        self._names = tuple(names)
        self._judge = judge
        self._budget = budget
        self.log = log
        self._metrics = metrics
        self._random = random
        self._queue: asyncio.Queue[_Task] = asyncio.Queue(config.sampling.max_queue_size)
        self._workers: list[asyncio.Task[None]] = []
        self._is_enough = False
        metrics.watch(sampling=lambda: budget.left)
        self._pool: ExpertPool
        self._failover: Failover

    def attach(self, pool: ExpertPool, failover: Failover) -> None:
        """Set the experts and the failover that calls them."""
        self._pool = pool
        self._failover = failover

    def start(self) -> None:
        """Start sampling in the background, until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work()) for _ in range(self._config.concurrency)]
        self._workers.append(loop.create_task(self._look_for_enough()))

    async def stop(self) -> None:
        """Cancel all calls in flight; their reservations stay counted."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for expert in self._judge.experts():
            await expert.close()
        self.log.close()

    def takes(self, context: RequestContext, request: Request) -> bool:
        """Return whether to sample a request, by an independent draw among eligible requests.

        If so, keep the response for :meth:`offer`.
        """
        parsed = context.parsed
        return (
            self._random() < self._config.rate
            and parsed.path == "chat/completions"
            and context.decision.reason != "pinned"
            and parsed.choices == 1
            and not parsed.needs & _UNSEEN
            and parsed.size <= _MAX_BODY
            and bool(parsed.text.strip())
            and request.headers.get(OPT_OUT, "on").strip().lower() in ("", "on")
        )

    def offer(self, context: RequestContext, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Queue a served request for sampling; drop it if the queue is full."""
        if context.answer is None or context.status != 200 or not context.served_by:
            return
        calls = reversed(context.attempts.calls)
        call = next(call for call in calls if call.expert == context.served_by)
        headers = [header for header in headers if header[0] not in _TRACES]
        task = _Task(
            context.decision_id,
            context.time,
            context.parsed,
            forward_request_headers(headers),
            context.served_by,
            bytes(context.answer),
            _Asked(
                "",
                call.charge.dollars,
                call.seconds,
                (call.charge.tokens_in, call.charge.tokens_out),
            ),
        )
        try:
            self._queue.put_nowait(task)
        except asyncio.QueueFull:
            self._metrics.record_sample("dropped")

    async def _work(self) -> None:
        while True:
            task = await self._queue.get()
            try:
                result = await self._sample(task)
            except Exception:  # noqa: BLE001 - the next sample may succeed, whatever the error
                _LOG.exception("sampling failed")
                result = "failed"
            self._metrics.record_sample(result)
            if result == "full" and not self._is_enough:
                await self._look_for_enough()

    async def _sample(self, task: _Task) -> str:
        """Call the other experts, judge all answers and log the scores.

        Returns:
            ``full`` if all experts have scores, ``partial`` if some have one, ``failed`` if none
            has one, or ``no_budget`` if the budget does not cover the calls.
        """
        text = await asyncio.to_thread(answer_text, task.answer)
        parsed = _bounded(task.parsed, self._max_output_tokens)
        task = replace(task, parsed=parsed)
        others = [name for name in self._names if self._may_ask(name, task)]
        if not text or not others:
            return "failed"
        experts = [self._pool.callable[name] for name in others]
        bounds = [self._max_dollars(expert, task.parsed) for expert in experts]
        # Answers are useless without scores, so the budget must also cover the estimated judging.
        judging = self._judge.max_cost(Query(task.decision_id, parsed.text), text)
        held = await self._budget.reserve(sum(bounds) + judging * (1 + len(others)))
        if held is None:
            return "no_budget"
        asked = await asyncio.gather(
            *(self._ask(expert, bound, task) for expert, bound in zip(experts, bounds, strict=True))
        )
        await self._budget.settle(held, sum(each.counted for each in asked))
        answers = {task.served_by: task.served._replace(text=text)}
        answers |= dict(zip(others, asked, strict=True))
        for name, each in zip(others, asked, strict=True):
            self._metrics.record_sampled_call(name, each.cost_usd or 0.0)
        return await self._judge_all(task, answers)

    def _may_ask(self, name: str, task: _Task) -> bool:
        """Return whether an expert exists and could have served the request but did not."""
        expert = self._pool.callable.get(name)
        if expert is None or name == task.served_by:
            return False
        status, parsed = expert.status(), task.parsed
        is_able = status.capabilities is None or parsed.needs <= status.capabilities
        tokens = parsed.tokens_in + (parsed.tokens_out or 0)
        return is_able and (status.context is None or tokens <= status.context)

    def _max_dollars(self, expert: UpstreamExpert, parsed: ParsedRequest) -> float:
        """Return the maximum cost of a call, which has at most one token per byte."""
        longest = replace(parsed, tokens_in=parsed.size + HIDDEN_PROMPT)
        return self._pool.max_charge(longest, expert.name).dollars

    async def _ask(self, expert: UpstreamExpert, bound: float, task: _Task) -> _Asked:
        log = AttemptLog()
        try:
            return await self._call(expert, bound, task, log)
        finally:
            for call in log.calls:
                self._metrics.record_attempt(call.expert, call.error_type)

    async def _call(
        self, expert: UpstreamExpert, bound: float, task: _Task, log: AttemptLog
    ) -> _Asked:
        if not await _has_room(expert):
            return _Asked()
        deadline = self._failover.deadline()
        request = UpstreamRequest(task.parsed, task.headers)
        attempt = await self._failover.call(
            request, (expert.name,), (), log, None, deadline, is_look=True
        )
        if attempt is None:
            is_unbilled = all(call.reason in _UNBILLED for call in log.calls)
            return _Asked(counted=0.0 if is_unbilled else bound)
        try:
            response, call = attempt.response, attempt.call
            call.status = response.status
            if response.status >= 300:
                call.end()
                return _Asked()
            if not response.is_complete:
                await response.read_all(deadline, self._max_response_bytes)
            charge = attempt.charge(task.parsed)
        except UpstreamError as error:
            attempt.record_failure()
            log.fail(expert.name, error.reason)
            return _Asked(counted=bound)
        finally:
            attempt.close()
        text = await asyncio.to_thread(answer_text, response.body)
        # Unreported tokens, such as those of reasoning, may outnumber those of the answer.
        counted = charge.dollars if charge.is_reported else max(bound, charge.dollars)
        tokens = (charge.tokens_in, charge.tokens_out)
        return _Asked(text or None, charge.dollars, call.seconds, tokens, counted)

    async def _judge_all(self, task: _Task, answers: dict[str, _Asked]) -> str:
        question = _question(task.parsed)
        query = Query(task.decision_id, question)
        verdicts = await asyncio.gather(
            *(self._verdict(query, asked.text) for asked in answers.values())
        )
        scores = [score for score, _ in verdicts]
        judged = sum(dollars for _, dollars in verdicts)
        asked_by_judge = [expert.name for expert in self._judge.experts()]
        judged_by = asked_by_judge[0] if asked_by_judge else self._judge.name
        self._metrics.record_sampled_call(judged_by, judged)
        self.log.write(
            {
                "decision_id": task.decision_id,
                "time": task.time,
                "text": task.parsed.text,
                "conversation": task.parsed.conversation or "",
                "experts": list(answers),
                "scores": scores,
                "cost_usd": [asked.cost_usd for asked in answers.values()],
                "seconds": [asked.seconds for asked in answers.values()],
                "tokens_in": [asked.tokens[0] for asked in answers.values()],
                "tokens_out": [asked.tokens[1] for asked in answers.values()],
                "served_by": task.served_by,
                "judge": self._judge.name,
                "judged_by": judged_by,
                "judge_usd": judged,
            },
            [asked.text for asked in answers.values()],
        )
        if all(score is None for score in scores):
            return "failed"
        return "full" if None not in scores and {*self._names} <= {*answers} else "partial"

    async def _verdict(self, query: Query, text: str | None) -> tuple[float | None, float]:
        """Return the score of an answer, or ``None``, and the dollars spent on judging it."""
        if text is None:
            return None, 0.0
        # A judge's expert reserves its own charge.
        bound = 0.0 if self._judge.experts() else self._judge.max_cost(query, text)
        held = await self._budget.reserve(bound) if bound else Reserved(0.0, 0.0)
        if held is None:
            return None, 0.0
        verdict = await self._judge.judge(query, text)
        if bound:
            await self._budget.settle(held, verdict.dollars)
        return verdict.score, verdict.dollars

    async def _look_for_enough(self) -> None:
        """Log once when there are enough samples to fit a router."""
        is_enough = await asyncio.to_thread(has_enough_samples, self.log.folder, self._names)
        is_new = is_enough and not self._is_enough
        self._is_enough = is_enough
        if is_new:
            experts = ", ".join(self._names)
            log_event(_LOG, logging.INFO, "enough samples to fit a router", experts=experts)


def _bounded(parsed: ParsedRequest, max_tokens: int) -> ParsedRequest:
    """Return the request with a maximum answer length, which bounds its cost."""
    if parsed.tokens_out is not None:
        return parsed
    fields = {name: value for name, value in parsed.fields.items() if value is not None}
    return replace(parsed, fields={**fields, "max_tokens": max_tokens}, tokens_out=max_tokens)


async def _has_room(expert: UpstreamExpert) -> bool:
    """Wait for a slot that no client's request needs; return whether one became free."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SLOT_TIMEOUT
    while expert.upstream is not None and loop.time() < deadline:
        if expert.upstream.slots.is_free and expert.status().has_capacity:
            return True
        await asyncio.sleep(_SLOT_INTERVAL)
    return False


def _question(parsed: ParsedRequest) -> str:
    """Return the question for the judge: the message, or the conversation if there are several."""
    messages = parsed.fields["messages"]
    if len(messages) == 1:
        return parsed.text
    return "\n\n".join(
        f"{message.get('role')}: {text_of(message.get('content'))}" for message in messages
    )
