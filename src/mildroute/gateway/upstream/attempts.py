"""Calls to experts for one request, and their record."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.observability.tracing import AttemptSpan, CallTarget
from mildroute.gateway.upstream.base import UpstreamResponse
from mildroute.gateway.upstream.charge import Charge, charge_of_call
from mildroute.gateway.upstream.pool import UpstreamExpert

__all__ = ["Attempt", "AttemptFailure", "AttemptLog", "AttemptRecord", "close_result"]


@dataclass(frozen=True)
class AttemptFailure:
    """An expert that did not serve a request.

    Args:
        expert: Name of the expert.
        reason: One of :data:`~mildroute.gateway.upstream.failures.FAILURE_REASONS`.
        status: HTTP status of its error, or ``None``.
        retry_after: Seconds for which it gets no call, or ``None``.
        detail: Explanation for the client of why it cannot serve the request; may be empty.
    """

    expert: str
    reason: str
    status: int | None = None
    retry_after: float | None = None
    detail: str = ""


class AttemptRecord:
    """One call to an expert, for the decision log.

    Attributes:
        reason: Reason for the failure; empty without one.
        status: HTTP status of its response; 0 without a response.
        charge: Tokens and dollars charged for the call.
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
        """Return the reported tokens of request and response, or ``None``."""
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
        is_abandoned: Whether the client has disconnected, so that no other expert is called.
        waited: Seconds spent on calls before the first byte of a response.
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
        """Record that the client has disconnected."""
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
    """A call whose response can be forwarded. It must be closed.

    Args:
        expert: The expert that responded.
        response: The response: complete, or a stream from its first bytes on.
        started: Time at which the call began, on the clock of the circuit.
        call: Its record.
        request: Unique number of the request.
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


def close_result(task: asyncio.Task[Attempt | None]) -> None:
    """Close the response of a task that finished before the cancellation."""
    if not task.cancelled() and task.exception() is None:
        attempt = task.result()
        if attempt is not None:
            attempt.close()
