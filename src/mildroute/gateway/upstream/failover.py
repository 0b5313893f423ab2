"""Failover to the next expert if one fails, with retry rounds if all fail."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from mildroute.experts.retry import retry_after
from mildroute.gateway.config import FailoverConfig
from mildroute.gateway.observability.tracing import AttemptSpan, RequestSpan
from mildroute.gateway.upstream.attempts import Attempt, AttemptFailure, AttemptLog, AttemptRecord
from mildroute.gateway.upstream.base import Deadlines, UpstreamRequest, UpstreamResponse
from mildroute.gateway.upstream.classification import RATE_LIMITED, classify_response, is_too_long
from mildroute.gateway.upstream.errors import (
    ResponseTooLarge,
    UnsupportedRequest,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamTimeout,
)
from mildroute.gateway.upstream.pool import ExpertPool, UpstreamExpert
from mildroute.gateway.upstream.retry_budget import RetryBudget

__all__ = ["Failover"]


# A client's request can provoke these errors, so they must not open a circuit for other clients.
_CAUSED_BY_REQUEST = (UpstreamOverloaded, ResponseTooLarge, UnsupportedRequest)
_PERHAPS_CAUSED_BY_REQUEST = (403, 404, 405)
# Failures after which the same expert may be called again, because it cannot have generated an
# answer that is billed. After a lost connection or a timeout, it may have.
_TRANSIENT = {"connect", RATE_LIMITED, "5xx", "error_body", "circuit_open"}
# Seconds between two rounds, and the longest wait for an expert or the next probe of its circuit.
# Experts that restart are usually available again by then: without the wait, 0.6% of requests
# failed in benchmarks/service/chaos.py.
_PAUSES = (0.1, 0.5)
# Seconds by which a timer may fire too early, on some event loops.
_TIMER_TOLERANCE = 0.002
_MAX_PAUSE = 2.5


class Failover:
    """A caller that tries the experts of a decision until one responds.

    If all have failed, those with a transient failure are called again after a short pause, in as
    many rounds as the settings and the deadline allow and for at most a fifth of recent requests.
    An expert whose circuit is open gets only its probes, unless another expert has just failed for
    the same request. If all circuits are open, the request waits for the next probe, or is
    rejected at once if the probe is too far off or too many requests wait.

    Args:
        clock: Clock of the circuits.
        now: Returns seconds since 1970, for dates in Retry-After.
    """

    def __init__(
        self,
        pool: ExpertPool,
        config: FailoverConfig,
        *,
        max_response_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._budget = RetryBudget(clock)
        self._pool = pool
        self._config = config
        self._max_response_bytes = max_response_bytes
        self._clock = clock
        self._now = now

    async def call(
        self,
        request: UpstreamRequest,
        order: Sequence[str],
        excluded: Container[str],
        log: AttemptLog,
        span: RequestSpan | None = None,
        deadline: float | None = None,
        *,
        is_look: bool = False,
    ) -> Attempt | None:
        """Call the experts in order until one responds; return ``None`` if all fail.

        Args:
            request: The request for the experts.
            order: Names of the experts, best first.
            excluded: Experts that were unavailable when the order was made.
            log: Receives the calls and failures.
            span: Span of the request, or ``None``.
            deadline: Time on the event loop's clock; defaults to now plus the request timeout.
            is_look: Whether a cascade can continue without these experts. If so, no expert is
                called twice, or while its circuit is open.
        """
        started = time.perf_counter()
        try:
            return await self._call(request, order, excluded, log, span, deadline, is_look=is_look)
        finally:
            log.waited += time.perf_counter() - started

    async def _call(
        self,
        request: UpstreamRequest,
        order: Sequence[str],
        excluded: Container[str],
        log: AttemptLog,
        span: RequestSpan | None,
        deadline: float | None,
        *,
        is_look: bool,
    ) -> Attempt | None:
        deadline = self.deadline() if deadline is None else deadline
        names = order[: self._config.max_attempts]
        calls = _Calls(request, excluded, names, deadline, log, span, is_look)
        self._budget.count_request()
        attempt = await self._call_each(names, calls)
        for _ in range(self._config.max_rounds - 1):
            if attempt is not None or is_look:
                break
            names, pause = self._next_round(calls)
            if not names or not self._budget.has_room:
                break
            await asyncio.sleep(pause)
            calls.is_retry = True
            attempt = await self._call_each(names, calls)
        return attempt

    def deadline(self) -> float:
        """Return the deadline of a request that begins now, on the clock of the event loop."""
        return asyncio.get_running_loop().time() + self._config.timeout

    async def _call_each(self, names: Sequence[str], calls: _Calls) -> Attempt | None:
        loop = asyncio.get_running_loop()
        for name in names:
            if loop.time() >= calls.deadline:
                break
            attempt = await self._try(name, calls)
            if attempt is not None:
                return attempt
        return None

    def _next_round(self, calls: _Calls) -> tuple[Sequence[str], float]:
        """Return the experts to call again, if any, and the seconds to wait first."""
        last = {failure.expert: failure for failure in calls.log.failures}
        pause = random.uniform(*_PAUSES)  # noqa: S311
        remaining = calls.deadline - asyncio.get_running_loop().time()
        pauses = {
            name: self._pause_before(last[name], pause)
            for name in calls.names
            if name in last and last[name].reason in _TRANSIENT
        }
        pause = min(pauses.values(), default=remaining)
        if pause >= min(remaining, _MAX_PAUSE):
            return (), 0.0
        return [name for name, seconds in pauses.items() if seconds <= pause], pause

    def _pause_before(self, failure: AttemptFailure, pause: float) -> float:
        """Return the seconds until an expert may be called again, at least ``pause``."""
        breaker = self._pool.find(failure.expert).breaker
        if breaker.state == "open":
            return breaker.retry_after + pause
        is_limited = failure.reason == RATE_LIMITED
        return max(pause, failure.retry_after or 0.0) if is_limited else pause

    async def _try(self, name: str, calls: _Calls) -> Attempt | None:
        if calls.log.is_abandoned:
            return None
        expert = self._pool.find(name)
        if calls.context is not None and (expert.context or 0) <= calls.context:
            return None
        if calls.is_retry and not self._budget.try_spend():
            return None
        if not expert.breaker.try_acquire() and not self._is_last_resort(name, calls):
            calls.log.fail(name, "circuit_open", retry_after=expert.breaker.retry_after)
            return None
        return await self._attempt(expert, calls)

    def _is_last_resort(self, name: str, calls: _Calls) -> bool:
        """Return whether to call an expert despite its open circuit, because others just failed."""
        return (
            bool(calls.log.calls)
            and not calls.is_look
            and (name == calls.names[-1] or name in calls.excluded)
            and self._budget.try_spend()
        )

    async def _attempt(self, expert: UpstreamExpert, calls: _Calls) -> Attempt | None:
        started = self._clock()
        call = _start_call(expert, calls)
        try:
            return await self._send(expert, calls, started, call)
        except UpstreamError as error:
            calls.log.fail(expert.name, error.reason, detail=error.detail)
            if isinstance(error, _CAUSED_BY_REQUEST) or _is_long_answer(error, calls):
                expert.release(started)
            else:
                expert.record_failure(started, calls.log.request)
            return None
        except BaseException:
            expert.release(started)
            raise

    async def _send(
        self, expert: UpstreamExpert, calls: _Calls, started: float, call: AttemptRecord
    ) -> Attempt | None:
        if expert.upstream is None:
            calls.log.fail(expert.name, "misconfigured")
            return None
        config = self._config
        now = asyncio.get_running_loop().time()
        first_byte_at = now + config.first_byte_timeout
        complete_at = calls.deadline
        if config.attempt_timeout is not None and not calls.request.parsed.is_stream:
            complete_at = min(now + config.attempt_timeout, complete_at)
        response = await expert.upstream.send(
            calls.request if call.span is None else _with_headers(calls.request, call.span),
            Deadlines(
                min(first_byte_at, calls.deadline),
                config.idle_timeout,
                complete_at,
                self._max_response_bytes,
            ),
        )
        try:
            if response.has_events:
                await response.read_first_event(calls.deadline)
                call.receive_first_chunk()
            reason = self._classify(expert, response, calls)
            if not reason:
                expert.record_success(started)
                return Attempt(expert, response, started, call, calls.log.request)
        except BaseException:
            response.close()
            raise
        response.close()
        self._record_response(expert, response, reason, started, calls.log)
        return None

    def _classify(self, expert: UpstreamExpert, response: UpstreamResponse, calls: _Calls) -> str:
        """Return the reason for not forwarding a response; empty if it is forwarded."""
        flaw = response.flaw
        if flaw is not None:
            return flaw.reason
        reason = classify_response(
            response.status, response.headers, response.body, is_complete=not response.has_events
        )
        if is_too_long(response.status, response.body):
            parsed = calls.request.parsed
            context = expert.context or parsed.tokens_in + (parsed.tokens_out or 0)
            if any((self._pool.find(name).context or 0) > context for name in calls.names):
                calls.context = max(context, calls.context or 0)
                return "context_length"
        return reason

    def _record_response(
        self,
        expert: UpstreamExpert,
        response: UpstreamResponse,
        reason: str,
        started: float,
        log: AttemptLog,
    ) -> None:
        """Count a response that is not forwarded."""
        value = dict(response.headers).get(b"retry-after")
        seconds = None if value is None else retry_after(value.decode("latin-1"), self._now())
        if reason == RATE_LIMITED:
            seconds = expert.record_rate_limit(started, seconds)
        elif response.status in _PERHAPS_CAUSED_BY_REQUEST or reason == "context_length":
            expert.release(started)
        else:
            expert.record_failure(started, log.request)
        log.fail(expert.name, reason, response.status, seconds)


@dataclass(slots=True)
class _Calls:
    """The state that all calls of one request share.

    Attributes:
        is_retry: Whether this is a retry round, after all experts have been called.
        context: Largest context that was too short for the request, in tokens, or ``None``.
    """

    request: UpstreamRequest
    excluded: Container[str]
    names: Sequence[str]
    deadline: float
    log: AttemptLog
    span: RequestSpan | None
    is_look: bool = False
    is_retry: bool = False
    context: int | None = None


def _start_call(expert: UpstreamExpert, calls: _Calls) -> AttemptRecord:
    parsed = calls.request.parsed
    target = expert.targets[parsed.path]
    span = None
    if calls.span is not None:
        span = calls.span.attempt(expert.name, target, is_stream=parsed.is_stream)
    call = AttemptRecord(expert.name, target, span)
    calls.log.start(call)
    return call


def _is_long_answer(error: UpstreamError, calls: _Calls) -> bool:
    """Return whether a response that is not streamed missed the deadline of the request.

    A long answer is not the fault of the expert.
    """
    return (
        isinstance(error, UpstreamTimeout)
        and not calls.request.parsed.is_stream
        and asyncio.get_running_loop().time() >= calls.deadline - _TIMER_TOLERANCE
    )


def _with_headers(request: UpstreamRequest, span: AttemptSpan) -> UpstreamRequest:
    """Return the request with the headers that let the expert's own spans join the trace."""
    headers = [
        (name.lower().encode(), value.encode("latin-1", "replace"))
        for name, value in span.headers.items()
    ]
    return request._replace(headers=[*request.headers, *headers])
