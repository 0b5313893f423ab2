"""OpenTelemetry traces of requests.

Each request is one span that contains its decision and each attempt, but never any text of a
request. The trace continues from the client's ``traceparent`` to the expert. Baggage is not
forwarded: it may contain data that external experts should not see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, NamedTuple

from mildroute.decision.log import DecisionRecord
from mildroute.exceptions import MissingExtraError

__all__ = ["OPERATIONS", "AttemptSpan", "CallTarget", "RequestSpan", "Tracing", "otlp_provider"]


# Attribute names follow OpenTelemetry's conventions for generative AI (semantic-conventions-genai,
# 2026) and for HTTP (1.44).

# Names of operations, by path.
OPERATIONS = {
    "chat/completions": "chat",
    "completions": "text_completion",
    "responses": "chat",
    "embeddings": "embeddings",
    "messages": "chat",
    "messages/count_tokens": "count_tokens",
}
_SERVER_ERROR = 500


class CallTarget(NamedTuple):
    """The purpose and the destination of a call.

    Args:
        operation: Operation, such as ``"chat"``.
        provider: Provider, such as ``"openai"``.
        model: Model name sent to the expert.
        address: Host of the expert.
        port: Port of the expert.
    """

    operation: str = ""
    provider: str = ""
    model: str = ""
    address: str = ""
    port: str = ""


class Tracing:
    """A source of spans, active if OpenTelemetry is installed and a provider is set.

    Otherwise, no span is started and there is no overhead.

    Args:
        provider: A ``TracerProvider``; ``None`` uses the one that is set for the process.
        clock: Returns nanoseconds since 1970.

    Attributes:
        is_enabled: Whether spans are recorded. If they are not, forward the client's own
            ``traceparent`` unchanged.
    """

    __slots__ = ("_clock", "_library", "_provider", "is_enabled")

    def __init__(self, provider: Any = None, *, clock: Callable[[], int] = time_ns) -> None:
        self._library = _load_library(provider)
        self._provider = provider
        self._clock = clock
        self.is_enabled = self._library is not None

    def start(self, path: str, headers: Mapping[str, str], key: str = "") -> RequestSpan | None:
        """Start the span of a request; return ``None`` if tracing is off.

        Args:
            path: Path of the request, such as ``"chat/completions"``.
            headers: The client's headers, with lowercase names; only ``traceparent`` and
                ``tracestate`` are read.
            key: Name of the client's key; empty without one.
        """
        if self._library is None:
            return None
        return RequestSpan(self._library, self._clock, path, headers, key)

    def close(self) -> None:
        """Shut down the provider passed to the constructor, which sends the remaining spans."""
        if self._provider is not None:
            self._provider.shutdown()
            self._provider = None


def otlp_provider(service: str = "mildroute") -> Any:
    """Return a provider that exports spans over OTLP/HTTP.

    The standard variables such as ``OTEL_EXPORTER_OTLP_ENDPOINT`` configure it. Call its
    ``shutdown()`` at the end to send the remaining spans.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtraError.for_package(
            "opentelemetry", extra="otel", user="tracing"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class _Library:
    """The parts of OpenTelemetry that spans need, imported once."""

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
    if provider is None:
        provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return _Library(trace, TraceContextTextMapPropagator(), provider.get_tracer("mildroute"))


class RequestSpan:
    """The span of one request."""

    __slots__ = ("_clock", "_context", "_library", "_span", "_started")

    def __init__(
        self,
        library: _Library,
        clock: Callable[[], int],
        path: str,
        headers: Mapping[str, str],
        key: str = "",
    ) -> None:
        self._library = library
        self._clock = clock
        self._started = clock()
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        route = f"/v1/{path}"
        attributes = {"http.request.method": "POST", "http.route": route, "url.path": route}
        if key:
            attributes["mildroute.key"] = key
        self._span = library.tracer.start_span(
            f"POST {route}",
            context=library.propagator.extract(carrier) if carrier else None,
            kind=library.api.SpanKind.SERVER,
            attributes=attributes,
            start_time=self._started,
        )
        self._context = library.api.set_span_in_context(self._span)

    @property
    def trace_id(self) -> str:
        """Return the id of the trace, as 32 hexadecimal digits."""
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

    def attempt(self, expert: str, target: CallTarget, *, is_stream: bool) -> AttemptSpan:
        """Start the span of a call to an expert."""
        return AttemptSpan(
            self._library, self._clock, self._context, expert, target, is_stream=is_stream
        )

    def end(self, record: DecisionRecord) -> None:
        """End the span of the request."""
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
            span.set_attribute("error.type", str(record.status))
            span.set_status(self._library.api.StatusCode.ERROR)
        span.end(self._clock())


class AttemptSpan:
    """The span of one call to an expert, from its start to the last byte of the response.

    Attributes:
        headers: Headers to send so that the expert's own spans join the trace.
    """

    __slots__ = ("_clock", "_library", "_span", "headers")

    def __init__(
        self,
        library: _Library,
        clock: Callable[[], int],
        context: Any,
        expert: str,
        target: CallTarget,
        *,
        is_stream: bool,
    ) -> None:
        self._library = library
        self._clock = clock
        attributes: dict[str, Any] = {
            "mildroute.expert": expert,
            "gen_ai.operation.name": target.operation,
            "gen_ai.provider.name": target.provider,
            "gen_ai.request.model": target.model,
            "server.address": target.address,
        }
        if target.port:
            attributes["server.port"] = int(target.port)
        if is_stream:
            attributes["gen_ai.request.stream"] = True
        self._span = library.tracer.start_span(
            f"{target.operation} {target.model}",
            context=context,
            kind=library.api.SpanKind.CLIENT,
            attributes=attributes,
            start_time=clock(),
        )
        self.headers: dict[str, str] = {}
        library.propagator.inject(self.headers, library.api.set_span_in_context(self._span))

    def end(
        self,
        *,
        status: int = 0,
        error_type: str = "",
        tokens: tuple[int, int] | None = None,
        cached_tokens: int = 0,
        first_chunk: float | None = None,
    ) -> None:
        """End the span, including token counts if the response reported them.

        The span never contains the text of an error, which may quote the request.
        """
        attributes: dict[str, Any] = {}
        if status:
            attributes["http.response.status_code"] = status
        if tokens is not None:
            attributes["gen_ai.usage.input_tokens"] = tokens[0]
            attributes["gen_ai.usage.output_tokens"] = tokens[1]
        if cached_tokens:
            attributes["gen_ai.usage.cache_read.input_tokens"] = cached_tokens
        if first_chunk is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = first_chunk
        if error_type:
            attributes["error.type"] = error_type
            self._span.set_status(self._library.api.StatusCode.ERROR)
        self._span.set_attributes(attributes)
        self._span.end(self._clock())
