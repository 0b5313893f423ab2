"""Sends spans by OTLP over HTTP, as JSON.

OpenTelemetry's own exporter would work, but adds ten packages to the gateway's image, including
requests, urllib3 and protobuf. The gateway's spans have neither events nor links, so their JSON
form is short; every collector accepts it at the same address (OTLP 1.0 and later).
"""

from __future__ import annotations

import gzip
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any
from urllib.parse import unquote

import httpx
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mildroute import __version__
from mildroute.exceptions import ArgumentError

__all__ = ["OtlpExporter", "encode_spans"]

_DEFAULT_ENDPOINT = "http://localhost:4318"
_DEFAULT_TIMEOUT = "10"
# What the protocol calls retryable; any other status will not get better.
_RETRYABLE = frozenset({429, 502, 503, 504})
_FIRST_WAIT = 0.5


class OtlpExporter(SpanExporter):
    """Span exporter for a ``BatchSpanProcessor``, which calls it on a separate thread.

    ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``_HEADERS``, ``_TIMEOUT`` (seconds), ``_CERTIFICATE`` and
    ``_COMPRESSION`` (``gzip`` or ``none``) configure it; a name with ``TRACES_`` after ``OTLP_``
    takes precedence. A batch that the collector does not accept within the timeout is dropped.

    Args:
        environment: Environment with these variables.
        transport: Of httpx, for tests.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        found = os.environ if environment is None else environment
        self._url = _endpoint(found)
        self._timeout = _seconds(_variable(found, "TIMEOUT") or _DEFAULT_TIMEOUT)
        self._is_compressed = _variable(found, "COMPRESSION") == "gzip"
        self._client = httpx.Client(
            headers=dict(_headers(_variable(found, "HEADERS"), is_compressed=self._is_compressed)),
            verify=_trust(_variable(found, "CERTIFICATE")),
            transport=transport,
        )
        self._stopping = threading.Event()

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Send a batch; retry until the timeout while the collector is busy or unavailable."""
        body = json.dumps(encode_spans(spans), separators=(",", ":")).encode()
        is_sent = self._deliver(gzip.compress(body) if self._is_compressed else body)
        return SpanExportResult.SUCCESS if is_sent else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Stop retrying and close the connection."""
        self._stopping.set()
        self._client.close()

    def _deliver(self, body: bytes) -> bool:
        end = monotonic() + self._timeout
        wait = _FIRST_WAIT
        while (left := end - monotonic()) > 0:
            try:
                status = self._client.post(self._url, content=body, timeout=left).status_code
            except httpx.HTTPError:
                status = 503
            if status not in _RETRYABLE:
                return status < 300
            if wait >= end - monotonic() or self._stopping.wait(wait):
                return False
            wait *= 2
        return False


def encode_spans(spans: Sequence[Any]) -> dict[str, Any]:
    """Return the JSON form of an ``ExportTraceServiceRequest``.

    Args:
        spans: Ended spans of one provider and therefore of one resource.
    """
    by_scope: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for span in spans:
        scope = span.instrumentation_scope
        by_scope.setdefault((scope.name, scope.version or ""), []).append(_span(span))
    scopes = [
        {"scope": {"name": name, "version": version}, "spans": held}
        for (name, version), held in by_scope.items()
    ]
    resource = _attributes(spans[0].resource.attributes) if spans else []
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": scopes}]}


def _span(span: Any) -> dict[str, Any]:
    context = span.context
    coded = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "traceState": context.trace_state.to_header(),
        "name": span.name,
        # The library counts kinds from 0, the protocol from 1.
        "kind": span.kind.value + 1,
        # 64-bit numbers are strings in the protocol's JSON.
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes or {}),
        "status": {"code": span.status.status_code.value},
    }
    if span.parent is not None:
        coded["parentSpanId"] = f"{span.parent.span_id:016x}"
    return coded


def _attributes(named: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in named.items()]


# A bool is an int to Python, so it comes first.
_TYPES: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (bool, "boolValue", bool),
    (int, "intValue", str),
    (float, "doubleValue", float),
    (str, "stringValue", str),
)


def _value(value: Any) -> dict[str, Any]:
    for kind, name, coded in _TYPES:
        if isinstance(value, kind):
            return {name: coded(value)}
    return {"arrayValue": {"values": [_value(one) for one in value]}}


def _variable(environment: Mapping[str, str], name: str) -> str:
    of_traces = environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}")
    return of_traces or environment.get(f"OTEL_EXPORTER_OTLP_{name}", "")


def _endpoint(environment: Mapping[str, str]) -> str:
    """Use the address for traces as it is; append the path to the common one."""
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    common = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT_ENDPOINT
    url = own or f"{common.rstrip('/')}/v1/traces"
    if not url.startswith(("http://", "https://")):
        raise ArgumentError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT must begin with http:// or https://, got {url!r}; spans"
            " go by HTTP, usually to port 4318."
        )
    return url


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(
            f"OTEL_EXPORTER_OTLP_TIMEOUT must be a number of seconds, got {text!r}."
        ) from None


def _headers(text: str, *, is_compressed: bool) -> Iterator[tuple[str, str]]:
    """Parse the user's headers: comma-separated ``name=value`` with URL-encoded values."""
    yield "content-type", "application/json"
    yield "user-agent", f"mildroute/{__version__}"
    if is_compressed:
        yield "content-encoding", "gzip"
    for pair in filter(None, map(str.strip, text.split(","))):
        name, _, value = pair.partition("=")
        yield name.strip().lower(), unquote(value.strip())


def _trust(certificate: str) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=certificate) if certificate else True
