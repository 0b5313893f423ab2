"""Experts of the kind litellm: the real SDK, and a server of ours as the provider."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Query
from mildroute.experts.config import ExpertSpec, build_expert, read_experts
from mildroute.experts.litellm import load_litellm
from mildroute.gateway.config import (
    CircuitBreakerConfig,
    FailoverConfig,
    GatewayConfig,
    RequestLimits,
)
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Writer,
    answers,
    completion,
    hangs,
    says,
    status,
)
from tests.gateway.running import Running, running, until
from tests.gateway.streams import DONE, event, framed, streams, usage
from tests.support.messages import USAGE, end, message, start, text_block

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("litellm") is None, reason="needs the extra litellm"
    ),
    # The SDK's own, of which none is about us.
    pytest.mark.filterwarnings("ignore"),
]

KEY = "provider-key-0123456789"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY", KEY)


def settings(url: str, **further: Any) -> dict[str, Any]:
    return {
        "kind": "litellm",
        "model": "openai/tiny",
        "base_url": url,
        "api_key_env": "PROVIDER_KEY",
        **further,
    }


def _answer(call: Call) -> Behavior:
    fields = call.json
    if call.path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}]
        reported = {"prompt_tokens": 3, "total_tokens": 3}
        return answers({"object": "list", "model": "tiny", "data": data, "usage": reported})
    if fields.get("stream"):
        return streams(event("fo"), event("ur"), usage(5, 2), DONE)
    document = completion("four", created=1, model="tiny")
    document["usage"] = {
        "prompt_tokens": 12,
        "completion_tokens": 4,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    if "tools" in fields:
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        document["choices"][0] |= {"message": message, "finish_reason": "tool_calls"}
    return answers(document)


@pytest.fixture
def gateway() -> Iterator[tuple[HostileServer, Running]]:
    with HostileServer(_answer) as server:
        price = {"input": 1.0, "output": 10.0, "cached_input": 0.5}
        with running(small=settings(server.url, price=price, headers={"x-team": "sales"})) as found:
            yield server, found


def client_of(gateway: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)


def test_a_chat_is_answered_counted_and_billed(gateway: tuple[HostileServer, Running]) -> None:
    server, found = gateway
    response = found.chat("2 + 2?", temperature=0, metadata={"conversation_id": "c"})
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "four"
    assert response.headers["x-mildroute-expert"] == "small"
    call = server.calls[0]
    assert call.json == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "2 + 2?"}],
        "temperature": 0,
    }
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert call.headers["x-team"] == "sales"
    record = found.records()[0]
    assert (record.tokens_in, record.tokens_out) == (12, 4)
    assert record.cost_usd == pytest.approx((4 * 1.0 + 8 * 0.5 + 4 * 10.0) / 1e6)


def test_a_stream_comes_in_events_with_the_usage_for_who_asks(
    gateway: tuple[HostileServer, Running],
) -> None:
    server, found = gateway
    with client_of(found) as client:
        chunks = list(
            client.chat.completions.create(
                model="mildroute",
                messages=[{"role": "user", "content": "2 + 2?"}],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        texts = [choice.delta.content for chunk in chunks for choice in chunk.choices]
        assert "".join(text or "" for text in texts) == "four"
        counted = [chunk.usage for chunk in chunks if chunk.usage is not None]
        assert [(one.prompt_tokens, one.completion_tokens) for one in counted] == [(5, 2)]
    body = found.chat(stream=True).text
    assert body.endswith("data: [DONE]\n\n")
    assert '"usage"' not in body
    assert [(one.tokens_in, one.tokens_out) for one in found.records(2)] == [(5, 2)] * 2
    assert all(call.json["stream_options"] == {"include_usage": True} for call in server.calls)


def test_tools_go_there_and_back(gateway: tuple[HostileServer, Running]) -> None:
    server, found = gateway
    with client_of(found) as client:
        said = client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "2 + 2?"}],
            tools=[TOOL],  # type: ignore[list-item]
        )
    calls = said.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].function.arguments == '{"a": 2}'  # type: ignore[union-attr]
    assert said.choices[0].finish_reason == "tool_calls"
    assert server.calls[0].json["tools"] == [TOOL]


def test_embeddings_are_served_and_responses_go_elsewhere(
    gateway: tuple[HostileServer, Running],
) -> None:
    _, found = gateway
    body = {"model": "small", "input": "Hi"}
    vectors = found.http.post("/v1/embeddings", json=body)
    assert vectors.json()["data"][0]["embedding"] == [0.5, 1.0]
    refused = found.http.post("/v1/responses", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "no_expert"
    assert "small: does not serve this API" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "field",
    [
        {"api_base": "http://127.0.0.1:1"},
        {"base_url": "http://127.0.0.1:1"},
        {"extra_headers": {"a": "b"}},
        {"mock_response": "free"},
        {"custom_llm_provider": "gemini"},
        {"aws_role_name": "root"},
        {"tools": [{"type": "mcp", "server_url": "litellm_proxy"}]},
    ],
)
def test_no_client_can_set_arguments_of_the_sdk(
    gateway: tuple[HostileServer, Running], field: dict[str, Any]
) -> None:
    server, found = gateway
    response = found.chat(model="small", **field)
    assert response.status_code == 400
    assert "kind 'litellm'" in response.json()["error"]["message"]
    assert not server.calls


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("model", "field"), [("openai/tiny", {"top_n": 3}), ("anthropic/tiny", {"n": 2})]
)
def test_what_the_sdk_cannot_express_goes_to_the_next_expert(
    model: str, field: dict[str, Any], *, is_stream: bool
) -> None:
    with (
        HostileServer(_answer) as first,
        HostileServer(_answer) as second,
        running(small=settings(first.url, model=model), large=second.url) as found,
    ):
        response = found.chat(stream=is_stream, **field)
        assert response.headers["x-mildroute-expert"] == "large"
        assert found.records()[0].attempts[0]["reason"] == "unsupported"
    assert not first.calls
    assert second.calls[0].json.items() >= field.items()


def _message(text: str) -> str:
    return json.dumps({"error": {"message": text, "type": "t", "code": "c"}})


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        (401, f"wrong {KEY}", "misconfigured"),
        (403, "no", "misconfigured"),
        (404, "no model", "misconfigured"),
        (408, "slow", "timeout"),
        (429, "slow down", "rate_limited"),
        (500, "oh", "5xx"),
        (503, "busy", "5xx"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_failures_have_the_reasons_of_http_and_the_next_expert_answers(
    code: int, text: str, reason: str, *, is_stream: bool
) -> None:
    failing = status(code, {"retry-after": "7"}, _message(text))
    with (
        HostileServer([failing]) as bad,
        HostileServer(_answer) as good,
        running(small=settings(bad.url), large=good.url) as found,
    ):
        response = found.chat(stream=is_stream)
        assert response.status_code == 200
        assert response.headers["x-mildroute-expert"] == "large"
        assert KEY not in response.text
        attempt = found.records()[0].attempts[0]
        assert (attempt["expert"], attempt["reason"]) == ("small", reason)
        assert len(bad.calls) == 1
        if code == 429:
            assert not found.app.pool.find("small").status().has_capacity


def test_retry_after_is_told_and_keys_are_not() -> None:
    failing = status(429, {"retry-after": "7"}, _message(f"wrong {KEY}"))
    config = GatewayConfig(failover=FailoverConfig(max_rounds=1))
    with HostileServer([failing]) as bad, running(config, small=settings(bad.url)) as found:
        response = found.chat()
    assert response.status_code == 429
    assert 5 <= float(response.headers["retry-after"]) <= 7
    assert KEY not in response.text


def test_what_is_the_clients_own_fault_is_passed_on() -> None:
    with (
        HostileServer([status(400, body=_message(f"bad temperature {KEY}"))]) as bad,
        running(small=settings(bad.url)) as found,
    ):
        response = found.chat()
    assert response.status_code == 400
    assert "bad temperature [secret]" in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_that_a_provider_does_not_count_are_estimated(stream: bool) -> None:
    document = completion("four", created=1, model="tiny")
    del document["usage"]
    behavior = streams(event("four"), DONE) if stream else answers(document)
    price = {"input": 1.0, "output": 10.0}
    with (
        HostileServer([behavior]) as server,
        running(small=settings(server.url, price=price)) as found,
    ):
        assert found.chat("2 + 2?", stream=stream, max_tokens=9).status_code == 200
        (record,) = found.records()
    assert record.tokens_in > 0
    assert 0 < record.tokens_out <= 9
    assert record.cost_usd > 0


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_written_to_a_prompt_cache_have_their_price(stream: bool) -> None:
    counted = USAGE | {"cache_creation_input_tokens": 100}
    behavior = (
        streams(start(usage=counted), *text_block(0, "four"), *end())
        if stream
        else answers(message(usage=counted))
    )
    price = {"input": 1.0, "output": 10.0, "cached_input": 0.1, "cache_write": 1.25}
    with HostileServer([behavior]) as server:
        url = server.url.removesuffix("/v1")
        expert = settings(url, model="anthropic/claude-test", price=price)
        with running(small=expert) as found:
            assert found.chat(stream=stream).status_code == 200
            (record,) = found.records()
    # 12 plain, 30 read, 100 written, 6 out.
    assert record.cost_usd == pytest.approx((12 + 3 + 125 + 60) / 1e6)


@pytest.mark.parametrize(
    "messages",
    [
        [5],
        "Hi",
        [{"role": ["user"], "content": "Hi"}],
        [{"role": "user", "content": {"text": "Hi"}}],
        [{"role": "user", "content": [5]}],
        [{"role": "user", "content": [{"type": "image", "source": {}}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5}}]}],
        [{"role": "user", "content": [{"type": "file", "file": 5}]}],
    ],
)
def test_messages_that_are_none_do_not_count_against_the_provider(
    gateway: tuple[HostileServer, Running], messages: Any
) -> None:
    server, found = gateway
    body = {"model": "small", "messages": messages}
    statuses = [found.http.post("/v1/chat/completions", json=body).status_code for _ in range(6)]
    assert statuses == [400] * 6
    assert found.chat().status_code == 200
    assert len(server.calls) == 1


def _with_image(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"model": "small", "messages": [{"role": "user", "content": [part]}]}


def test_nothing_that_a_client_names_is_fetched() -> None:
    with HostileServer(_answer) as server, HostileServer(_answer) as named:
        url = server.url.removesuffix("/v1")
        with running(small=settings(url, model="anthropic/claude-test")) as found:
            refused = found.http.post("/v1/chat/completions", json=_with_image(named.url))
            file = {"type": "file", "file": {"file_id": named.url}}
            body = {"model": "small", "messages": [{"role": "user", "content": [file]}]}
            assert found.http.post("/v1/chat/completions", json=body).status_code == 400
        assert refused.status_code == 400
        assert "as data: URLs" in refused.json()["error"]["message"]
        with running(small=settings(server.url)) as found:
            passed = found.http.post("/v1/chat/completions", json=_with_image(named.url))
    assert passed.status_code == 200
    assert named.url in json.dumps(server.calls[-1].json)
    assert named.calls == []


def test_the_log_holds_nothing_of_a_request(capfd: pytest.CaptureFixture[str]) -> None:
    with HostileServer(_answer) as server:
        url = server.url.removesuffix("/v1")
        with running(small=settings(url, model="anthropic/claude-test")) as found:
            refused = found.http.post("/v1/chat/completions", json=_with_image("data:signed"))
    assert refused.status_code >= 400
    assert server.calls == []
    written = capfd.readouterr()
    assert "signed" not in written.out + written.err


def test_the_sdk_fetches_no_tables_of_its_own() -> None:
    load_litellm()
    assert os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] == "True"
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"


def test_a_request_that_is_too_long_goes_to_who_takes_more() -> None:
    text = "This model's maximum context length is 10 tokens. Please reduce the length."
    with HostileServer([status(400, body=_message(text))]) as bad, HostileServer(_answer) as good:
        small = settings(bad.url, context=1000)
        with running(small=small, large={"base_url": good.url, "context": 9000}) as found:
            assert found.chat().headers["x-mildroute-expert"] == "large"
            assert found.records()[0].attempts[0]["reason"] == "context_length"


def test_an_expert_that_hangs_meets_the_deadline_and_its_circuit_opens() -> None:
    config = GatewayConfig(
        failover=FailoverConfig(attempt_timeout=0.3, first_byte_timeout=0.3, max_rounds=1),
        breaker=CircuitBreakerConfig(consecutive_failures=2, cooldown=60.0),
    )
    with (
        HostileServer([hangs()]) as bad,
        HostileServer(_answer) as good,
        running(config, small=settings(bad.url), large=good.url) as found,
    ):
        for number in range(3):
            found.chat(stream=number == 1)
        reasons = [
            [attempt["reason"] for attempt in record.attempts if attempt["reason"]]
            for record in found.records(3)
        ]
        assert reasons == [["timeout"], ["timeout"], []]
        assert len(bad.calls) == 2


def test_a_client_that_goes_away_ends_the_call_of_the_provider() -> None:
    gone = threading.Event()

    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        ended = asyncio.ensure_future(call.reader.read())
        while not ended.done():
            writer.write(framed(event("fo")))
            await asyncio.wait((ended,), timeout=0.01)
        gone.set()
        return False

    config = GatewayConfig(limits=RequestLimits(disconnect_timeout=0.1))
    with HostileServer([behave]) as server, running(config, small=settings(server.url)) as found:
        body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        with found.http.stream("POST", "/v1/chat/completions", json=body) as response:
            assert next(response.iter_lines()).startswith("data:")
        assert gone.wait(10)
        upstream = found.app.pool.find("small").upstream
        assert upstream is not None
        until(lambda: upstream.slots.calls == 0)


def test_no_more_calls_than_allowed_run_at_once() -> None:
    with (
        HostileServer([says("4", delay=0.02)]) as server,
        running(small=settings(server.url, concurrency=2)) as found,
    ):
        body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}

        def ask() -> None:
            assert found.http.post("/v1/chat/completions", json=body).status_code == 200

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert server.most_at_once == 2


# Collecting


def ask(spec: ExpertSpec, change: Callable[[Any], None] = lambda _: None) -> Answer:
    expert = build_expert(spec)
    change(expert)

    async def run() -> Answer:
        try:
            return (await expert.answer([Query("q", "2 + 2?")]))[0]
        finally:
            await expert.close()

    return asyncio.run(run())


def spec_at(url: str, **further: Any) -> ExpertSpec:
    given = settings(url, **further)
    del given["kind"]
    return ExpertSpec("small", "litellm", given)


def test_collecting_asks_through_the_sdk_with_prompt_request_and_price() -> None:
    with HostileServer(_answer) as server:
        price = {"input": 1.0, "output": 10.0}
        prompt = {"system": "Be short.", "user": "{input}"}
        answer = ask(
            spec_at(server.url, price=price, prompt=prompt, request={"max_tokens": 9}, retries=0)
        )
    assert (answer.text, answer.error) == ("four", "")
    assert (answer.tokens_in, answer.tokens_out) == (12, 4)
    assert answer.dollars == pytest.approx(12e-6 + 40e-6)
    assert server.calls[0].json["max_tokens"] == 9
    assert [one["role"] for one in server.calls[0].json["messages"]] == ["system", "user"]


def test_collecting_tries_again_what_may_pass_and_shows_no_key() -> None:
    with HostileServer([status(503, body=_message("busy")), says("4")]) as server:
        answer = ask(spec_at(server.url, retries=1))
    assert (answer.text, answer.attempts) == ("4", 2)
    with HostileServer([status(401, body=_message(f"bad {KEY}"))]) as server:
        answer = ask(spec_at(server.url))
    assert answer.text is None
    assert "HTTP 401" in (answer.error or "")
    assert KEY not in (answer.error or "")
    with HostileServer([hangs()]) as server:
        answer = ask(spec_at(server.url, timeout=0.2, retries=0))
    assert answer.error == "timeout: no whole answer within 0.2 s"


def test_keys_of_the_environment_are_not_shown_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment-0123")
    with HostileServer([status(400, body=_message("bad from-the-environment-0123"))]) as server:
        answer = ask(
            ExpertSpec("small", "litellm", {"model": "openai/tiny", "base_url": server.url})
        )
    assert server.calls[0].headers["authorization"] == "Bearer from-the-environment-0123"
    assert "from-the-environment" not in (answer.error or "")


def test_a_model_without_a_provider_is_refused_with_the_way_out() -> None:
    with pytest.raises(ArgumentError, match="must begin with a provider that LiteLLM knows"):
        build_expert(ExpertSpec("small", "litellm", {"model": "nonesuch"}))


def test_settings_that_are_not_of_the_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "experts.yaml"
    for line, rule in (
        ("params: {api_key: {env: KEY}}", "put api_key_env next to params"),
        ("params: {num_retries: 3}", "leave it out"),
        ("query: {a: b}", "experts.a.query is not a setting"),
    ):
        path.write_text(f"experts:\n  a:\n    kind: litellm\n    model: openai/tiny\n    {line}\n")
        with pytest.raises(ArgumentError, match=rule):
            read_experts(path)
