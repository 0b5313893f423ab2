"""Spans reach a collector as the protocol says, or are given up in time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from mildroute.exceptions import ArgumentError
from mildroute.gateway.observability import otlp
from mildroute.gateway.observability.otlp import OtlpExporter


class Collector:
    """Answers with the given statuses, then 200; keeps the requests."""

    def __init__(self, *statuses: int | Exception) -> None:
        self.statuses = list(statuses)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        status = self.statuses.pop(0) if self.statuses else 200
        if isinstance(status, Exception):
            raise status
        return httpx.Response(status, json={})


def exporter_to(answer: Callable[[httpx.Request], httpx.Response], **variables: str) -> Any:
    names = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
    return OtlpExporter(names, transport=httpx.MockTransport(answer))


def test_a_trace_has_the_form_that_the_protocol_asks_for() -> None:
    collector = Collector()
    provider = TracerProvider(
        resource=Resource({"service.name": "mildroute"}), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter_to(collector)))
    tracer = provider.get_tracer("mildroute")
    outer = tracer.start_span("request", kind=SpanKind.SERVER, start_time=1_000)
    inner = tracer.start_span("attempt", context=set_span_in_context(outer), start_time=2_000)
    inner.set_attributes({"n": 3, "share": 0.5, "on": True, "who": "small", "all": ["a", "b"]})
    inner.set_status(Status(StatusCode.ERROR))
    inner.end(3_000)
    outer.end(4_000)
    provider.shutdown()
    first, second = (json.loads(request.content) for request in collector.requests)
    ((resource,), (resource_2,)) = first["resourceSpans"], second["resourceSpans"]
    assert resource["resource"]["attributes"] == [
        {"key": "service.name", "value": {"stringValue": "mildroute"}}
    ]
    (scope,) = resource["scopeSpans"]
    assert scope["scope"]["name"] == "mildroute"
    (told,) = scope["spans"]
    parent = resource_2["scopeSpans"][0]["spans"][0]
    context = inner.get_span_context()
    assert (told["traceId"], told["spanId"]) == (
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
    )
    assert (told["parentSpanId"], told["traceId"]) == (parent["spanId"], parent["traceId"])
    assert "parentSpanId" not in parent
    # Kinds of the protocol: internal 1, server 2. Status: unset 0, error 2.
    assert [(one["kind"], one["status"]["code"]) for one in (told, parent)] == [(1, 2), (2, 0)]
    assert (told["startTimeUnixNano"], told["endTimeUnixNano"]) == ("2000", "3000")
    assert {one["key"]: one["value"] for one in told["attributes"]} == {
        "n": {"intValue": "3"},
        "share": {"doubleValue": 0.5},
        "on": {"boolValue": True},
        "who": {"stringValue": "small"},
        "all": {"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": "b"}]}},
    }


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, "http://localhost:4318/v1/traces"),
        ({"ENDPOINT": "https://otel.example:4318/"}, "https://otel.example:4318/v1/traces"),
        ({"ENDPOINT": "http://a", "TRACES_ENDPOINT": "http://b/here"}, "http://b/here"),
    ],
)
def test_the_standard_variables_say_where_spans_go(variables: dict[str, str], url: str) -> None:
    collector = Collector()
    assert exporter_to(collector, **variables).export([]) is SpanExportResult.SUCCESS
    assert str(collector.requests[0].url) == url


def test_headers_and_compression_are_the_user_s() -> None:
    collector = Collector()
    exporter_to(collector, HEADERS="api-key=a%20b, X-Team = c ", COMPRESSION="gzip").export([])
    (request,) = collector.requests
    assert (request.headers["api-key"], request.headers["x-team"]) == ("a b", "c")
    assert request.headers["content-type"] == "application/json"
    assert "resourceSpans" in json.loads(gzip.decompress(request.content))


@pytest.mark.parametrize("status", [503, 429, httpx.ConnectError("refused")])
def test_a_collector_that_is_away_is_asked_again(
    status: int | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_FIRST_WAIT", 0.001)
    collector = Collector(status, status)
    assert exporter_to(collector).export([]) is SpanExportResult.SUCCESS
    assert len(collector.requests) == 3


def test_what_will_not_get_better_is_given_up_at_once_and_the_rest_at_the_timeout() -> None:
    refusing, busy = Collector(400), Collector(*[503] * 99)
    assert exporter_to(refusing).export([]) is SpanExportResult.FAILURE
    # The first wait is half a second, longer than there is time.
    assert exporter_to(busy, TIMEOUT="0.2").export([]) is SpanExportResult.FAILURE
    assert len(refusing.requests) == len(busy.requests) == 1


def test_after_the_end_nothing_is_tried_again() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        exporter._stopping.set()
        return httpx.Response(503)

    exporter = exporter_to(answer)
    assert exporter.export([]) is SpanExportResult.FAILURE
    exporter.shutdown()


@pytest.mark.parametrize(
    ("variables", "rule"),
    [({"ENDPOINT": "collector:4317"}, "http://"), ({"TIMEOUT": "soon"}, "number of seconds")],
)
def test_variables_that_make_no_sense_are_refused(variables: dict[str, str], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        exporter_to(Collector(), **variables)
