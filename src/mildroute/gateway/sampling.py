"""Sampling: a share of requests is sent to the other experts, too, and all answers are judged.

It happens in the background, when the response has been sent. What it may cost is reserved in a
place that survives the process before any call is made, and settled by the bill: a gateway that is
killed in between has spent what it had reserved.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from mildroute._files import atomic_write, file_lock
from mildroute.decision.days import ROUNDING, start_of_day
from mildroute.decision.feedback import SampleLog, has_enough_samples
from mildroute.decision.prompt import text_of
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.completion import answer_text
from mildroute.experts.config import ExpertFile, ExpertSpec, build_expert
from mildroute.experts.settings import HIDDEN_PROMPT
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.context import RequestContext
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.request import Header, Request, forward_request_headers
from mildroute.gateway.observability.logs import log_event
from mildroute.gateway.observability.metrics import GatewayMetrics, SamplingState
from mildroute.gateway.upstream.base import UpstreamRequest
from mildroute.gateway.upstream.errors import UpstreamError
from mildroute.gateway.upstream.failover import AttemptLog, Failover
from mildroute.gateway.upstream.pool import CALLABLE_KINDS, ExpertPool, UpstreamExpert
from mildroute.judges.base import Judge
from mildroute.judges.registry import judge_from_config

__all__ = ["OPT_OUT", "Sampler", "load_sampler"]


_LOG = logging.getLogger(__name__)
# Header of clients whose requests are not to be sampled, and its values.
OPT_OUT = "x-mildroute-sampling"
# What a judge that reads text cannot see.
_UNSEEN = frozenset({"tools", "vision"})
_TRACES = (b"traceparent", b"tracestate")
# Failures after which an expert cannot have generated an answer that is billed.
_UNBILLED = frozenset(
    {
        *("connect", "rate_limited", "5xx", "error_body", "circuit_open"),
        *("overloaded", "misconfigured", "redirect", "context_length"),
    }
)
# Seconds for which a sampled call waits until its expert has a free slot, and between two looks.
_PATIENCE = 60.0
_LOOK = 0.05
_LOCK_SECONDS = 10.0
_STATE = "sampling.json"
# Bytes of a request that is sampled.
_MAX_BODY = 1 << 16


class Reserved(NamedTuple):
    """Dollars that are held, and the day they belong to."""

    dollars: float
    day: float


class SamplingBudget(Protocol):
    """Dollars of a day, counted where they survive the process.

    Attributes:
        left: Dollars of today when they were last counted; NaN before that.
    """

    left: float

    async def reserve(self, dollars: float) -> Reserved | None:
        """Hold so much before a call; none if it is not left, or cannot be written down."""
        ...

    async def settle(self, held: Reserved, dollars: float) -> None:
        """Count what was taken in place of what was held."""
        ...


class FileBudget:
    """Dollars of a day in a file, which all gateways with the same log share.

    Args:
        path: Of the file.
        limit: Dollars of a day.
        now: Seconds since 1970.
    """

    def __init__(self, path: Path, limit: float, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._limit = limit
        self._now = now
        self.left = math.nan

    async def reserve(self, dollars: float) -> Reserved | None:
        try:
            day = await asyncio.to_thread(self._add, dollars, None)
        except (OSError, TableError, ValueError, TypeError, KeyError) as error:
            log_event(_LOG, logging.WARNING, "sampling cannot count dollars", error=str(error))
            return None
        return None if day is None else Reserved(dollars, day)

    async def settle(self, held: Reserved, dollars: float) -> None:
        try:
            await asyncio.to_thread(self._add, dollars - held.dollars, held.day)
        except (OSError, TableError, ValueError, TypeError, KeyError) as error:
            # What was held stays counted.
            log_event(_LOG, logging.WARNING, "sampling cannot count dollars", error=str(error))

    def _add(self, dollars: float, held_on: float | None) -> float | None:
        """Add dollars to the day, which is returned; none if they are to be held and are not left.

        What was held on an earlier day stays there.
        """
        lock = self._path.with_name(f".{self._path.name}.lock")
        with file_lock(lock, _LOCK_SECONDS, create=True):
            day, spent = self._read()
            today = start_of_day(self._now())
            if today > day:  # a clock that went back begins no second day
                day, spent = today, 0.0
            self.left = self._limit - spent
            if held_on is None and dollars > self.left + ROUNDING:
                return None
            if held_on is None or held_on == day:
                with atomic_write(self._path) as beside:
                    document = {"day": day, "dollars": spent + dollars}
                    beside.write_text(json.dumps(document), encoding="utf-8")
                self.left -= dollars
            return day

    def _read(self) -> tuple[float, float]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return -math.inf, 0.0
        day, dollars = float(document["day"]), float(document["dollars"])
        if not (math.isfinite(day) and 0 <= dollars < math.inf):
            raise ValueError(f"{self._path.name} must have a day and dollars of 0 or more")
        return day, dollars


class MeteredExpert(Expert):
    """An expert that a judge asks, within the day's dollars."""

    def __init__(self, expert: Expert, budget: SamplingBudget) -> None:
        self._expert = expert
        self._budget = budget
        self.name = expert.name
        self.version = expert.version
        self.price = expert.price
        self.batch_size = expert.batch_size
        self.concurrency = expert.concurrency

    def max_cost(self, query: Query) -> float:
        """Upper bound of what the expert charges."""
        return self._expert.max_cost(query)

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """Ask the expert, if its highest charge is left."""
        held = await self._budget.reserve(sum(map(self.max_cost, batch)))
        if held is None:
            return [Answer(None, error="the day's dollars are spent") for _ in batch]
        answers = await self._expert.answer(batch)
        spent = sum(answer.dollars + answer.unconfirmed_cost for answer in answers)
        await self._budget.settle(held, spent)
        return answers

    async def close(self) -> None:
        """Release its connections."""
        await self._expert.close()


class _Asked(NamedTuple):
    """What an expert answered; no text if it failed.

    Args:
        most: What the budget counts: the bill, or the most that there may be on one.
    """

    text: str | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    tokens: tuple[int, int] = (0, 0)
    most: float = 0.0


@dataclass(frozen=True)
class _Task:
    """A request that was served, and is to be sampled."""

    decision_id: str
    time: float
    parsed: ParsedRequest
    headers: Sequence[Header]
    served_by: str
    answer: bytes
    served: _Asked


class Sampler:
    """Sends a share of requests to the other experts, lets a judge score all answers, and logs it.

    Args:
        config: Of the gateway.
        judge: Scores answers without a reference.
        names: Experts that are sampled.
        budget: Dollars of the day.
        log: Of samples.
        metrics: Get results and dollars.
        random: A number from 0 to just below 1, evenly spread.
    """

    def __init__(
        self,
        config: GatewayConfig,
        names: Sequence[str],
        judge: Judge,
        budget: SamplingBudget,
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
        self._pool: ExpertPool
        self._failover: Failover
        metrics.watch(sampling=lambda: SamplingState(self._budget.left, is_enough=self._is_enough))

    def attach(self, pool: ExpertPool, failover: Failover) -> None:
        """Take the experts and what calls them."""
        self._pool = pool
        self._failover = failover

    def start(self) -> None:
        """Sample until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work()) for _ in range(self._config.concurrency)]
        self._workers.append(loop.create_task(self._look_for_enough()))

    async def stop(self) -> None:
        """End all calls in flight; what was reserved for them stays counted."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for expert in self._judge.experts():
            await expert.close()
        self.log.close()

    def takes(self, context: RequestContext, request: Request) -> bool:
        """Whether a request is to be sampled: a coin that does not look at it, of those that can.

        Its response is to be kept for :meth:`offer`.
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
        """Sample a request that has been served if the queue has space; never wait for it."""
        if context.answer is None or context.status != 200 or not context.served_by:
            return
        calls = reversed(context.attempts.calls)
        call = next(call for call in calls if call.expert == context.served_by)
        kept = [header for header in headers if header[0] not in _TRACES]
        task = _Task(
            context.decision_id,
            context.time,
            context.parsed,
            forward_request_headers(kept),
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
            except Exception:  # noqa: BLE001 - whatever it was, the next sample may go well
                _LOG.exception("a request could not be sampled")
                result = "failed"
            self._metrics.record_sample(result)
            if result == "full" and not self._is_enough:
                await self._look_for_enough()

    async def _sample(self, task: _Task) -> str:
        """Ask the others, judge all answers, and log it.

        Returns:
            ``full`` if all experts have scores, ``partial`` if some have, ``failed`` if none has,
            ``no_budget`` if no call was made for lack of budget.
        """
        text = await asyncio.to_thread(answer_text, task.answer)
        parsed = _bounded(task.parsed, self._max_output_tokens)
        task = replace(task, parsed=parsed)
        others = [name for name in self._names if self._may_ask(name, task)]
        if not text or not others:
            return "failed"
        experts = [self._pool.callable[name] for name in others]
        most = [self._max_dollars(expert, task.parsed) for expert in experts]
        # Answers that cannot be judged are no use: about what that takes must be left, too.
        judging = self._judge.max_cost(Query(task.decision_id, parsed.text), text)
        held = await self._budget.reserve(sum(most) + judging * (1 + len(others)))
        if held is None:
            return "no_budget"
        found = await asyncio.gather(
            *(self._ask(expert, bound, task) for expert, bound in zip(experts, most, strict=True))
        )
        await self._budget.settle(held, sum(asked.most for asked in found))
        answers = {task.served_by: task.served._replace(text=text)}
        answers |= dict(zip(others, found, strict=True))
        for name, asked in zip(others, found, strict=True):
            self._metrics.record_sampled_call(name, asked.cost_usd or 0.0)
        return await self._judge_all(task, answers)

    def _may_ask(self, name: str, task: _Task) -> bool:
        """Whether an expert is there, did not serve the request, and could have."""
        expert = self._pool.callable.get(name)
        if expert is None or name == task.served_by:
            return False
        status, parsed = expert.status(), task.parsed
        is_able = status.capabilities is None or parsed.needs <= status.capabilities
        tokens = parsed.tokens_in + (parsed.tokens_out or 0)
        return is_able and (status.context is None or tokens <= status.context)

    def _max_dollars(self, expert: UpstreamExpert, parsed: ParsedRequest) -> float:
        """The most that a call can cost: no token is shorter than a byte."""
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
            return _Asked(most=0.0 if is_unbilled else bound)
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
            return _Asked(most=bound)
        finally:
            attempt.close()
        text = await asyncio.to_thread(answer_text, response.body)
        # What an expert does not tell may be more than its answer shows, such as reasoning.
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
        """The score of an answer, or none, and the dollars of judging it."""
        if text is None:
            return None, 0.0
        # An expert that the judge asks reserves its own charge.
        bound = 0.0 if self._judge.experts() else self._judge.max_cost(query, text)
        held = await self._budget.reserve(bound) if bound else Reserved(0.0, 0.0)
        if held is None:
            return None, 0.0
        verdict = await self._judge.judge(query, text)
        if bound:
            await self._budget.settle(held, verdict.dollars)
        return verdict.score, verdict.dollars

    async def _look_for_enough(self) -> None:
        """Say once when there are enough samples to fit a router."""
        is_enough = await asyncio.to_thread(has_enough_samples, self.log.folder, self._names)
        is_new = is_enough and not self._is_enough
        self._is_enough = is_enough
        if is_new:
            experts = ", ".join(self._names)
            log_event(_LOG, logging.INFO, "enough samples to fit a router", experts=experts)


def _bounded(parsed: ParsedRequest, most: int) -> ParsedRequest:
    """The request with a limit of its answer, so that what it may cost is known."""
    if parsed.tokens_out is not None:
        return parsed
    fields = {name: value for name, value in parsed.fields.items() if value is not None}
    return replace(parsed, fields={**fields, "max_tokens": most}, tokens_out=most)


async def _has_room(expert: UpstreamExpert) -> bool:
    """Wait until a call takes no turn of one that a client waits for; whether that came."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE
    while expert.upstream is not None and loop.time() < end:
        if expert.upstream.slots.is_free and expert.status().has_capacity:
            return True
        await asyncio.sleep(_LOOK)
    return False


def _question(parsed: ParsedRequest) -> str:
    """What a judge is told: the message, or the whole conversation if there are several."""
    messages = parsed.fields["messages"]
    if len(messages) == 1:
        return parsed.text
    return "\n\n".join(
        f"{message.get('role')}: {text_of(message.get('content'))}" for message in messages
    )


def load_sampler(
    config: GatewayConfig, file: ExpertFile, metrics: GatewayMetrics
) -> Sampler | None:
    """The sampler of a gateway, or none; an ArgumentError if it could not do its work."""
    sampling, folder = config.sampling, config.log.folder
    if not sampling.rate:
        return None
    limit = sampling.max_dollars_per_day
    if limit is None or sampling.judge is None or folder is None:
        raise ArgumentError(
            "sampling needs a judge, a limit of dollars and a log, got judge"
            f" {sampling.judge!r:.60}, max_dollars_per_day {limit} and log {folder}; set"
            " sampling.judge, sampling.max_dollars_per_day and log.folder, or sampling.rate to 0."
        )
    names = [spec.name for spec in file.experts if spec.kind in CALLABLE_KINDS]
    unknown = [name for name in sampling.experts if name not in names]
    if unknown or len(sampling.experts or names) < 2:
        raise ArgumentError(
            "sampling needs two experts or more that the gateway can call, got"
            f" {', '.join(unknown or names) or 'none'}; known: {', '.join(names)}."
        )
    budget = FileBudget(folder / _STATE, limit)

    def build(spec: ExpertSpec) -> Expert:
        return MeteredExpert(build_expert(spec), budget)

    specs = [*file.judges, *file.experts]
    judge = judge_from_config(sampling.judge, sampling.judge_settings, specs, build)
    _check_judge(judge)
    log = SampleLog(config.log)
    return Sampler(config, sampling.experts or names, judge, budget, log, metrics)


def _check_judge(judge: Judge) -> None:
    """Refuse a judge that could score no request of a client, or at no known price."""
    probe = Query("probe", "What is 2 + 2?")
    lack = judge.missing_fields(probe)
    if lack:
        raise ArgumentError(
            "sampling needs a judge that scores an answer by the request alone, got"
            f" {judge.name!r}: {lack}; take graded, or collect with references instead."
        )
    if not math.isfinite(judge.max_cost(probe, "4")):
        raise ArgumentError(
            f"sampling needs a judge whose charge is bounded, got {judge.name!r}; set max_tokens"
            " for the expert that it asks."
        )
