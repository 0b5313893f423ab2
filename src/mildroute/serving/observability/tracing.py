"""Traces of requests by OpenTelemetry.

One span a request, with its decision and each attempt in it; never any text of a request. The trace
goes on from the client's ``traceparent`` and on to the expert. Baggage is not forwarded: it may
hold what experts outside the house should not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any

from mildroute.exceptions import MissingExtraError
from mildroute.serving.observability.decision_log import DecisionRecord

__all__ = ["AttemptSpan", "RequestSpan", "Tracing", "otlp_provider"]


_SERVER_ERROR = 500


class Tracing:
    """Starts spans, if OpenTelemetry is installed and a provider is given or has been set.

    Otherwise it starts none, and costs nothing.

    Args:
        provider: A ``TracerProvider``, or none for the one that the process has set before.
        clock: Nanoseconds since 1970.

    Attributes:
        is_enabled: Whether spans are recorded. If they are not, forward the client's own
            ``traceparent`` as it is.
    """

    __slots__ = ("_clock", "_library", "_provider", "is_enabled")

    def __init__(self, provider: Any = None, *, clock: Callable[[], int] = time_ns) -> None:
        self._library = _load_library(provider)
        self._provider = provider
        self._clock = clock
        self.is_enabled = self._library is not None

    def start(self, path: str, headers: Mapping[str, str]) -> RequestSpan | None:
        """Start the span of a request, or none.

        Args:
            path: What was called, such as ``"chat/completions"``.
            headers: Of the client, names in lower case; only ``traceparent`` and ``tracestate`` are
                read.
        """
        if self._library is None:
            return None
        return RequestSpan(self._library, self._clock, path, headers)

    def close(self) -> None:
        """Send what is left, if a provider was given."""
        if self._provider is not None:
            self._provider.shutdown()


def otlp_provider(service: str = "mildroute") -> Any:
    """A provider that sends spans by OTLP over HTTP.

    It is set up by the standard variables such as ``OTEL_EXPORTER_OTLP_ENDPOINT``. Call its
    ``shutdown()`` at the end, which sends what is left.
    """
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from mildroute.serving.observability.otlp import OtlpExporter
    except ImportError as error:
        raise MissingExtraError.for_package(
            "opentelemetry", extra="otel", user="tracing"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OtlpExporter()))
    return provider


class _Library:
    """What spans need of OpenTelemetry, looked up once."""

    __slots__ = ("api", "propagator", "tracer")

    def __init__(self, api: Any, propagator: Any, tracer: Any) -> None:
        self.api = api
        self.propagator = propagator
        self.tracer = tracer


def _load_library(provider: Any) -> _Library | None:
    try:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    used = trace.get_tracer_provider() if provider is None else provider
    if isinstance(used, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return _Library(trace, TraceContextTextMapPropagator(), used.get_tracer("mildroute"))


class RequestSpan:
    """The span of one request."""

    __slots__ = ("_clock", "_context", "_library", "_span", "_started")

    def __init__(
        self, library: _Library, clock: Callable[[], int], path: str, headers: Mapping[str, str]
    ) -> None:
        self._library = library
        self._clock = clock
        self._started = clock()
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        self._span = library.tracer.start_span(
            f"mildroute {path}",
            context=library.propagator.extract(carrier) if carrier else None,
            kind=library.api.SpanKind.SERVER,
            attributes={"mildroute.path": path},
            start_time=self._started,
        )
        self._context = library.api.set_span_in_context(self._span)

    @property
    def trace_id(self) -> str:
        """Of the trace, in 32 hexadecimal digits."""
        return f"{self._span.get_span_context().trace_id:032x}"

    def decided(self, expert: str, reason: str) -> None:
        """Record the span of the decision, which began with the request."""
        span = self._library.tracer.start_span(
            "mildroute.decision",
            context=self._context,
            attributes={"mildroute.expert": expert, "mildroute.reason": reason},
            start_time=self._started,
        )
        span.end(self._clock())

    def attempt(self, expert: str) -> AttemptSpan:
        """Start the span of a call of an expert."""
        return AttemptSpan(self._library, self._clock, self._context, expert)

    def end(self, record: DecisionRecord) -> None:
        """The response has ended."""
        span = self._span
        span.set_attributes(
            {
                "mildroute.decision_id": record.decision_id,
                "mildroute.expert": record.served_by,
                "mildroute.reason": record.reason,
                "mildroute.attempts": len(record.attempts),
                "http.response.status_code": record.status,
                "gen_ai.usage.input_tokens": record.tokens_in,
                "gen_ai.usage.output_tokens": record.tokens_out,
            }
        )
        if record.status >= _SERVER_ERROR:
            span.set_status(self._library.api.StatusCode.ERROR)
        span.end(self._clock())


class AttemptSpan:
    """The span of one call of one expert.

    Attributes:
        headers: What to send along, so that the expert's own spans join the trace.
    """

    __slots__ = ("_clock", "_library", "_span", "headers")

    def __init__(
        self, library: _Library, clock: Callable[[], int], context: Any, expert: str
    ) -> None:
        self._library = library
        self._clock = clock
        self._span = library.tracer.start_span(
            "mildroute.attempt",
            context=context,
            kind=library.api.SpanKind.CLIENT,
            attributes={"mildroute.expert": expert},
            start_time=clock(),
        )
        self.headers: dict[str, str] = {}
        library.propagator.inject(self.headers, library.api.set_span_in_context(self._span))

    def end(self, *, status: int | None = None, reason: str | None = None) -> None:
        """End it with a status, or with a reason such as ``"timeout"``.

        Never with the text of an error, which may quote the request.
        """
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
        if reason is not None:
            self._span.set_attribute("error.type", reason)
        if reason is not None or (status is not None and status >= _SERVER_ERROR):
            self._span.set_status(self._library.api.StatusCode.ERROR)
        self._span.end(self._clock())
