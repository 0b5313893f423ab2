"""Traces of requests by OpenTelemetry: one span a request, with its decision and each attempt in it; never a word of what was asked.

The trace goes on from the client's ``traceparent`` and on to the expert. Baggage is not passed on: it may hold what experts outside the
house should not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any

from mildroute.exceptions import MissingExtraError
from mildroute.serving.observability.decision_log import DecisionRecord
from mildroute.serving.routing.policy import Decision

__all__ = ["AttemptSpan", "RequestSpan", "Tracing", "otlp_provider"]


_NO_HEADERS: Mapping[str, str] = {}
_FAILED = 500


class AttemptSpan:
    """One call of one expert; this one leaves no trace.

    Attributes:
        headers: What to send along, so that the expert's own spans join the trace.

    Example:
        >>> AttemptSpan().end(status=200)
    """

    __slots__ = ()
    headers: Mapping[str, str] = _NO_HEADERS

    def end(self, *, status: int | None = None, why: str | None = None) -> None:
        """It is over: with a status, or for a reason in one word such as ``"timeout"``; texts of errors may quote what was asked."""


class RequestSpan:
    """One request; this one leaves no trace.

    Example:
        >>> trace = RequestSpan()
        >>> trace.attempt("small").headers
        {}
    """

    __slots__ = ()

    def decided(self, decision: Decision) -> None:
        """It is settled whom to ask; the span of the decision began with the request."""

    def attempt(self, expert: str) -> AttemptSpan:  # noqa: ARG002
        """An expert is being asked."""
        return _NO_ATTEMPT

    def end(self, record: DecisionRecord) -> None:
        """The answer has ended."""


_NO_ATTEMPT, _NO_TRACE = AttemptSpan(), RequestSpan()


class Tracing:
    """Begins traces, if OpenTelemetry is installed and a provider is given or has been set; else it does nothing, at no cost.

    Args:
        provider: A ``TracerProvider``, or none for the one that the process has set before.
        clock: Nanoseconds since 1970.

    Attributes:
        is_on: Whether traces are kept. Where they are not, pass on the client's own ``traceparent`` as it is.

    Example:
        >>> tracing = Tracing()
        >>> tracing.is_on
        False
        >>> tracing.begin("chat/completions", {}).decided(Decision(("small",), "router"))
    """

    __slots__ = ("_clock", "_provider", "_tools", "is_on")

    def __init__(self, provider: Any = None, *, clock: Callable[[], int] = time_ns) -> None:
        self._tools, self._provider = _tools(provider), provider
        self._clock = clock
        self.is_on = self._tools is not None

    def begin(self, path: str, headers: Mapping[str, str]) -> RequestSpan:
        """A request has arrived.

        Args:
            path: What was called, such as ``"chat/completions"``.
            headers: Of the client, names in lower case; only ``traceparent`` and ``tracestate`` are read.
        """
        return _NO_TRACE if self._tools is None else _LiveTrace(self._tools, self._clock, path, headers)

    def close(self) -> None:
        """Send what is left, if a provider was given."""
        if self._provider is not None:
            self._provider.shutdown()


def otlp_provider(service: str = "mildroute") -> Any:
    """A provider that sends spans by OTLP over HTTP, set up by the standard variables such as ``OTEL_EXPORTER_OTLP_ENDPOINT``.

    Call its ``shutdown()`` at the end, which sends what is left.

    Example:
        >>> provider = otlp_provider("gateway")
        >>> provider.resource.attributes["service.name"]
        'gateway'
        >>> provider.shutdown()
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtraError.for_package("opentelemetry", extra="otel", user="tracing") from error
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class _Tools:
    """What a live trace needs of the library, looked up once."""

    __slots__ = ("api", "propagator", "tracer")

    def __init__(self, api: Any, propagator: Any, tracer: Any) -> None:
        self.api, self.propagator, self.tracer = api, propagator, tracer


def _tools(provider: Any) -> _Tools | None:
    try:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    used = trace.get_tracer_provider() if provider is None else provider
    if isinstance(used, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return _Tools(trace, TraceContextTextMapPropagator(), used.get_tracer("mildroute"))


class _LiveTrace(RequestSpan):
    __slots__ = ("_began", "_clock", "_inside", "_span", "_tools")

    def __init__(self, tools: _Tools, clock: Callable[[], int], path: str, headers: Mapping[str, str]) -> None:
        self._tools, self._clock, self._began = tools, clock, clock()
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        self._span = tools.tracer.start_span(
            f"mildroute {path}",
            context=tools.propagator.extract(carrier) if carrier else None,
            kind=tools.api.SpanKind.SERVER,
            attributes={"mildroute.path": path},
            start_time=self._began,
        )
        self._inside = tools.api.set_span_in_context(self._span)

    def decided(self, decision: Decision) -> None:
        attributes = {"mildroute.expert": decision.expert or "", "mildroute.reason": decision.reason}
        span = self._tools.tracer.start_span("mildroute.decision", context=self._inside, attributes=attributes, start_time=self._began)
        span.end(self._clock())

    def attempt(self, expert: str) -> AttemptSpan:
        return _LiveAttempt(self._tools, self._clock, self._inside, expert)

    def end(self, record: DecisionRecord) -> None:
        span = self._span
        span.set_attributes(
            {
                "mildroute.decision_id": record.decision_id,
                "mildroute.expert": record.answered,
                "mildroute.reason": record.reason,
                "mildroute.attempts": record.attempts,
                "http.response.status_code": record.status,
                "gen_ai.usage.input_tokens": record.tokens_in,
                "gen_ai.usage.output_tokens": record.tokens_out,
            }
        )
        if record.status >= _FAILED:
            span.set_status(self._tools.api.StatusCode.ERROR)
        span.end(self._clock())


class _LiveAttempt(AttemptSpan):
    __slots__ = ("_clock", "_span", "_tools", "headers")

    def __init__(self, tools: _Tools, clock: Callable[[], int], inside: Any, expert: str) -> None:
        self._tools, self._clock = tools, clock
        self._span = tools.tracer.start_span(
            "mildroute.attempt",
            context=inside,
            kind=tools.api.SpanKind.CLIENT,
            attributes={"mildroute.expert": expert},
            start_time=clock(),
        )
        self.headers: dict[str, str] = {}
        tools.propagator.inject(self.headers, tools.api.set_span_in_context(self._span))

    def end(self, *, status: int | None = None, why: str | None = None) -> None:
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
        if why is not None:
            self._span.set_attribute("error.type", why)
        if why is not None or (status is not None and status >= _FAILED):
            self._span.set_status(self._tools.api.StatusCode.ERROR)
        self._span.end(self._clock())
