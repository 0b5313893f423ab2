from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mildroute.exceptions import MissingExtraError
from mildroute.gateway.observability.tracing import (
    AttemptSpan,
    CallTarget,
    RequestSpan,
    Tracing,
    otlp_provider,
)
from tests.gateway.test_metrics import RECORD

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Iterator[Tracing]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ticks = iter(range(1_000, 100_000, 1_000))
    yield Tracing(provider, clock=lambda: next(ticks))
    provider.shutdown()


def started(tracing: Tracing, path: str, headers: dict[str, str]) -> RequestSpan:
    span = tracing.start(path, headers)
    assert span is not None
    return span


def named(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


TARGET = CallTarget("chat", "openai", "gpt-x", "api.openai.com", "443")
CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-x",
    "server.address": "api.openai.com",
    "server.port": 443,
}
WHOLE = (
    b'{"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-x-2026", "choices": [{"index"'
    b': 0, "message": {"tool_calls": [{"id": "call_7"}]}, "finish_reason": "stop"}], "usage": {}}'
)


def attempt(begun: RequestSpan, expert: str = "small", *, is_stream: bool = False) -> AttemptSpan:
    return begun.attempt(expert, TARGET, is_stream=is_stream)


def test_a_request_is_one_trace_with_its_decision_and_each_attempt(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    begun = started(tracing, "chat/completions", {})
    begun.decided("small", "router")
    attempt(begun, "small").end(error_type="timeout")
    answered = attempt(begun, "large")
    answered.end(status=200, tokens=(7, 3), cached_tokens=5)
    begun.end(RECORD)
    decision, first, second, request = exporter.get_finished_spans()
    assert [span.name for span in (decision, first, second, request)] == [
        "mildroute.decision",
        "chat gpt-x",
        "chat gpt-x",
        "POST /v1/chat/completions",
    ]
    assert {
        span.context.trace_id for span in (decision, first, second, request) if span.context
    } == {request.context.trace_id}  # type: ignore[union-attr]
    assert {span.parent.span_id for span in (decision, first, second) if span.parent} == {
        request.context.span_id
    }  # type: ignore[union-attr]
    assert dict(decision.attributes or {}) == {
        "mildroute.expert": "small",
        "mildroute.reason": "router",
    }
    assert dict(first.attributes or {}) == CALL | {
        "mildroute.expert": "small",
        "error.type": "timeout",
    }
    assert first.status.status_code is StatusCode.ERROR
    assert dict(second.attributes or {}) == CALL | {
        "mildroute.expert": "large",
        "http.response.status_code": 200,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 5,
    }
    assert second.status.status_code is StatusCode.UNSET
    assert (request.kind, first.kind) == (SpanKind.SERVER, SpanKind.CLIENT)


def test_a_stream_has_the_time_of_its_first_event(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    span = attempt(started(tracing, "chat/completions", {}), is_stream=True)
    span.end(status=200, first_chunk=0.25)
    (found,) = exporter.get_finished_spans()
    attributes = dict(found.attributes or {})
    assert attributes["gen_ai.request.stream"] is True
    assert attributes["gen_ai.response.time_to_first_chunk"] == 0.25
    assert "gen_ai.usage.input_tokens" not in attributes


def test_the_decision_spans_the_time_since_the_request_arrived(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    begun = started(tracing, "chat/completions", {})
    begun.decided("small", "router")
    decision = named(exporter)["mildroute.decision"]
    assert (decision.start_time, decision.end_time) == (1_000, 2_000)


def test_the_whole_request_says_who_answered_and_at_what_cost(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    span = tracing.start("chat/completions", {}, "team-a")
    assert span is not None
    span.end(RECORD)
    assert dict(named(exporter)["POST /v1/chat/completions"].attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "mildroute.key": "team-a",
        "mildroute.decision_id": "d1",
        "mildroute.expert": "small",
        "mildroute.reason": "router",
        "mildroute.attempts": 1,
        "http.response.status_code": 200,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 50,
    }


def test_what_was_asked_is_in_no_span(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    from dataclasses import replace

    started(tracing, "chat/completions", {"authorization": "Bearer word"}).end(
        replace(RECORD, text="a secret word", conversation="word")
    )
    assert not any("word" in span.to_json() for span in exporter.get_finished_spans())


def test_the_clients_trace_goes_on_and_reaches_the_expert(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    begun = started(
        tracing,
        "chat/completions",
        {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=alice"},
    )
    asked = attempt(begun)
    asked.end(status=200)
    begun.end(RECORD)
    request, call = (
        named(exporter)["POST /v1/chat/completions"],
        named(exporter)["chat gpt-x"],
    )
    assert begun.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert request.parent is not None
    assert format(request.parent.span_id, "016x") == "b7ad6b7169203331"
    assert call.context is not None
    assert asked.headers == {
        "traceparent": f"00-0af7651916cd43dd8448eb211c80319c-{call.context.span_id:016x}-01",
        "tracestate": "vendor=1",
    }


@pytest.mark.parametrize(
    "wrong", ["", "nonsense", "00-0-0-01", PARENT.replace("0af7", "\u00e9"), PARENT * 100]
)
def test_a_malformed_traceparent_begins_a_new_trace(tracing: Tracing, wrong: str) -> None:
    headers = attempt(started(tracing, "chat/completions", {"traceparent": wrong})).headers
    assert headers["traceparent"].startswith("00-")
    assert "0af7651916cd43dd8448eb211c80319c" not in headers["traceparent"]


def test_a_failure_of_the_gateway_is_marked_and_a_clients_is_not(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    from dataclasses import replace

    for status in (499, 503):
        started(tracing, "chat/completions", {}).end(replace(RECORD, status=status))
    assert [span.status.status_code for span in exporter.get_finished_spans()] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]


def test_without_a_provider_nothing_is_made() -> None:
    off = Tracing()
    assert off.start("chat/completions", {"traceparent": PARENT}) is None
    assert not off.is_enabled
    assert not Tracing(trace.NoOpTracerProvider()).is_enabled


def test_without_the_package_nothing_is_made_and_sending_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked: dict[str, Any] = dict.fromkeys(
        [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]
    )
    for name in ["opentelemetry", *blocked]:
        monkeypatch.setitem(sys.modules, name, None)
    assert Tracing().is_enabled is False
    with pytest.raises(MissingExtraError, match=r"pip install .*\[otel\]"):
        otlp_provider()
