"""What goes through a gateway goes through unchanged."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from collections.abc import Iterator

import pytest

from mildroute.gateway.config import FailoverConfig, GatewayConfig, RequestLimits
from mildroute.gateway.observability.tracing import Tracing
from tests.experts.hostile_server import HostileServer, half_json, hangs, says, status
from tests.gateway.running import Running, running, until
from tests.gateway.streams import DONE, endless, event, streams, usage


@pytest.fixture
def expert() -> Iterator[HostileServer]:
    with HostileServer([says("4")]) as server:
        yield server


BODIES = {
    "unknown fields": (
        b'{"model": "mildroute", "messages": [{"role": "user", "content": "x"}], "a_new_field":'
        b' {"deep": [1, null, true]}}'
    ),
    "tools": (
        b'{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],'
        b'"tool_choice":"auto","model":"mildroute","logprobs":true,"top_logprobs":5}'
    ),
    "image": (
        b'{"model":"mildroute","messages":[{"role":"user","content":[{"type":"text","text":"what?"},'
        b'{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}'
    ),
    "numbers": (
        b'{"model":"mildroute","seed":1234567890123456789,"temperature":0.10,"top_p":1e-2,"x":-0.0,"y":1.0E+2,'
        b'"messages":[{"role":"user","content":"x"}]}'
    ),
    "unicode": (
        '{"model":"mildroute","messages":[{"role":"user","content":"日本語 \\u00e9 é 😀'
        ' \\ud83d\\ude00"}]}'.encode()
    ),
    "spaces": (
        b' \n{ "model"\t:\r\n "mildroute" ,"messages" : [ {"role":"user" , "content":"x"} ] }\n '
    ),
    "escaped model": b'{"model":"mild\\u0072oute","messages":[{"role":"user","content":"x"}]}',
    "model in text": (
        b'{"messages":[{"role":"user","content":"\\"model\\":\\"mildroute\\""}],"model":"mildroute"}'
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_all_of_a_body_is_passed_on_but_for_the_model(name: str, expert: HostileServer) -> None:
    body = BODIES[name]
    with running(small=expert.url) as gateway:
        answer = gateway.http.post(
            "/v1/chat/completions",
            content=body,
            headers={"content-type": "application/json; charset=utf-8"},
        )
    assert answer.status_code == 200
    assert expert.calls[0].json == json.loads(body) | {"model": "small-model"}
    assert expert.calls[0].headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("completions", {"prompt": "x"}),
        ("responses", {"input": "x"}),
        ("embeddings", {"input": ["x", "y"]}),
    ],
)
def test_each_path_reaches_the_expert_at_the_same_path(
    path: str, fields: dict[str, object], expert: HostileServer
) -> None:
    with running(small=expert.url) as gateway:
        answer = gateway.http.post(f"/v1/{path}", json={"model": "small", **fields})
        assert answer.status_code == 200
        assert gateway.records()[0].path == path
    assert expert.calls[0].path == f"/v1/{path}"
    assert expert.calls[0].json == {"model": "small-model", **fields}


def test_an_answer_is_passed_back_byte_for_byte_with_the_headers_that_clients_use() -> None:
    body = '{"x": 1.50, "big": 123456789012345678901234567890, "ü": "\\u00fc"}'.encode()
    headers = {
        "x-request-id": "r1",
        "x-ratelimit-remaining-requests": "59",
        "openai-organization": "ours",
        "Set-Cookie": "a=b",
    }
    headers |= {
        "Connection": "keep-alive",
        "Keep-Alive": "timeout=5",
        "Server": "hidden",
        "Retry-After": "3",
    }
    with (
        HostileServer([status(200, headers, body)]) as expert,
        running(small=expert.url) as gateway,
    ):
        answer = gateway.chat()
    assert answer.content == body
    assert answer.headers["x-request-id"] == "r1"
    assert answer.headers["x-ratelimit-remaining-requests"] == "59"
    assert answer.headers["x-mildroute-expert"] == "small"
    assert answer.headers["x-mildroute-reason"] == "router"
    assert not {"set-cookie", "keep-alive", "openai-organization"} & set(answer.headers)
    assert "hidden" not in str(answer.headers)


def test_only_harmless_headers_of_a_client_reach_an_expert(expert: HostileServer) -> None:
    sent = {
        "authorization": "Bearer mine",
        "cookie": "a=b",
        "x-forwarded-for": "10.0.0.1",
        "te": "trailers",
        "x-api-key": "k",
    }
    passed = {
        "openai-beta": "assistants=v2",
        "x-request-id": "mine-1",
        "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
    }
    with running(small=expert.url) as gateway:
        gateway.chat(headers=sent | passed | {"accept-encoding": "gzip"})
    got = expert.calls[0].headers
    assert {name: got[name] for name in passed} == passed
    assert not set(sent) & set(got)
    assert got["accept-encoding"] == "identity"
    assert "mine" not in got["user-agent"]


def test_an_answer_that_is_compressed_unasked_is_passed_back_as_it_is() -> None:
    packed = gzip.compress(b'{"choices": []}')
    with (
        HostileServer([status(200, {"Content-Encoding": "gzip"}, packed)]) as expert,
        running(small=expert.url) as gateway,
    ):
        answer = gateway.chat()
        assert answer.json() == {"choices": []}
        assert answer.headers["content-length"] == str(len(packed))


def test_a_client_error_of_an_expert_is_passed_back_unchanged_and_asks_nobody_else(
    expert: HostileServer,
) -> None:
    error_response = (
        '{"error": {"message": "max_tokens is too large", "type": "invalid_request_error", "param":'
        ' "max_tokens", "code": null}}'
    )
    with (
        HostileServer([status(400, {}, error_response)]) as first,
        running(small=first.url, large=expert.url) as gateway,
    ):
        answer = gateway.chat()
        record = gateway.records()[0]
    assert (answer.status_code, answer.text) == (400, error_response)
    assert expert.calls == []
    assert (record.status, record.served_by, record.cost_usd) == (400, "small", 0.0)


def test_an_expert_that_repeats_our_key_in_an_error_does_not_give_it_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "sk-0123456789abcdef0123456789"
    monkeypatch.setenv("SMALL_KEY", key)
    script = [
        status(400, {"x-request-id": key}, f'{{"error": "your header was Bearer {key}"}}'),
        status(401, {}, f"bad key {key}"),
    ]
    with (
        HostileServer(script) as expert,
        running(small={"base_url": expert.url, "api_key_env": "SMALL_KEY"}) as gateway,
    ):
        answers_seen = [gateway.chat(), gateway.chat()]
    assert [answer.status_code for answer in answers_seen] == [400, 502]
    for answer in answers_seen:
        assert key not in answer.text
        assert key not in str(answer.headers)


def test_pieces_of_a_stream_arrive_one_by_one_before_the_last_is_sent() -> None:
    pieces = [event("one"), event("two"), usage(11, 2), DONE]
    gates = [threading.Event() for _ in pieces]
    with (
        HostileServer([streams(*pieces, gates=gates)]) as expert,
        running(small=expert.url) as gateway,
    ):
        gates[0].set()
        body = {
            "model": "mildroute",
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            arriving = answer.iter_raw()
            got = [next(arriving)]
            assert got == [pieces[0]]
            for gate, _ in zip(gates[1:], pieces[1:], strict=True):
                gate.set()
                got.append(next(arriving))
            assert list(arriving) == []
        record = gateway.records()[0]
    assert got == pieces
    assert answer.headers["content-type"] == "text/event-stream"
    assert "content-length" not in answer.headers
    assert (record.status, record.tokens_in, record.tokens_out) == (200, 11, 2)


def test_a_stream_without_usage_is_counted_and_paid_by_its_characters() -> None:
    pieces = [event("a" * 4), event("b" * 3), event("c" * 4), DONE]
    with HostileServer([streams(*pieces)] * 2) as expert:
        priced = {"base_url": expert.url, "price": {"input": 0, "output": 1_000_000}}
        with running(small=priced) as gateway:
            gateway.chat("12345678", stream=True)
            record = gateway.records()[0]
            gateway.chat("12345678", stream=True, max_tokens=2)
            bounded = gateway.records(2)[1]
    assert record.tokens_out == 3
    assert record.cost_usd == 3.0
    assert bounded.cost_usd == 2.0, "no more than the request allowed is billed by a guess"


def test_an_expert_that_ignores_the_wish_for_a_stream_is_passed_back_as_it_is(
    expert: HostileServer,
) -> None:
    with running(small=expert.url) as gateway:
        answer = gateway.chat(stream=True)
        assert answer.json()["choices"][0]["message"]["content"] == "4"
        assert (gateway.records()[0].tokens_in, gateway.records()[0].tokens_out) == (7, 2)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_goes_away_frees_the_expert_after_the_time_to_drain(is_stream: bool) -> None:
    settings = GatewayConfig(limits=RequestLimits(disconnect_timeout=0.05))
    with (
        HostileServer([endless(event("x")) if is_stream else hangs()]) as expert,
        running(settings, small=expert.url) as gateway,
    ):
        client = _begin(gateway, is_stream)
        until(lambda: expert.at_once == 1)
        if is_stream:
            assert client.getresponse().read(5) == b"data:"
        client.sock.close() if client.sock else client.close()
        client.close()
        until(lambda: expert.at_once == 0)
        record = gateway.records()[0]
        until(lambda: gateway.app.limiter.in_flight == 0)
        assert gateway.app.pool.callable["small"].upstream.slots.calls == 0  # type: ignore[union-attr]
    assert (record.status, len(record.attempts)) == (499, 1)
    assert record.served_by == ("small" if is_stream else "")
    assert (record.tokens_out > 0) == is_stream


def _begin(gateway: Running, is_stream: bool) -> http.client.HTTPConnection:
    client = http.client.HTTPConnection("127.0.0.1", gateway.port)
    body = {
        "model": "mildroute",
        "messages": [{"role": "user", "content": "x"}],
        "stream": is_stream,
    }
    client.request("POST", "/v1/chat/completions", json.dumps(body))
    return client


def test_a_client_that_reads_nothing_is_left_after_the_idle_time() -> None:
    settings = GatewayConfig(
        failover=FailoverConfig(idle_timeout=0.1), limits=RequestLimits(disconnect_timeout=0.1)
    )
    with (
        HostileServer([endless(event("x" * 60_000), pause=0.0)]) as expert,
        running(settings, small=expert.url) as gateway,
    ):
        client = _begin(gateway, is_stream=True)
        record = gateway.records()[0]
        client.close()
        until(lambda: expert.at_once == 0)
    assert record.status == 499


def test_a_redirect_is_a_failure_and_not_passed_back(expert: HostileServer) -> None:
    with (
        HostileServer([status(307, {"Location": "http://elsewhere/"})]) as first,
        running(small=first.url, large=expert.url) as gateway,
    ):
        answer = gateway.chat()
    assert answer.status_code == 200
    assert answer.headers["x-mildroute-expert"] == "large"


def test_names_that_no_header_can_hold_are_quoted(expert: HostileServer) -> None:
    with running(**{"größte %": expert.url}) as gateway:
        assert gateway.chat().headers["x-mildroute-expert"] == "gr%C3%B6%C3%9Fte %25"


def test_a_200_with_broken_json_is_no_answer(expert: HostileServer) -> None:
    with (
        HostileServer([half_json()]) as first,
        running(small=first.url, large=expert.url) as gateway,
    ):
        assert gateway.chat().headers["x-mildroute-expert"] == "large"


def test_a_trace_goes_on_from_the_client_to_the_expert(expert: HostileServer) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    memory = pytest.importorskip(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter"
    ).InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(
        pytest.importorskip("opentelemetry.sdk.trace.export").SimpleSpanProcessor(memory)
    )
    sent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    with (
        HostileServer([status(500)]) as broken,
        running(
            services={"tracing": Tracing(provider)}, small=broken.url, large=expert.url
        ) as gateway,
    ):
        assert gateway.chat(headers={"traceparent": sent}).status_code == 200
        gateway.records()
        until(lambda: len(memory.get_finished_spans()) == 4)
    got = [server.calls[0].headers["traceparent"] for server in (broken, expert)]
    assert all(parent.startswith("00-" + "1" * 32) for parent in got)
    assert len({sent, *got}) == 3
    names = [span.name for span in memory.get_finished_spans()]
    assert names[1:3] == ["chat small-model", "chat large-model"]
    assert gateway.records()[0].trace_id == "1" * 32
