"""Spans and counts of the calls of experts by a running gateway."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mildroute.experts.config import ExpertSpec
from mildroute.gateway.config import FailoverConfig, GatewayConfig
from mildroute.gateway.observability.tracing import Tracing
from mildroute.gateway.upstream.openai import OpenAIUpstream
from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.running import Running, running, until
from tests.gateway.streams import DONE, endless, event, streams, usage

ONCE = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, max_rounds=1))


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(exporter: InMemorySpanExporter) -> Iterator[dict[str, Any]]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield {"tracing": Tracing(provider)}
    provider.shutdown()


def calls_of(exporter: InMemorySpanExporter, wanted: int) -> list[ReadableSpan]:
    """Spans of calls, once the request and all of them have ended."""
    until(lambda: len(exporter.get_finished_spans()) == wanted + 2)
    return [span for span in exporter.get_finished_spans() if span.name.startswith("chat ")]


def value(gateway: Running, name: str, **labels: str) -> float | None:
    return gateway.services.metrics.registry.get_sample_value(name, labels)


def test_a_complete_answer_is_one_call_with_the_conventional_names(
    traced: dict[str, Any], exporter: InMemorySpanExporter
) -> None:
    with (
        HostileServer([status(429)]) as busy,
        HostileServer([says("4", (7, 3))]) as good,
        running(ONCE, services=traced, busy=busy.url, good=good.url) as gateway,
    ):
        gateway.chat()
        failed, answered = calls_of(exporter, 2)
        name = "mildroute_attempts_total"
        assert value(gateway, name, expert="busy", error_type="rate_limited") == 1
        assert value(gateway, name, expert="good", error_type="") == 1
    assert (failed.name, answered.name) == ("chat busy-model", "chat good-model")
    assert (failed.attributes or {})["error.type"] == "rate_limited"
    told = answered.attributes or {}
    assert told["gen_ai.usage.input_tokens"] == 7
    assert told["server.port"] == int(good.url.split(":")[2].split("/")[0])


def test_a_stream_ends_with_its_last_byte_and_tells_its_first_chunk(
    traced: dict[str, Any], exporter: InMemorySpanExporter
) -> None:
    gate = threading.Event()
    opened = threading.Event()
    opened.set()
    pieces = (event("a"), usage(7, 3), DONE)
    with (
        HostileServer([streams(*pieces, gates=[opened, gate])]) as expert,
        running(ONCE, services=traced, small=expert.url) as gateway,
    ):
        body = {"model": "mildroute", "stream": True, "messages": [{"role": "user", "content": ""}]}
        with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            assert [span.name for span in exporter.get_finished_spans()] == ["mildroute.decision"]
            gate.set()
            list(chunks)
        (call,) = calls_of(exporter, 1)
        assert value(gateway, "mildroute_streams_cut_total", expert="small") is None
    told = call.attributes or {}
    assert told["gen_ai.response.time_to_first_chunk"] > 0  # type: ignore[operator]
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 3)


def test_streams_that_are_cut_are_counted_with_the_one_that_cut_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        HostileServer([streams(event("a"), ends=False), endless(event("b"))]) as expert,
        running(ONCE, small=expert.url) as gateway,
    ):
        name, labels = "mildroute_streams_cut_total", {"expert": "small"}
        gateway.chat(stream=True)
        until(lambda: value(gateway, name, **labels, reason="connection_lost") == 1)
        body = {"model": "mildroute", "stream": True, "messages": [{"role": "user", "content": ""}]}
        settings = gateway.services.config.limits
        with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            next(answer.iter_raw())
        assert settings.disconnect_max_bytes > 0
    assert value(gateway, name, **labels, reason="client_disconnect") == 1
    (line,) = [record for record in caplog.records if record.message == "expert failed"]
    assert line.fields["error.type"] == "connection_lost"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://team.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://api.mistral.ai/v1", "mistral_ai"),
        ("https://europe-west1-aiplatform.googleapis.com/v1", "gcp.vertex_ai"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "aws.bedrock"),
        ("https://notgroq.company/v1", "openai"),
        ("http://127.0.0.1:8080/v1", "openai"),
    ],
)
def test_providers_have_the_conventional_names(url: str, provider: str) -> None:
    client = OpenAIUpstream(ExpertSpec("a", "openai", {"base_url": url, "model": "m"}))
    assert client.target("chat").provider == provider
