"""Failover: classification of failures, the next expert, hedged calls and retry rounds."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from mildroute.experts.events import Event
from mildroute.experts.retry import retry_after
from mildroute.gateway.config import FailoverConfig
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.request import Header
from mildroute.gateway.observability.tracing import AttemptSpan, CallTarget, RequestSpan
from mildroute.gateway.upstream.base import Deadlines, UpstreamRequest, UpstreamResponse
from mildroute.gateway.upstream.charge import Charge, charge_of_call
from mildroute.gateway.upstream.circuit_breaker import RetryBudget
from mildroute.gateway.upstream.errors import (
    ResponseTooLarge,
    UnsupportedRequest,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamTimeout,
)
from mildroute.gateway.upstream.pool import ExpertPool, UpstreamExpert

__all__ = [
    "FAILURE_REASONS",
    "Attempt",
    "AttemptFailure",
    "AttemptLog",
    "AttemptRecord",
    "Failover",
    "classify_response",
    "close_result",
    "error_from_failures",
]


_RATE_LIMITED = "rate_limited"
_REASON_OF_STATUS = {
    **dict.fromkeys((401, 402, 403, 404, 405, 407, 421), "misconfigured"),
    408: "timeout",
    429: _RATE_LIMITED,
}
# What each reason means, for the message of an error.
FAILURE_REASONS = {
    "overloaded": "had reached its concurrency limit",
    "connect": "could not be reached",
    "circuit_open": "is cooling down after repeated failures",
    "connection_lost": "broke the connection",
    "context_length": "cannot take a text this long",
    "error_body": "sent an error as its answer",
    "error_event": "reported an error",
    "incomplete_stream": "closed the stream",
    "invalid_response": "sent an invalid response",
    "misconfigured": "refused the gateway's own key, address or model",
    "response_too_large": "sent a response that is too large",
    "rate_limited": "is rate limited",
    "redirect": "redirected the gateway",
    "timeout": "took too long",
    "unsupported": "cannot serve this request",
    "5xx": "had an error",
}
_UNSUPPORTED = UnsupportedRequest.reason
_STATUS_OF_REASON = {"timeout": 504, "circuit_open": 503, "overloaded": 503, _UNSUPPORTED: 400}
# A client can provoke these by what it requests; they must not open a circuit for the others.
_CAUSED_BY_REQUEST = (UpstreamOverloaded, ResponseTooLarge, UnsupportedRequest)
_TOO_LONG = (400, 413)
_PERHAPS_CAUSED_BY_REQUEST = (403, 404, 405)
# Failures after which the same expert may be called again: it cannot have generated an answer that
# is billed. After a lost connection or a timeout it can.
_TRANSIENT = {"connect", _RATE_LIMITED, "5xx", "error_body", "circuit_open"}
# Seconds between two rounds, and the longest wait for an expert or the next probe of its circuit.
# Experts that restart are back by then: without the wait 0.6% of requests failed in
# benchmarks/service/chaos.py.
_PAUSES = (0.1, 0.5)
# Seconds by which a timer may fire too early, on some event loops.
_TIMER_TOLERANCE = 0.002
_MAX_PAUSE = 2.5
_JSON_LIKE = (b"", b"text/plain", b"application/octet-stream", b"text/event-stream")
_MEMBERS_OF_ANSWERS = ("choices", "data", "output", "content")
# Some APIs send an error of null with every answer.
_may_be_error = re.compile(rb'"error"\s*:\s*[^\sn]').search
_is_too_long = re.compile(
    rb"context_length_exceeded|context (?:length|window|size)|(?:prompt|input) is too long"
    rb"|exceed context limit"
    rb"|too many (?:input )?tokens|reduce the length",
    re.IGNORECASE,
).search


def classify_response(status: int, headers: list[Header], body: bytes, *, is_complete: bool) -> str:
    """Return why a response is not forwarded; empty if it is.

    A 4xx is the client's concern and is forwarded, unless it means that the gateway calls the
    expert wrongly: with a bad key, without credit, or at an address or for a model that does not
    exist. Redirects are not followed. A 2xx must be JSON or a stream of events, by its content
    type and its first and last bytes, and must not be an error in place of an answer.
    """
    if 200 <= status < 300:
        return _classify_success(headers, body, is_complete=is_complete)
    if 400 <= status < 500:
        return _REASON_OF_STATUS.get(status, "")
    if 500 <= status < 600:
        return "5xx"
    return "redirect" if 300 <= status < 400 else "invalid_response"


def _classify_success(headers: list[Header], body: bytes, *, is_complete: bool) -> str:
    content_type = b""
    is_encoded = False
    for name, value in headers:
        if name == b"content-encoding":
            is_encoded = value != b"identity"
        elif name == b"content-type":
            content_type = value.partition(b";")[0].strip().lower()
    is_json = b"json" in content_type
    if not is_json and content_type not in _JSON_LIKE:
        return "invalid_response"
    if not is_complete or (is_encoded and body):
        return ""
    # A cheap check of both ends.
    stripped = body.strip()
    is_object = stripped[:1] + stripped[-1:] in (b"{}", b"[]")
    if not stripped or (is_json and not is_object):
        return "invalid_response"
    return "error_body" if is_object and _may_be_error(body) and _is_error(body) else ""


def _is_error(body: bytes) -> bool:
    """Return whether a document has an error in place of an answer, as OpenRouter sends it."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return (
        type(document) is dict
        and bool(document.get("error"))
        and not any(document.get(name) for name in _MEMBERS_OF_ANSWERS)
    )


@dataclass(frozen=True)
class AttemptFailure:
    """An expert that did not serve a request.

    Args:
        expert: Its name.
        reason: One of :data:`FAILURE_REASONS`, or ``"hedged"`` if another expert was faster.
        status: HTTP status of its error, or ``None``.
        retry_after: Seconds for which it gets no call, or ``None``.
        detail: Why it cannot serve the request, for its client, or empty.
    """

    expert: str
    reason: str
    status: int | None = None
    retry_after: float | None = None
    detail: str = ""


class AttemptRecord:
    """One call to an expert, for the decision log.

    Attributes:
        reason: Why it failed, or empty.
        status: HTTP status of its response; 0 without a response.
        charge: Tokens and dollars that it is charged.
        first_chunk: Seconds until the first event of its stream, or ``None``.
        seconds: Duration of the call; 0 while it runs.
        target: The call's provider, model and server.
        span: Its trace while it runs, or ``None``.
    """

    __slots__ = (
        "_started",
        "charge",
        "expert",
        "first_chunk",
        "reason",
        "seconds",
        "span",
        "status",
        "target",
    )

    def __init__(self, expert: str, target: CallTarget, span: AttemptSpan | None) -> None:
        self._started = time.perf_counter()
        self.expert = expert
        self.target = target
        self.span = span
        self.first_chunk: float | None = None
        self.reason = ""
        self.status = 0
        self.charge = Charge()
        self.seconds = 0.0

    def end(self, reason: str = "", status: int | None = None) -> None:
        """End the record of the call."""
        self.reason = reason or self.reason
        self.status = status or self.status
        self.seconds = time.perf_counter() - self._started
        if self.span is not None:
            self.span.end(
                status=self.status,
                error_type=self.error_type,
                tokens=self.reported_tokens,
                cached_tokens=self.charge.cached_tokens,
                first_chunk=self.first_chunk,
            )
            self.span = None

    @property
    def error_type(self) -> str:
        """Return the type of the call's error in OpenTelemetry's terms; empty without an error."""
        if self.reason or 0 < self.status < 400:
            return self.reason
        return str(self.status) if self.status else "cancelled"

    def receive_first_chunk(self) -> None:
        """Record the time of the first event of a stream."""
        self.first_chunk = time.perf_counter() - self._started

    @property
    def is_charged(self) -> bool:
        """Return whether the tokens of the call are known."""
        return (self.charge.tokens_in, self.charge.tokens_out) != (0, 0)

    @property
    def reported_tokens(self) -> tuple[int, int] | None:
        """The tokens that the expert has reported, in and out, or ``None``."""
        charge = self.charge
        return (charge.tokens_in, charge.tokens_out) if charge.is_reported else None

    def entry(self) -> dict[str, object]:
        """Return the entry for the decision log."""
        if not self.seconds:
            self.end()
        return {
            "expert": self.expert,
            "reason": self.reason,
            "status": self.status,
            "tokens_in": self.charge.tokens_in,
            "tokens_out": self.charge.tokens_out,
            "cached_tokens": self.charge.cached_tokens,
            "cost_usd": self.charge.dollars,
            "seconds": self.seconds,
        }


_REQUESTS = itertools.count(1)


class AttemptLog:
    """A record of all calls for a request so far, complete even if the client disconnects.

    Attributes:
        calls: Every call to an expert, in order.
        failures: Failures of experts that were called or skipped, in order.
        is_abandoned: Whether the client has left; then no other expert is called.
        waited: Seconds that were spent on calls until the first byte of a response.
        request: Unique number of the request.
    """

    __slots__ = ("calls", "failures", "is_abandoned", "request", "waited")

    def __init__(self) -> None:
        self.request = next(_REQUESTS)
        self.calls: list[AttemptRecord] = []
        self.failures: list[AttemptFailure] = []
        self.is_abandoned = False
        self.waited = 0.0

    def abandon(self) -> None:
        """Record that the client has left."""
        self.is_abandoned = True

    def start(self, call: AttemptRecord) -> None:
        """Add a call to an expert."""
        self.calls.append(call)

    def fail(
        self,
        expert: str,
        reason: str,
        status: int | None = None,
        retry_after: float | None = None,
        detail: str = "",
    ) -> None:
        """Add a failure."""
        for call in self.calls:
            if call.expert == expert and not call.seconds:
                call.end(reason, status)
        self.failures.append(AttemptFailure(expert, reason, status, retry_after, detail))


class Attempt:
    """A call whose response can be forwarded; it must be closed.

    Args:
        expert: The expert that responded.
        response: The response: complete, or a stream from its first bytes on.
        started: When the call began, on the clock of the circuit.
        call: Its record.
        request: Number of the request.
    """

    __slots__ = ("_request", "_started", "call", "expert", "response")

    def __init__(
        self,
        expert: UpstreamExpert,
        response: UpstreamResponse,
        started: float,
        call: AttemptRecord,
        request: int,
    ) -> None:
        self._request = request
        self.expert = expert
        self.response = response
        self._started = started
        self.call = call

    async def read(self) -> list[Event]:
        """Return the next events of a stream, as :meth:`UpstreamResponse.read` does."""
        events = await self.response.read()
        if self.call.span is not None:
            self.call.span.read(b"".join([event.raw for event in events]))
        return events

    def charge(self, parsed: ParsedRequest) -> Charge:
        """Charge the call for the part of its response that has arrived."""
        response = self.response
        charge = charge_of_call(
            self.expert, parsed, "answered", usage=response.usage, size=response.size
        )
        self.call.charge = charge
        if not self.call.seconds:
            self.call.end()
        return charge

    def record_failure(self) -> None:
        """Record that the response was cut short."""
        self.expert.record_failure(self._started, self._request)

    def close(self) -> None:
        """Close the response."""
        self.response.close()


class Failover:
    """Calls the experts of a decision until one responds.

    If all have failed, those whose failure may pass are called again after a short pause, in as
    many rounds as the settings and the deadline allow and for at most a fifth of recent requests.
    An expert whose circuit is open gets only its probes, unless another expert has just failed for
    the same request. If all circuits are open, the request waits for the next probe, or is
    rejected at once if the probe is too far off or too many requests wait.

    Args:
        clock: Clock of the circuits.
        now: Seconds since 1970, for dates in Retry-After.
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
            is_look: Whether other experts can serve the request if these fail, so that none of
                them is called again, or while its circuit is open.
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
        """When a request that begins now must have its response, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + self._config.timeout

    async def _call_each(self, names: Sequence[str], calls: _Calls) -> Attempt | None:
        if self._config.hedge_delay is not None and len(names) > 1:
            return await self._hedged(names, calls)
        loop = asyncio.get_running_loop()
        for name in names:
            if loop.time() >= calls.deadline:
                break
            attempt = await self._try(name, calls)
            if attempt is not None:
                return attempt
        return None

    def _next_round(self, calls: _Calls) -> tuple[Sequence[str], float]:
        """Return the experts to call again, if any, and the seconds to wait before."""
        last = {failure.expert: failure for failure in calls.log.failures}
        pause = random.uniform(*_PAUSES)  # noqa: S311
        left = calls.deadline - asyncio.get_running_loop().time()
        pauses = {
            name: self._pause_before(last[name], pause)
            for name in calls.names
            if name in last and last[name].reason in _TRANSIENT
        }
        pause = min(pauses.values(), default=left)
        if pause >= min(left, _MAX_PAUSE):
            return (), 0.0
        return [name for name, seconds in pauses.items() if seconds <= pause], pause

    def _pause_before(self, failure: AttemptFailure, pause: float) -> float:
        """Seconds until an expert may be called again, at least the given ones."""
        breaker = self._pool.find(failure.expert).breaker
        if breaker.state == "open":
            return breaker.retry_after + pause
        is_limited = failure.reason == _RATE_LIMITED
        return max(pause, failure.retry_after or 0.0) if is_limited else pause

    async def _hedged(self, names: Sequence[str], calls: _Calls) -> Attempt | None:
        """Call the next expert in parallel whenever none has responded for a while.

        It is called at once when all that were called have failed.
        """
        waiting = list(names)
        running: dict[asyncio.Task[Attempt | None], str] = {}
        loop = asyncio.get_running_loop()
        try:
            while (waiting and loop.time() < calls.deadline) or running:
                if waiting and loop.time() < calls.deadline:
                    name = waiting.pop(0)
                    running[loop.create_task(self._try(name, calls))] = name
                done, _ = await asyncio.wait(
                    running,
                    timeout=self._config.hedge_delay if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in sorted(done, key=lambda task: names.index(running[task])):
                    attempt = task.result()
                    del running[task]
                    if attempt is not None:
                        return attempt
        finally:
            # Nothing is awaited here: a client that goes away meanwhile would take the response
            # that was found with it.
            for task, name in running.items():
                calls.log.fail(name, "hedged")
                task.cancel()
                task.add_done_callback(close_result)
        return None

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
            if call.span is not None:
                call.span.read(response.body)
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
        """Return why a response is not forwarded; empty if it is."""
        flaw = response.flaw
        if flaw is not None:
            return flaw.reason
        reason = classify_response(
            response.status, response.headers, response.body, is_complete=not response.has_events
        )
        if response.status in _TOO_LONG and _is_too_long(response.body):
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
        if reason == _RATE_LIMITED:
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
        is_retry: Whether all of them have been called before.
        context: Tokens that were too few for the request, or ``None``.
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
    """Return whether a complete answer missed the deadline, which is not the expert's fault."""
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


def close_result(task: asyncio.Task[Attempt | None]) -> None:
    """Close the response of a task that finished before the cancellation."""
    if not task.cancelled() and task.exception() is None:
        attempt = task.result()
        if attempt is not None:
            attempt.close()


def error_from_failures(failures: Sequence[AttemptFailure]) -> APIError:
    """Return the client's error if no expert responded: who was called, and why each failed.

    Args:
        failures: Failures in order; empty if there was no time to call an expert.
    """
    if not failures:
        return APIError(
            504,
            "no expert answered: the time of the request was over before one could be asked; send"
            " it again.",
        )
    # The last failure of each expert, apart from circuits that opened because of a failure.
    last: dict[str, AttemptFailure] = {}
    for failure in failures:
        if failure.reason != "circuit_open" or failure.expert not in last:
            last[failure.expert] = failure
    causes = "; ".join(
        f"{failure.expert} {FAILURE_REASONS.get(failure.reason, 'failed')}"
        + (f" ({failure.detail.rstrip('.')})" if failure.detail else "")
        for failure in last.values()
    )
    waits = [failure.retry_after for failure in failures if failure.retry_after is not None]
    # Another request helps only if no other expert could have served this one.
    called = [failure for failure in last.values() if failure.reason != _UNSUPPORTED]
    return APIError(
        _status_of((called or [*last.values()])[-1]),
        f"no expert answered: {causes}.",
        code=None if called else _UNSUPPORTED,
        retry_after=min(waits, default=None),
    )


def _status_of(failure: AttemptFailure) -> int:
    status = failure.status
    if failure.reason == "misconfigured" or status is None or status < 400:
        return _STATUS_OF_REASON.get(failure.reason, 502)
    return status if status in (408, 429) or 500 <= status < 600 else 502
