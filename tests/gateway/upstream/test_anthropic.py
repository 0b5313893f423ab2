"""Anthropic's client against the gateway: requests go unchanged to experts of its kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import anthropic
import anthropic.types.shared
import pytest

from mildroute.gateway.config import FailoverConfig, GatewayConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from tests.experts.hostile_server import Behavior, HostileServer, Script, answers, says, status
from tests.gateway.running import Running, running
from tests.gateway.streams import streams
from tests.support.messages import (
    OVERLOADED,
    STREAM,
    USAGE,
    claude,
    delta,
    end,
    fails,
    message,
    start,
    text_block,
)

USER = {"role": "user", "content": "2 + 2?"}
PRICE = {"input": 1.0, "cached_input": 0.1, "output": 10.0}
ONCE = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, max_rounds=1))
ASKED: dict[str, Any] = {"model": "mildroute", "max_tokens": 64, "messages": [USER]}
TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}


def anthropic_at(server: HostileServer, **settings: Any) -> dict[str, Any]:
    """Settings of an expert of kind ``anthropic``."""
    url = server.url.removesuffix("/v1")
    return {"kind": "anthropic", "base_url": url, "price": PRICE, **settings}


@contextmanager
def anthropic_client(gateway: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, max_retries=0, api_key="any") as made:
        yield made


@contextmanager
def messaging(
    script: Script = claude, services: dict[str, Any] | None = None, **settings: Any
) -> Iterator[tuple[anthropic.Anthropic, HostileServer, Running]]:
    """Anthropic's client in front of a gateway with one expert of kind ``anthropic``."""
    with (
        HostileServer(script) as server,
        running(ONCE, services=services, small=anthropic_at(server, **settings)) as gateway,
        anthropic_client(gateway) as client,
    ):
        yield client, server, gateway


def test_a_message_is_answered_and_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789abcdef")
    with messaging(api_key_env="CLAUDE_KEY") as (client, server, gateway):
        answer = client.messages.with_raw_response.create(**ASKED, system="Be terse.")
        (record,) = gateway.records()
    parsed = answer.parse()
    assert [block.text for block in parsed.content if block.type == "text"] == ["four"]
    assert answer.headers["x-mildroute-expert"] == "small"
    # 12 tokens in and 30 from the cache, 6 out.
    dollars = (12 * 1.0 + 30 * 0.1 + 6 * 10.0) / 1e6
    assert float(answer.headers["x-mildroute-cost"]) == pytest.approx(dollars)
    assert record.cost_usd == pytest.approx(dollars)
    assert (record.path, record.tokens_in, record.tokens_out) == ("messages", 42, 6)
    (call,) = server.calls
    assert call.path == "/v1/messages"
    assert call.headers["x-api-key"] == "sk-ant-0123456789abcdef"
    assert "authorization" not in call.headers


def test_a_stream_passes_byte_for_byte_and_is_charged() -> None:
    with messaging([streams(*STREAM)]) as (client, _, gateway):
        answer = gateway.http.post("/v1/messages", json=ASKED | {"stream": True})
        with client.messages.stream(**ASKED) as events:
            final = events.get_final_message()
        records = gateway.records(2)
    assert answer.content == b"".join(STREAM)
    assert final.content[0].text == "four"  # type: ignore[union-attr]
    assert [record.cost_usd for record in records] == [pytest.approx(75e-6)] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_tools(stream: bool) -> None:
    messages: list[Any] = [USER]
    asked: dict[str, Any] = ASKED | {"tools": [TOOL], "messages": messages}
    with messaging() as (client, server, _):
        if stream:
            with client.messages.stream(**asked) as events:
                said = events.get_final_message()
        else:
            said = client.messages.create(**asked)
        assert said.stop_reason == "tool_use"
        _, call = said.content
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "4"}  # type: ignore[union-attr]
        messages += [
            {"role": "assistant", "content": [block.to_dict() for block in said.content]},
            {"role": "user", "content": [result]},
        ]
        answer = client.messages.create(**asked)
    assert answer.content[0].text == "four"  # type: ignore[union-attr]
    assert server.calls[-1].json["messages"] == messages


def test_a_request_and_its_answer_keep_every_field() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCgIYAhIM"}
    document = message(thought, {"type": "text", "text": "four", "citations": None})
    block = {"type": "text", "text": "2 + 2? é", "cache_control": {"type": "ephemeral"}}
    asked = {
        "max_tokens": 64,
        "thinking": {"type": "adaptive"},
        "model": "mildroute",
        "system": [{"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"type": "web_search_20260209", "name": "web_search"}],
        "messages": [{"role": "user", "content": [block, {"type": "block_of_the_future"}]}],
    }
    headers = {"anthropic-beta": "context-1m-2025-08-07", "anthropic-version": "2026-10-21"}
    with messaging([answers(document)]) as (_, server, gateway):
        answer = gateway.http.post("/v1/messages", json=asked, headers=headers)
    (call,) = server.calls
    assert call.json == asked | {"model": "small-model"}
    assert call.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert call.headers["anthropic-version"] == "2026-10-21"
    assert answer.json() == document


def test_each_api_has_its_experts() -> None:
    """Nothing is translated; what no expert can take is refused in the words of its API."""
    with (
        HostileServer([says("four")]) as small,
        HostileServer(claude) as large,
        running(ONCE, small=small.url, large=anthropic_at(large)) as gateway,
    ):
        message_ = gateway.http.post("/v1/messages", json=ASKED)
        chat = gateway.chat()
        refused_message = gateway.http.post("/v1/messages", json=ASKED | {"model": "small"})
        refused_chat = gateway.chat(model="large")
    assert message_.headers["x-mildroute-expert"] == "large"
    assert chat.headers["x-mildroute-expert"] == "small"
    assert (len(small.calls), len(large.calls)) == (1, 1)
    for refused in (refused_message, refused_chat):
        assert refused.status_code == 400
        assert "does not serve this API" in refused.json()["error"]["message"]
    assert refused_message.json()["type"] == "error"


def test_tokens_are_counted_for_nothing() -> None:
    with messaging([answers({"input_tokens": 14})]) as (client, server, gateway):
        for model in ("mildroute", "small"):
            counted = client.messages.count_tokens(model=model, messages=[USER])  # type: ignore[list-item]
            assert counted.input_tokens == 14
        records = gateway.records(2)
    assert {call.path for call in server.calls} == {"/v1/messages/count_tokens"}
    assert server.calls[0].json == {"model": "small-model", "messages": [USER]}
    assert {record.path for record in records} == {"messages/count_tokens"}
    assert {(record.cost_usd, record.baseline_cost_usd) for record in records} == {(0.0, 0.0)}


def test_a_stream_that_fails_at_once_is_served_by_another() -> None:
    with (
        HostileServer([streams(OVERLOADED)]) as server,
        HostileServer([streams(*STREAM)]) as other,
        running(ONCE, small=anthropic_at(server), large=anthropic_at(other)) as gateway,
    ):
        answer = gateway.http.post("/v1/messages", json=ASKED | {"stream": True})
    assert answer.headers["x-mildroute-expert"] == "large"
    assert b"message_stop" in answer.content


def test_a_prompt_that_is_too_long_goes_to_an_expert_that_takes_more() -> None:
    text = "prompt is too long: 210000 tokens > 200000 maximum"
    with (
        HostileServer([fails(400, "invalid_request_error", text)]) as server,
        HostileServer([answers(message())]) as other,
        running(
            ONCE,
            small=anthropic_at(server, context=200_000),
            large=anthropic_at(other, context=1_000_000),
        ) as gateway,
    ):
        answer = gateway.http.post("/v1/messages", json=ASKED)
    assert answer.headers["x-mildroute-expert"] == "large"


@pytest.mark.parametrize(
    ("behavior", "error", "words"),
    [
        (
            fails(400, "invalid_request_error", "bad stop"),
            anthropic.BadRequestError,
            "bad stop",
        ),
        (fails(401, "authentication_error", "x"), anthropic.InternalServerError, "own key"),
        (fails(429, "rate_limit_error", "x"), anthropic.RateLimitError, "is rate limited"),
        (fails(529, "overloaded_error", "x"), anthropic.OverloadedError, "had an error"),
        (status(200, {}, "<html>"), anthropic.InternalServerError, "invalid response"),
    ],
)
def test_errors(behavior: Behavior, error: type[anthropic.APIStatusError], words: str) -> None:
    with (
        messaging([behavior]) as (client, _, _gateway),
        pytest.raises(error, match=words) as caught,
    ):
        client.messages.create(**ASKED)
    document: Any = caught.value.body
    anthropic.types.shared.ErrorResponse.model_validate(document)


def test_errors_of_the_gateway_itself_have_the_shape() -> None:
    with messaging() as (client, _, gateway):
        post = gateway.http.post
        seen = [
            post("/v1/messages", content=b"{"),
            post("/v1/messages", json=ASKED | {"model": "gpt-99"}),
            post("/v1/messages", json=ASKED | {"messages": "Hi"}),
            post("/v1/messages/count_tokens", json={"model": "mildroute", "messages": []}),
            gateway.http.get("/v1/messages"),
        ]
        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(**ASKED | {"model": "gpt-99"})
    assert [each.status_code for each in seen] == [400, 404, 400, 400, 405]
    for each in seen:
        anthropic.types.shared.ErrorResponse.model_validate(each.json(), strict=True)


def test_the_key_of_the_gateway_comes_in_either_header() -> None:
    key = new_key()
    ring = {"key_store": KeyStore([(hash_key(key), APIClient("team-a"))])}
    with messaging(services=ring) as (client, server, gateway):
        with pytest.raises(anthropic.AuthenticationError, match="a key of this gateway"):
            client.messages.create(**ASKED)
        for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
            answer = gateway.http.post("/v1/messages", json=ASKED, headers=headers)
            assert answer.status_code == 200
        assert client.with_options(api_key=key).messages.create(**ASKED).content
        gateway.records(3)
    assert all(key not in str(call.headers) for call in server.calls)


def test_the_key_of_the_expert_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789abcdef")
    script = [fails(400, "invalid_request_error", "invalid x-api-key sk-ant-0123456789abcdef")]
    with messaging(script, api_key_env="CLAUDE_KEY") as (_, _, gateway):
        answer = gateway.http.post("/v1/messages", json=ASKED)
    assert answer.status_code == 400
    assert "0123456789" not in answer.text


def breaking(rest: list[bytes], gate: Event, *, ends: bool) -> Behavior:
    """A stream whose rest, and its end, come when the client has had its beginning.

    What breaks in the first bytes is served by another expert, and not charged.
    """
    begin = [start(), *text_block(0, "fo")[:2]]
    opened = Event()
    opened.set()
    gates = [opened] * len(begin) + [gate]
    return streams(*begin, *(rest or [b": bye\n\n"]), gates=gates, ends=ends)


def test_an_error_in_a_stream_does_not_show_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPERT_KEY", "sk-0123456789abcdef")
    error = {"type": "api_error", "message": "bad key sk-0123456789abcdef!"}
    whole = b"event: error\ndata: %b\n\n" % json.dumps({"type": "error", "error": error}).encode()
    # The key is cut in two.
    cut = whole.index(b"89abc")
    gate = Event()
    script = [breaking([whole[:cut], whole[cut:]], gate, ends=True)]
    with messaging(script, api_key_env="EXPERT_KEY") as (_, _, gateway):
        asked = ASKED | {"stream": True}
        with gateway.http.stream("POST", "/v1/messages", json=asked) as answer:
            sent = b""
            for piece in answer.iter_bytes():
                sent += piece
                gate.set()
    assert b"bad key [secret]!" in sent
    assert b"sk-0123" not in sent


def read_all(events: Iterable[Any], gate: Event) -> None:
    for _ in events:
        gate.set()


@pytest.mark.parametrize(
    ("pieces", "ends", "words"),
    [
        ([OVERLOADED], True, "Overloaded"),
        ([], False, "broke the connection"),
        ([], True, "closed the stream"),
    ],
)
def test_a_stream_that_breaks(pieces: list[bytes], ends: bool, words: str) -> None:
    gate = Event()
    with messaging([breaking(pieces, gate, ends=ends)]) as (client, _, gateway):
        with (
            pytest.raises(anthropic.APIError, match=words),
            client.messages.stream(**ASKED) as events,
        ):
            read_all(events, gate)
        (record,) = gateway.records()
    assert 0 < record.cost_usd < 1e-3


def test_details_of_a_decision() -> None:
    headers = {"x-mildroute-details": "on"}
    with messaging() as (_, _, gateway):
        whole = gateway.http.post("/v1/messages", json=ASKED, headers=headers)
        stream = gateway.http.post("/v1/messages", json=ASKED | {"stream": True}, headers=headers)
    assert whole.json()["mildroute"]["expert"] == "small"
    assert b'event: mildroute\ndata: {"type":"mildroute","mildroute":{"expert":"small"' in (
        stream.content
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("counts", [{"input_tokens": -12}, {"output_tokens": 1 << 60}])
def test_a_usage_that_cannot_be_right_is_estimated(stream: bool, counts: dict[str, int]) -> None:
    usage = USAGE | counts
    script = [
        streams(
            start(usage=usage), *text_block(0, "four"), *end(output_tokens=usage["output_tokens"])
        )
        if stream
        else answers(message(usage=usage))
    ]
    with messaging(script) as (_, _, gateway):
        assert gateway.http.post("/v1/messages", json=ASKED | {"stream": stream}).status_code == 200
        (record,) = gateway.records()
    assert record.tokens_in > 0
    assert 0 < record.tokens_out <= ASKED["max_tokens"]
    assert record.cost_usd > 0


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_written_to_the_prompt_cache_are_charged_at_their_price(stream: bool) -> None:
    usage = USAGE | {"cache_creation_input_tokens": 100}
    script = [
        streams(start(usage=usage), *text_block(0, "four"), *end())
        if stream
        else answers(message(usage=usage))
    ]
    with messaging(script, price=PRICE | {"cache_write": 1.25}) as (_, _, gateway):
        assert gateway.http.post("/v1/messages", json=ASKED | {"stream": stream}).status_code == 200
        (record,) = gateway.records()
    # 12 plain, 30 read, 100 written, 6 out.
    assert record.cost_usd == pytest.approx((12 + 3 + 125 + 60) / 1e6)
    assert record.tokens_in == 142


def test_a_stream_that_was_cut_is_charged_for_the_tokens_that_it_told() -> None:
    script = [streams(start(), *text_block(0, "fo")[:2], ends=False)]
    with messaging(script) as (_, _, gateway):
        gateway.http.post("/v1/messages", json=ASKED | {"stream": True})
        (record,) = gateway.records()
    # 12 plain, 30 read, and "fo" is one token.
    assert record.cost_usd == pytest.approx((12 + 3 + 10) / 1e6)


def test_a_flood_is_not_charged_beyond_what_the_request_allowed() -> None:
    flood = [delta(0, {"type": "text_delta", "text": "x" * 4000})] * 5
    script = [streams(start(), *text_block(0)[:1], *flood, ends=False)]
    with messaging(script) as (_, _, gateway):
        gateway.http.post("/v1/messages", json=ASKED | {"stream": True, "max_tokens": 7})
        (record,) = gateway.records()
    assert record.cost_usd == pytest.approx((12 + 3 + 70) / 1e6)


@pytest.mark.parametrize("depth", [100, 300, 900, 5_000, 100_000])
def test_requests_that_are_nested_deeply_break_nothing(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    turn = b'"model": "mildroute", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]'
    with messaging() as (_, _, gateway):
        answer = gateway.http.post(
            "/v1/messages", content=b'{%b, "tools": [{"name": "add", "x": %b}]}' % (turn, nested)
        )
    assert answer.status_code == (200 if depth == 100 else 400)
