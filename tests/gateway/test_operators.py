"""What operators see of a gateway that runs: spans and metrics of calls, and those of its state."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from mildroute.experts.config import ExpertSpec
from mildroute.gateway.config import FailoverConfig, GatewayConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.observability.metrics import GatewayMetrics, LoopLagMonitor
from mildroute.gateway.observability.tracing import Tracing
from mildroute.gateway.upstream.client import UpstreamClient
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


def labels_of(url: str, model: str) -> dict[str, str]:
    return {
        "gen_ai_operation_name": "chat",
        "gen_ai_provider_name": "openai",
        "gen_ai_request_model": model,
        "server_address": "127.0.0.1",
        "server_port": url.split(":")[2].split("/")[0],
    }


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
        refused, served = labels_of(busy.url, "busy-model"), labels_of(good.url, "good-model")
        duration = "gen_ai_client_operation_duration_seconds_count"
        assert value(gateway, duration, **refused, error_type="rate_limited") == 1
        assert value(gateway, duration, **served, error_type="") == 1
        tokens = "gen_ai_client_token_usage"
        into, out = ({"gen_ai_token_type": kind} for kind in ("input", "output"))
        assert value(gateway, f"{tokens}_sum", **served, **into) == 7
        assert value(gateway, f"{tokens}_sum", **served, **out) == 3
        assert value(gateway, f"{tokens}_sum", **refused, **into) is None
        assert value(gateway, f"{tokens}_bucket", **served, **into, le="4.0") == 0
        assert value(gateway, f"{tokens}_bucket", **served, **into, le="16.0") == 1
    assert (failed.name, answered.name) == ("chat busy-model", "chat good-model")
    assert (failed.attributes or {})["error.type"] == "rate_limited"
    told = answered.attributes or {}
    assert told["gen_ai.usage.input_tokens"] == 7
    assert told["server.port"] == int(served["server_port"])
    assert told["gen_ai.response.finish_reasons"] == ("stop",)


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
        labels = labels_of(expert.url, "small-model")
        name = "gen_ai_client_operation_time_to_first_chunk_seconds"
        assert value(gateway, f"{name}_count", **labels) == 1
        first = value(gateway, f"{name}_sum", **labels)
        whole = value(
            gateway, "gen_ai_client_operation_duration_seconds_sum", **labels, error_type=""
        )
        assert first is not None
        assert whole is not None
        assert 0 < first < whole
        assert value(gateway, "mildroute_streams_cut_total", expert="small") is None
    told = call.attributes or {}
    assert told["gen_ai.response.time_to_first_chunk"] == first
    assert (told["gen_ai.response.id"], told["gen_ai.response.model"]) == ("c1", "m")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 3)


def test_an_estimate_of_tokens_is_not_reported_as_usage() -> None:
    with (
        HostileServer([streams(event("a"), DONE)]) as expert,
        running(ONCE, small=expert.url) as gateway,
    ):
        gateway.chat(stream=True)
        assert gateway.records()[0].tokens_out == 1
        page = gateway.http.get("/metrics").text
    assert "gen_ai_client_operation_duration_seconds_count{" in page
    assert "gen_ai_client_token_usage_count{" not in page


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


def test_metrics_have_exemplars_for_readers_of_openmetrics(traced: dict[str, Any]) -> None:
    sent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
    with (
        HostileServer([says("4")]) as expert,
        running(ONCE, services=traced, small=expert.url) as gateway,
    ):
        gateway.chat(headers={"traceparent": sent})
        gateway.records()
        page = gateway.http.get("/metrics", headers={"accept": prometheus})
        plain = gateway.http.get("/metrics")
    assert page.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    samples = [
        sample
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert {sample.name for sample in samples} >= {
        "mildroute_request_seconds_bucket",
        "mildroute_first_byte_seconds_bucket",
        "gen_ai_client_operation_duration_seconds_bucket",
    }
    assert all(sample.exemplar.labels == {"trace_id": "1" * 32} for sample in samples)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "trace_id" not in plain.text


def test_a_request_that_is_not_sampled_is_no_exemplar(traced: dict[str, Any]) -> None:
    with (
        HostileServer([says("4")]) as expert,
        running(ONCE, services=traced, small=expert.url) as gateway,
    ):
        gateway.chat(headers={"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-00"})
        assert gateway.records()[0].trace_id == "1" * 32
        accept = {"accept": "application/openmetrics-text"}
        assert "trace_id" not in gateway.http.get("/metrics", headers=accept).text


def test_bytes_connections_budgets_and_reserved_dollars() -> None:
    key, other = new_key(), new_key()
    store = KeyStore(
        [
            (hash_key(key), APIClient("team-a", dollars_per_day=5.0)),
            (hash_key(other), APIClient("team-b")),
        ]
    )
    with (
        HostileServer([says("4")]) as expert,
        running(
            ONCE,
            services={"key_store": store},
            small={"base_url": expert.url, "price": 0},
        ) as gateway,
    ):
        answers = [gateway.chat(headers={"authorization": f"Bearer {one}"}) for one in (key, other)]
        gateway.records(2)
        sizes = [(len(answer.request.content), len(answer.content)) for answer in answers]
        path = {"path": "chat/completions"}
        name = "mildroute_body_bytes_total"
        assert value(gateway, name, **path, direction="in") == sum(size for size, _ in sizes)
        assert value(gateway, name, **path, direction="out") == sum(size for _, size in sizes)
        assert value(gateway, "mildroute_key_budget_left_dollars", key="team-a") == 5.0
        assert value(gateway, "mildroute_key_budget_left_dollars", key="team-b") is None
        assert value(gateway, "mildroute_reserved_dollars") == 0
        connections = "mildroute_expert_connections"
        assert value(gateway, connections, expert="small", state="idle") == 1
        assert value(gateway, connections, expert="small", state="active") == 0
        assert value(gateway, "mildroute_expert_waiting", expert="small") == 0
        assert value(gateway, "mildroute_expert_connect_seconds_count", expert="small") == 1
        assert value(gateway, "mildroute_expert_wait_seconds_count", expert="small") is None


def test_budgets_beyond_the_bound_have_no_series_and_still_count_as_reserved() -> None:
    metrics = GatewayMetrics(keys=2)
    metrics.watch(budgets=lambda: [(f"key-{place}", 1.0, 0.25) for place in range(4)])
    sample = metrics.registry.get_sample_value
    assert sample("mildroute_key_budget_left_dollars", {"key": "key-1"}) == 1.0
    assert sample("mildroute_key_budget_left_dollars", {"key": "key-2"}) is None
    assert sample("mildroute_reserved_dollars") == 1.0


def test_calls_that_had_to_wait_are_timed() -> None:
    one_at_a_time = {"model": "m", "concurrency": 1}
    with HostileServer([says("4", delay=0.05)]) as expert:
        settings = {"base_url": expert.url, **one_at_a_time}
        with running(ONCE, small=settings) as gateway:
            threads = [threading.Thread(target=gateway.chat) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert value(gateway, "mildroute_expert_wait_seconds_count", expert="small") == 1


@pytest.mark.anyio
async def test_the_lag_of_the_loop_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopLagMonitor, "_INTERVAL", 0.001)
    lags: list[float] = []
    monitor = LoopLagMonitor(lags.append)
    monitor.start()
    time.sleep(0.05)
    while len(lags) < 3:
        await asyncio.sleep(0.001)
    monitor.stop()
    assert max(lags) >= 0.04
    count = len(lags)
    await asyncio.sleep(0.01)
    assert len(lags) == count


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
    client = UpstreamClient(ExpertSpec("a", "openai", {"base_url": url, "model": "m"}))
    assert client.target("chat").provider == provider
