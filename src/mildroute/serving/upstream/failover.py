"""Failover: the next expert after a failure, hedged calls, and what counts as a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mildroute.experts.retry import retry_after
from mildroute.serving.config import GatewayConfig
from mildroute.serving.context import RequestContext
from mildroute.serving.http.request import Header
from mildroute.serving.observability.tracing import AttemptSpan
from mildroute.serving.upstream._http1 import Connection, Deadlines, UpstreamError
from mildroute.serving.upstream.client import UpstreamClient
from mildroute.serving.upstream.pool import ExpertPool, UpstreamExpert

__all__ = ["REFUSED", "AttemptFailure", "Failover", "UpstreamResponse", "classify_response"]


# What an expert's answer means for the request: pass it on, or ask the next expert.


REFUSED = "rate"
"""Said of an expert that is well but over its rate."""

_OF_STATUS = {
    **dict.fromkeys((401, 402, 403, 404, 405, 407, 421), "misconfigured"),
    408: "timeout",
    429: REFUSED,
}


def classify_response(status: int, headers: list[Header], body: bytes, *, is_whole: bool) -> str:
    """Why an answer is not passed on; empty if it is.

    A 4xx is the client's own affair and is passed on, but for those that say that the gateway calls the expert wrongly: with a bad key,
    without money, or at an address or for a model that is not there. Redirects are not followed.

    Args:
        status: Of the answer.
        headers: Of the answer.
        body: What is there of it.
        is_whole: Whether that is all.

    Returns:
        One of few words.

    Example:
        >>> [classify_response(*answer, is_whole=True) for answer in ((401, [], b""), (422, [], b"{}"), (200, [], b""))]
        ['misconfigured', '', 'malformed']
    """
    if 200 <= status < 300:
        return "malformed" if is_whole and _is_cut(headers, body) else ""
    if 400 <= status < 500:
        return _OF_STATUS.get(status, "")
    return "5xx" if 500 <= status < 600 else "redirect" if 300 <= status < 400 else "malformed"


def _is_cut(headers: list[Header], body: bytes) -> bool:
    """Whether an answer has no body, or one that is called JSON and cannot be; a cheap look at both ends."""
    kind = b""
    for name, value in headers:
        if name == b"content-encoding" and value != b"identity":
            return not body
        if name == b"content-type":
            kind = value
    if not kind.startswith(b"application/json"):
        return not body
    ends = body.strip()
    return ends[:1] + ends[-1:] not in (b"{}", b"[]")


# Experts are asked one after the other, or one besides the other, until one answers.


_OF_THE_REQUEST = ("busy", "oversize")
_PERHAPS_OF_THE_REQUEST = (403, 404, 405)


@dataclass(frozen=True)
class AttemptFailure:
    """An expert that did not answer.

    Args:
        expert: Its name.
        why: One of few words.
        status: Of its error, or none if there was none.
        retry_after: Seconds for which it wants to be left alone, or none.

    Example:
        >>> AttemptFailure("small", "timeout").status is None
        True
    """

    expert: str
    why: str
    status: int | None = None
    retry_after: float | None = None


class UpstreamResponse:
    """An answer that is worth passing on; whole, or from its first bytes on.

    Args:
        upstream: From where it comes.
        candidate: Who answers.
        connection: Over which it comes; :meth:`release` it in any case.
        started: When the expert was asked, on its circuit's clock.

    Attributes:
        body: What is there of it, without our key if it is an error.
    """

    __slots__ = ("_upstream", "body", "candidate", "connection", "started")

    def __init__(self, upstream: UpstreamClient, candidate: UpstreamExpert, connection: Connection, started: float) -> None:
        self._upstream, self.candidate, self.connection, self.started = upstream, candidate, connection, started
        self.body = b""

    def failure_reason(self) -> str:
        """Take what is there of it, and say why it is not worth passing on; empty if it is."""
        connection, body = self.connection, self.connection.take()
        self.body = body if connection.status < 400 else self._upstream.scrubbed(body)
        return classify_response(connection.status, connection.headers, body, is_whole=connection.is_whole)

    def headers(self) -> list[Header]:
        """What the client is told of its headers."""
        return self._upstream.forward_response_headers(self.connection.headers)

    def release(self) -> None:
        """Be done with it."""
        self._upstream.release(self.connection)


class Failover:
    """Asks the experts of a decision.

    Args:
        pool: Who there is.
        settings: How long and how often to try.
        told: Called with the name of an expert that failed before its first byte, and why.
        clock: That of the circuits.
        now: Seconds since 1970, for dates in Retry-After.

    Example:
        >>> from pathlib import Path
        >>> from mildroute.experts.config import ExpertFile
        >>> Failover(ExpertPool(ExpertFile(Path("experts.yaml"), ()), GatewayConfig()), GatewayConfig()).deadline(100.0)
        220.0
    """

    def __init__(
        self,
        pool: ExpertPool,
        settings: GatewayConfig,
        told: Callable[[str, str], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._pool, self._rules, self._limit = pool, settings.failover, settings.limits.answer
        self._response_body, self._clock, self._now = told, clock, now

    def deadline(self, now: float) -> float:
        """When a request that has just arrived must be answered."""
        return now + self._rules.deadline

    async def call_first_available(self, context: RequestContext, deadline: float) -> UpstreamResponse | list[AttemptFailure]:
        """Ask until one answers; the failures of all who were asked if none does.

        Args:
            context: The request; its attempts are counted.
            deadline: On the clock of the loop.
        """
        names = context.decision.order[: self._rules.attempts]
        if self._rules.hedge_after is not None and len(names) > 1:
            return await self._besides(names, context, deadline)
        failures: list[AttemptFailure] = []
        for name in names:
            if asyncio.get_running_loop().time() >= deadline:
                break
            found = await self._try(name, context, deadline, is_last=name == names[-1])
            if isinstance(found, UpstreamResponse):
                return found
            failures.append(found)
        return failures

    async def _besides(self, names: Sequence[str], context: RequestContext, deadline: float) -> UpstreamResponse | list[AttemptFailure]:
        """Ask the next one besides whenever nobody has answered for a while, or at once when all who were asked have failed."""
        left, failures = list(names), []
        running: dict[asyncio.Task[UpstreamResponse | AttemptFailure], str] = {}
        loop = asyncio.get_running_loop()
        try:
            while (left and loop.time() < deadline) or running:
                if left and loop.time() < deadline:
                    name = left.pop(0)
                    running[loop.create_task(self._try(name, context, deadline, is_last=not left))] = name
                done, _ = await asyncio.wait(
                    running, timeout=self._rules.hedge_after if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in sorted(done, key=lambda task: names.index(running[task])):
                    found = task.result()
                    if isinstance(found, UpstreamResponse):
                        del running[task]
                        return found
                    failures.append(found)
                    del running[task]
        finally:
            self._call_off(running)
        return failures

    def _call_off(self, running: dict[asyncio.Task[UpstreamResponse | AttemptFailure], str]) -> None:
        """Nothing is awaited here: a client that goes away meanwhile would take the answer that was found with it."""
        for task, name in running.items():
            self._response_body(name, "hedged")
            task.cancel()
            task.add_done_callback(_let_go)

    async def _try(self, name: str, context: RequestContext, deadline: float, *, is_last: bool) -> UpstreamResponse | AttemptFailure:
        candidate = self._pool.candidates[name]
        # Who was down when it was chosen was chosen because nobody else is left.
        if not candidate.breaker.try_enter() and not is_last and name not in context.decision.excluded:
            return self._failure(name, "down")
        context.attempts += 1
        started, span = self._clock(), context.trace.attempt(name)
        try:
            return await self._parsed(candidate, context, deadline, started, span)
        except UpstreamError as error:
            self._count(candidate, error.why, None, started)
            span.end(why=error.why)
            return self._failure(name, error.why)
        except BaseException:
            candidate.given_up(started)
            span.end(why="cancelled")
            raise

    async def _parsed(
        self, candidate: UpstreamExpert, context: RequestContext, deadline: float, started: float, span: AttemptSpan
    ) -> UpstreamResponse | AttemptFailure:
        upstream, rules = candidate.upstream, self._rules
        if upstream is None:
            return self._failure(candidate.name, "misconfigured")
        first_by = min(asyncio.get_running_loop().time() + rules.first_byte, deadline)
        forwarded_headers = context.forwarded_headers
        if span.headers:
            forwarded_headers += "".join(f"{name}: {value}\r\n" for name, value in span.headers.items()).encode("latin-1", "replace")
        connection = await upstream.ask(context.parsed, forwarded_headers, Deadlines(first_by, rules.idle, deadline, self._limit))
        answer = UpstreamResponse(upstream, candidate, connection, started)
        try:
            failure_reason = answer.failure_reason()
            span.end(status=connection.status, why=failure_reason or None)
            if not failure_reason:
                candidate.succeeded(started)
                return answer
        except BaseException:
            answer.release()
            raise
        answer.release()
        return self._flawed(candidate, connection, failure_reason, started)

    def _flawed(self, candidate: UpstreamExpert, connection: Connection, failure_reason: str, started: float) -> AttemptFailure:
        if failure_reason != REFUSED:
            self._count(candidate, failure_reason, connection.status, started)
            return self._failure(candidate.name, failure_reason, connection.status)
        wanted = next((value for name, value in connection.headers if name == b"retry-after"), None)
        seconds = None if wanted is None else retry_after(wanted.decode("latin-1"), self._now())
        return self._failure(candidate.name, failure_reason, connection.status, candidate.refused(started, seconds))

    def _count(self, candidate: UpstreamExpert, why: str, status: int | None, started: float) -> None:
        """A failure that a client can bring about by what it asks must not close the expert to the others."""
        if why in _OF_THE_REQUEST or status in _PERHAPS_OF_THE_REQUEST:
            candidate.given_up(started)
        else:
            candidate.failed(started)

    def _failure(self, expert: str, why: str, status: int | None = None, seconds: float | None = None) -> AttemptFailure:
        self._response_body(expert, why)
        return AttemptFailure(expert, why, status, seconds)


def _let_go(task: asyncio.Task[UpstreamResponse | AttemptFailure]) -> None:
    """An answer may have come before the task could be cancelled."""
    if not task.cancelled() and task.exception() is None:
        found = task.result()
        if isinstance(found, UpstreamResponse):
            found.release()
