"""Both official clients against the gateway, through experts of both kinds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import anthropic
import anthropic.types.shared
import httpx
import openai
import pytest

from mildroute.gateway.config import FailoverConfig, GatewayConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Script,
    Writer,
    answers,
    completion,
    says,
    status,
)
from tests.gateway.running import TRUST, Running, running
from tests.gateway.streams import DONE, framed, streams
from tests.support.chats import chunk, error_of_chat, gpt
from tests.support.messages import (
    OVERLOADED,
    STREAM,
    USAGE,
    claude,
    delta,
    end,
    event,
    fails,
    message,
    start,
    text_block,
)

USER = {"role": "user", "content": "2 + 2?"}
PIXEL = "data:image/png;base64,aGk="
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
PRICE = {"input": 1.0, "cached_input": 0.1, "output": 10.0}
ONCE = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, max_rounds=1))


def anthropic_at(server: HostileServer, **settings: Any) -> dict[str, Any]:
    """Settings of an expert of kind ``anthropic``."""
    url = server.url.removesuffix("/v1")
    return {"kind": "anthropic", "base_url": url, "price": PRICE, **settings}


@contextmanager
def openai_client(gateway: Running, key: str = "any") -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1",
        api_key=key,
        max_retries=0,
        http_client=httpx.Client(trust_env=False, verify=TRUST),
    ) as made:
        yield made


@contextmanager
def chatting(
    script: Script, **settings: Any
) -> Iterator[tuple[openai.OpenAI, HostileServer, Running]]:
    """The OpenAI client in front of a gateway with one expert of kind ``anthropic``."""
    with (
        HostileServer(script) as server,
        running(ONCE, small=anthropic_at(server, **settings)) as gateway,
        openai_client(gateway) as client,
    ):
        yield client, server, gateway


# OpenAI's client, an Anthropic expert.


def test_a_chat_is_answered_and_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789abcdef")
    with chatting(claude, api_key_env="CLAUDE_KEY") as (client, server, gateway):
        answer = client.chat.completions.with_raw_response.create(
            model="mildroute", messages=[{"role": "system", "content": "Be terse."}, USER]
        )
        (record,) = gateway.records()
    assert answer.parse().choices[0].message.content == "four"
    (call,) = server.calls
    assert call.path == "/v1/messages"
    assert call.headers["x-api-key"] == "sk-ant-0123456789abcdef"
    assert "authorization" not in call.headers
    assert call.json == {
        "model": "small-model",
        "max_tokens": 4096,
        "messages": [USER],
        "system": "Be terse.",
    }
    # 12 tokens in and 30 from the cache, 6 out.
    dollars = (12 * 1.0 + 30 * 0.1 + 6 * 10.0) / 1e6
    assert record.cost_usd == pytest.approx(dollars)
    assert float(answer.headers["x-mildroute-cost"]) == pytest.approx(dollars)


def test_a_stream_with_and_without_its_usage() -> None:
    with chatting(claude) as (client, _, gateway):
        chunks = list(
            client.chat.completions.create(
                model="mildroute",
                messages=[USER],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        plain = list(
            client.chat.completions.create(model="mildroute", messages=[USER], stream=True)
        )
        records = gateway.records(2)
    for found in (chunks, plain):
        said = [chunk.choices[0].delta.content or "" for chunk in found if chunk.choices]
        assert "".join(said) == "four"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 42
    assert all(chunk.usage is None for chunk in plain)
    assert records[0].cost_usd == records[1].cost_usd == pytest.approx(75e-6)


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_tools(stream: bool) -> None:
    messages: list[Any] = [USER]
    with chatting(claude) as (client, server, _):
        if stream:
            with client.chat.completions.stream(
                model="mildroute", messages=messages, tools=[TOOL]
            ) as events:
                said = events.get_final_completion().choices[0]
        else:
            said = client.chat.completions.create(
                model="mildroute", messages=messages, tools=[TOOL]
            ).choices[0]
        assert said.finish_reason == "tool_calls"
        (call,) = said.message.tool_calls
        assert json.loads(call.function.arguments) == {"a": 2, "b": 2}
        calls = [{"id": call.id, "type": "function", "function": call.function.to_dict()}]
        calls[0]["function"].pop("parsed_arguments", None)
        messages += [
            {"role": "assistant", "content": said.message.content, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call.id, "content": "4"},
        ]
        answer = client.chat.completions.create(model="mildroute", messages=messages, tools=[TOOL])
    assert answer.choices[0].message.content == "four"
    assert server.calls[-1].json["messages"][-1] == {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "4"}],
    }


def test_images_and_structured_output() -> None:
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    with chatting(claude) as (client, server, _):
        answer = client.chat.completions.create(
            model="mildroute",
            messages=[{"role": "user", "content": [image]}],  # type: ignore[list-item, typeddict-item]
            response_format=form,
        )
    assert json.loads(answer.choices[0].message.content or "") == {"sum": 4}
    sent = server.calls[0].json
    assert sent["messages"][0]["content"][0]["source"]["media_type"] == "image/png"
    assert sent["output_config"]["format"]["schema"] == schema


@pytest.mark.parametrize(
    ("behavior", "error", "words"),
    [
        (fails(400, "invalid_request_error", "bad stop"), openai.BadRequestError, "bad stop"),
        (fails(401, "authentication_error", "no key"), openai.InternalServerError, "own key"),
        (fails(429, "rate_limit_error", "slow"), openai.RateLimitError, "over its rate"),
        (fails(529, "overloaded_error", "Overloaded"), openai.InternalServerError, "had an error"),
        (status(502, {}, "<html>"), openai.InternalServerError, "had an error"),
        (answers({"content": 7}), openai.InternalServerError, "no answer"),
        (status(200, {}, "no json"), openai.InternalServerError, "no answer"),
        (status(200, {}, "[" * 200_000), openai.InternalServerError, "no answer"),
        (status(302, {"Location": "http://x"}, ""), openai.InternalServerError, "elsewhere"),
    ],
)
def test_errors(behavior: Behavior, error: type[openai.APIStatusError], words: str) -> None:
    with chatting([behavior]) as (client, _, gateway):
        with pytest.raises(error, match=words):
            client.chat.completions.create(model="mildroute", messages=[USER])
        (record,) = gateway.records()
    assert record.cost_usd == 0


def test_an_overloaded_expert_is_asked_again() -> None:
    overloaded = fails(529, "overloaded_error", "Overloaded")
    with (
        HostileServer([overloaded, answers(message())]) as server,
        running(small=anthropic_at(server)) as gateway,
    ):
        assert gateway.chat().json()["choices"][0]["message"]["content"] == "four"
    assert len(server.calls) == 2


def test_a_prompt_that_is_too_long_goes_to_an_expert_that_takes_more() -> None:
    long = fails(400, "invalid_request_error", "prompt is too long: 210 tokens > 200 maximum")
    with (
        HostileServer([long]) as server,
        HostileServer([says("four")]) as large,
        running(
            small=anthropic_at(server, context=200),
            large={"base_url": large.url, "context": 1000},
        ) as gateway,
    ):
        answer = gateway.chat()
    assert answer.headers["x-mildroute-expert"] == "large"


def test_a_retry_after_is_heeded() -> None:
    limited = fails(429, "rate_limit_error", "slow", {"retry-after": "7"})
    with (
        HostileServer([limited]) as server,
        running(ONCE, small=anthropic_at(server)) as gateway,
    ):
        answer = gateway.chat()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


def test_what_the_api_cannot_do_goes_to_another_expert_or_is_refused() -> None:
    with (
        HostileServer(claude) as server,
        HostileServer([says("four")]) as other,
        running(small=anthropic_at(server), large=other.url) as gateway,
    ):
        assert gateway.chat(n=2).headers["x-mildroute-expert"] == "large"
        refused = gateway.chat(n=2, model="small")
        embeddings = {"model": "small", "input": "x"}
        vectors = gateway.http.post("/v1/embeddings", json=embeddings)
        answer = gateway.http.post("/v1/responses", json={"model": "mildroute", "input": "x"})
    assert refused.status_code == vectors.status_code == 400
    assert "n must be 1" in refused.json()["error"]["message"]
    assert refused.json()["error"]["code"] == "unsupported"
    assert "small: path" in vectors.json()["error"]["message"]
    assert answer.headers["x-mildroute-expert"] == "large"
    assert server.calls == []


def test_a_stream_that_fails_at_once_is_served_by_another() -> None:
    with (
        HostileServer([streams(OVERLOADED)]) as server,
        HostileServer([streams(*STREAM)]) as other,
        running(ONCE, small=anthropic_at(server), large=anthropic_at(other)) as gateway,
    ):
        answer = gateway.chat(stream=True)
    assert answer.headers["x-mildroute-expert"] == "large"
    assert b"[DONE]" in answer.content


def breaking(begin: list[bytes], rest: list[bytes], gate: Event, *, ends: bool) -> Behavior:
    """A stream whose rest, and its end, come when the client has had its beginning.

    What breaks in the first bytes is served by another expert, and not charged.
    """
    opened = Event()
    opened.set()
    gates = [opened] * len(begin) + [gate]
    return streams(*begin, *(rest or [b": bye\n\n"]), gates=gates, ends=ends)


def read_all(events: Iterable[Any], gate: Event) -> None:
    for _ in events:
        gate.set()


@pytest.mark.parametrize(
    ("pieces", "ends", "words"),
    [
        ([OVERLOADED], True, "Overloaded"),
        ([], False, "broke the connection"),
        ([], True, "closed the stream"),
        ([b"data: [1]\n\n"], True, "sent what is no answer"),
        ([event({"type": "content_block_delta", "index": 0, "delta": 7})], True, "no answer"),
        ([b"data: " + b"x" * (3 << 20)], True, "no answer"),
    ],
)
def test_a_stream_that_breaks(pieces: list[bytes], ends: bool, words: str) -> None:
    gate = Event()
    script = [breaking([start(), *text_block(0, "fo")[:2]], pieces, gate, ends=ends)]
    with chatting(script) as (client, _, gateway):
        chunks = client.chat.completions.create(
            model="mildroute", messages=[USER], stream=True, max_tokens=5
        )
        with pytest.raises(openai.APIError, match=words):
            read_all(chunks, gate)
        (record,) = gateway.records()
    assert 0 < record.cost_usd < 1e-3


def test_the_key_of_the_expert_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789abcdef")
    text = "invalid x-api-key sk-ant-0123456789abcdef"
    script = [fails(400, "invalid_request_error", text)]
    with chatting(script, api_key_env="CLAUDE_KEY") as (_, _, gateway):
        assert "0123456789" not in gateway.chat().text


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("path", ["messages", "chat/completions"])
def test_an_error_in_a_stream_does_not_show_the_key(
    kind: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-0123456789abcdef"
    monkeypatch.setenv("EXPERT_KEY", key)
    failure = {"type": "error", "error": {"type": "api_error", "message": f"bad key {key}!"}}
    # The key is cut in two.
    whole = b"event: error\ndata: %b\n\n" % json.dumps(failure).encode()
    cut = whole.index(b"89abc")
    gate = Event()
    script = [breaking(BEGUN[kind], [whole[:cut], whole[cut:]], gate, ends=True)]
    with messaging(kind, script, api_key_env="EXPERT_KEY") as (_, _, gateway):
        asked = ASKED | {"stream": True}
        with gateway.http.stream("POST", f"/v1/{path}", json=asked) as answer:
            sent = b""
            for piece in answer.iter_bytes():
                sent += piece
                gate.set()
    assert b"bad key [secret]!" in sent
    assert b"sk-0123" not in sent


# Anthropic's client, experts of both kinds.


@contextmanager
def anthropic_client(gateway: Running, **settings: Any) -> Iterator[anthropic.Anthropic]:
    given = {"api_key": "any", **settings}
    with anthropic.Anthropic(base_url=gateway.url, max_retries=0, **given) as made:
        yield made


@contextmanager
def messaging(
    kind: str, script: Script | None = None, services: dict[str, Any] | None = None, **settings: Any
) -> Iterator[tuple[anthropic.Anthropic, HostileServer, Running]]:
    """Anthropic's client in front of a gateway with one expert of a kind."""
    with HostileServer(script or {"openai": gpt, "anthropic": claude}[kind]) as server:
        expert = {"base_url": server.url, "price": PRICE}
        if kind == "anthropic":
            expert = anthropic_at(server)
        with (
            running(ONCE, services=services, small=expert | settings) as gateway,
            anthropic_client(gateway) as client,
        ):
            yield client, server, gateway


BOTH = pytest.mark.parametrize("kind", ["openai", "anthropic"])
ASKED: dict[str, Any] = {"model": "mildroute", "max_tokens": 64, "messages": [USER]}
TOOL_OF_MESSAGES = {"name": "add", "description": "Adds.", "input_schema": PARAMETERS}


@BOTH
def test_a_message_is_answered_and_charged(kind: str) -> None:
    with messaging(kind) as (client, server, gateway):
        answer = client.messages.with_raw_response.create(**ASKED, system="Be terse.")
        (record,) = gateway.records()
    found = answer.parse()
    assert [block.text for block in found.content if block.type == "text"] == ["four"]
    assert (found.stop_reason, found.role, found.type) == ("end_turn", "assistant", "message")
    assert (found.usage.input_tokens, found.usage.cache_read_input_tokens) == (12, 30)
    assert found.usage.output_tokens == 6
    assert answer.headers["x-mildroute-expert"] == "small"
    assert float(answer.headers["x-mildroute-cost"]) == pytest.approx(75e-6)
    assert record.cost_usd == pytest.approx(75e-6)
    assert record.path == "messages"
    assert server.calls[0].json["model"] == "small-model"


@BOTH
def test_a_stream_of_messages(kind: str) -> None:
    with messaging(kind) as (client, _, gateway):
        with client.messages.stream(**ASKED) as events:
            kinds = [each.type for each in events if each.type != "text"]
            found = events.get_final_message()
        (record,) = gateway.records()
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 2,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found.content[0].text == "four"  # type: ignore[union-attr]
    assert (found.stop_reason, found.usage.output_tokens) == ("end_turn", 6)
    assert (found.usage.input_tokens, found.usage.cache_read_input_tokens) == (12, 30)
    assert record.cost_usd == pytest.approx(75e-6)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_tools_of_messages(kind: str, stream: bool) -> None:
    messages: list[Any] = [USER]
    asked: dict[str, Any] = ASKED | {"tools": [TOOL_OF_MESSAGES], "messages": messages}
    with messaging(kind) as (client, server, _):
        if stream:
            with client.messages.stream(**asked) as events:
                said = events.get_final_message()
        else:
            said = client.messages.create(**asked)
        assert said.stop_reason == "tool_use"
        text, call = said.content
        assert (text.type, call.type) == ("text", "tool_use")
        assert call.input == {"a": 2, "b": 2}  # type: ignore[union-attr]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "4"}  # type: ignore[union-attr]
        messages += [
            {"role": "assistant", "content": [block.to_dict() for block in said.content]},
            {"role": "user", "content": [result]},
        ]
        answer = client.messages.create(**asked)
    assert answer.content[0].text == "four"  # type: ignore[union-attr]
    last = server.calls[-1].json["messages"][-1]
    assert last["content"] == ("4" if kind == "openai" else [result])


@BOTH
def test_images_and_structured_output_of_messages(kind: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "2 + 2?"}]
    with messaging(kind) as (client, server, _):
        answer = client.messages.create(
            **ASKED | {"messages": [{"role": "user", "content": content}]},
            output_config={"format": {"type": "json_schema", "schema": schema}},
        )
    assert json.loads(answer.content[0].text) == {"sum": 4}  # type: ignore[union-attr]
    sent = server.calls[0].json
    if kind == "openai":
        assert sent["messages"][0]["content"][0]["image_url"]["url"] == PIXEL
        assert sent["response_format"]["json_schema"]["schema"] == schema


def test_a_native_request_and_its_answer_keep_every_byte() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCgIYAhIM"}
    document = message(thought, {"type": "text", "text": "four", "citations": None})
    body = (
        b'{"max_tokens": 64,  "thinking": {"type": "adaptive"}, "model": "mildroute", "messages":'
        b' [{"role": "user", "content": [{"type": "text", "text": "2 + 2? \xc3\xa9",'
        b' "cache_control": {"type": "ephemeral"}}]}]}'
    )
    headers = {"anthropic-beta": "context-1m-2025-08-07", "anthropic-version": "2026-10-21"}
    with messaging("anthropic", [answers(document)]) as (_, server, gateway):
        answer = gateway.http.post("/v1/messages", content=body, headers=headers)
    (call,) = server.calls
    assert call.body == body.replace(b'"mildroute"', b'"small-model"')
    assert call.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert call.headers["anthropic-version"] == "2026-10-21"
    assert answer.json() == document


def test_a_native_stream_keeps_every_byte() -> None:
    with messaging("anthropic") as (_, _, gateway):
        answer = gateway.http.post("/v1/messages", json=ASKED | {"stream": True})
    assert answer.content == b"".join(STREAM)


def test_tools_of_anthropic_need_an_anthropic_expert() -> None:
    asked = ASKED | {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    with (
        HostileServer([says("four")]) as small,
        HostileServer([answers(message())]) as large,
        running(small=small.url, large=anthropic_at(large)) as gateway,
    ):
        answer = gateway.http.post("/v1/messages", json=asked)
        refused = gateway.http.post("/v1/messages", json=asked | {"model": "small"})
    assert answer.headers["x-mildroute-expert"] == "large"
    assert large.calls[0].json["tools"] == asked["tools"]
    assert refused.status_code == 400
    assert (
        "tools[0] can be served by experts of kind anthropic" in refused.json()["error"]["message"]
    )
    assert small.calls == []


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}],
        [{"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}],
        [{"type": "block_of_the_future"}],
    ],
)
def test_a_message_without_a_word_for_others_goes_to_an_anthropic_expert(content: Any) -> None:
    asked = ASKED | {"messages": [{"role": "user", "content": content}]}
    with (
        HostileServer([says("four")]) as small,
        HostileServer([answers(message())]) as large,
        running(small=small.url, large=anthropic_at(large)) as gateway,
    ):
        answer = gateway.http.post("/v1/messages", json=asked)
    assert answer.status_code == 200
    assert large.calls[0].json["messages"] == asked["messages"]
    assert small.calls == []


BROKEN_ANSWERS = {
    "no choices": answers(completion("") | {"choices": []}),
    "no text": answers(completion("") | {"choices": [{"message": {"content": 7}}]}),
    "no JSON": status(200, {"content-type": "application/json"}, '{"choices": }'),
    "encoded": status(
        200, {"content-type": "application/json", "content-encoding": "gzip"}, "\x1f\x8b"
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [*BROKEN_ANSWERS])
def test_an_answer_that_cannot_be_translated_is_a_failure_of_its_expert(
    name: str, stream: bool
) -> None:
    with (
        HostileServer([BROKEN_ANSWERS[name]]) as small,
        HostileServer(claude) as large,
        running(ONCE, small=small.url, large=anthropic_at(large)) as gateway,
    ):
        answer = gateway.http.post("/v1/messages", json=ASKED | {"stream": stream})
        (record,) = gateway.records()
    assert answer.status_code == 200
    assert answer.headers["x-mildroute-expert"] == "large"
    assert [call["reason"] for call in record.attempts] == ["invalid_response", ""]


def test_a_whole_answer_to_a_stream_is_a_failure_of_its_expert() -> None:
    with (
        HostileServer([says("four")]) as small,
        HostileServer(claude) as large,
        running(ONCE, small=small.url, large=anthropic_at(large)) as gateway,
        anthropic_client(gateway) as client,
        client.messages.stream(**ASKED) as events,
    ):
        assert events.get_final_text() == "four"
    assert len(small.calls) == len(large.calls) == 1


def test_a_long_answer_that_is_no_stream_is_not_held_in_memory() -> None:
    sent: list[int] = []

    async def floods(call: Call, writer: Writer) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        for number in range(200):
            writer.write(framed(b"x" * (1 << 20)))
            await writer.drain()
            sent.append(number)
        return False

    with HostileServer([floods]) as server, running(ONCE, small=server.url) as gateway:
        answer = gateway.http.post("/v1/messages", json=ASKED | {"stream": True})
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "api_error"
    assert len(sent) < 100


def test_a_stream_that_cannot_be_translated_tells_its_decision() -> None:
    script = [streams(chunk({"content": 7}), DONE)]
    with messaging("openai", script) as (_, _, gateway):
        answer = gateway.http.post("/v1/messages", json=ASKED | {"stream": True})
        (record,) = gateway.records()
    if answer.status_code == 502:
        assert answer.headers["x-mildroute-decision-id"] == record.decision_id
    assert (record.status, record.attempts[0]["reason"]) == (502, "invalid_response")


@BOTH
def test_a_translated_body_is_called_json(kind: str) -> None:
    headers = {
        "content-type": "application/x-www-form-urlencoded",
        "anthropic-version": "2023-01-01",
        "anthropic-beta": "a-beta",
    }
    path = {"openai": "messages", "anthropic": "chat/completions"}[kind]
    with messaging(kind) as (_, server, gateway):
        content = json.dumps(ASKED).encode()
        answer = gateway.http.post(f"/v1/{path}", content=content, headers=headers)
    assert answer.status_code == 200
    (call,) = server.calls
    assert call.headers["content-type"] == "application/json"
    assert (
        call.headers.get("anthropic-version") == {"openai": None, "anthropic": "2023-06-01"}[kind]
    )
    # OpenAI's clients may ask Anthropic for a beta.
    assert call.headers.get("anthropic-beta") == {"openai": None, "anthropic": "a-beta"}[kind]


def test_one_conversation_over_experts_of_both_kinds() -> None:
    with (
        HostileServer([status(500, {}, "{}")]) as small,
        HostileServer(claude) as large,
        running(ONCE, small=small.url, large=anthropic_at(large)) as gateway,
        anthropic_client(gateway) as client,
    ):
        answer = client.messages.with_raw_response.create(**ASKED)
    assert answer.headers["x-mildroute-expert"] == "large"
    assert answer.headers["x-mildroute-reason"] == "fallback"


@pytest.mark.parametrize(
    ("kind", "behavior", "error", "words"),
    [
        ("openai", error_of_chat(400, "bad stop"), anthropic.BadRequestError, "bad stop"),
        ("openai", status(400, {}, "<html>"), anthropic.BadRequestError, "refused"),
        ("openai", error_of_chat(401, "key"), anthropic.InternalServerError, "own key"),
        ("openai", error_of_chat(429, "slow"), anthropic.RateLimitError, "over its rate"),
        ("openai", error_of_chat(529, "x"), anthropic.InternalServerError, "had an error"),
        ("openai", answers({"choices": [7]}), anthropic.InternalServerError, "no answer"),
        ("openai", answers({"choices": []}), anthropic.InternalServerError, "no answer"),
        ("openai", says(["x"]), anthropic.InternalServerError, None),
        (
            "anthropic",
            fails(400, "invalid_request_error", "bad stop"),
            anthropic.BadRequestError,
            "bad stop",
        ),
        (
            "anthropic",
            fails(401, "authentication_error", "x"),
            anthropic.InternalServerError,
            "own",
        ),
        ("anthropic", fails(429, "rate_limit_error", "x"), anthropic.RateLimitError, "its rate"),
        ("anthropic", fails(529, "overloaded_error", "x"), anthropic.OverloadedError, "had an"),
        ("anthropic", answers({"content": 7}), anthropic.InternalServerError, "no answer"),
    ],
)
def test_errors_of_messages(
    kind: str, behavior: Behavior, error: type[anthropic.APIStatusError], words: str | None
) -> None:
    with messaging(kind, [behavior]) as (client, _, _gateway):
        if words is None:
            # Parts that are no text say nothing, as to OpenAI's clients.
            assert client.messages.create(**ASKED).content == []
            return
        with pytest.raises(error, match=words) as caught:
            client.messages.create(**ASKED)
    document: Any = caught.value.body
    anthropic.types.shared.ErrorResponse.model_validate(document)
    assert document["type"] == "error"


def test_errors_of_the_gateway_itself_have_the_shape() -> None:
    with messaging("openai") as (client, _, gateway):
        post = gateway.http.post
        answers_seen = [
            post("/v1/messages", content=b"{"),
            post("/v1/messages", json=ASKED | {"model": "gpt-99"}),
            post("/v1/messages", json={"model": "mildroute", "messages": [USER]}),
            post("/v1/messages", json=ASKED | {"messages": "Hi"}),
            post("/v1/messages", content=b'{"model": "a", "model": "b"}'),
            post("/v1/messages/count_tokens", json=ASKED),
            gateway.http.get("/v1/messages"),
        ]
        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(**ASKED | {"model": "gpt-99"})
    assert [each.status_code for each in answers_seen] == [400, 404, 400, 400, 400, 404, 405]
    for each in answers_seen:
        anthropic.types.shared.ErrorResponse.model_validate(each.json(), strict=True)


def test_the_key_of_the_gateway_comes_in_either_header() -> None:
    key = new_key()
    ring = {"key_store": KeyStore([(hash_key(key), APIClient("team-a"))])}
    with messaging("anthropic", services=ring) as (client, server, gateway):
        with pytest.raises(anthropic.AuthenticationError, match="a key of this gateway"):
            client.messages.create(**ASKED)
        for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
            answer = gateway.http.post("/v1/messages", json=ASKED, headers=headers)
            assert answer.status_code == 200
        assert client.with_options(api_key=key).messages.create(**ASKED).content
        gateway.records(3)
    assert all(key not in str(call.headers) for call in server.calls)


BEGUN = {
    "openai": [chunk({"content": "fo"})],
    "anthropic": [start(), *text_block(0, "fo")[:2]],
}


@pytest.mark.parametrize(
    ("kind", "pieces", "ends", "words"),
    [
        ("openai", [], False, "broke the connection"),
        ("openai", [], True, "closed the stream"),
        ("openai", [b'data: {"error": "x"}\n\n'], True, "x"),
        ("openai", [chunk({"content": {}})], True, "closed the stream"),
        ("openai", [chunk({"content": 7})], True, "no answer"),
        ("openai", [b"data: [1]\n\n"], True, "no answer"),
        ("anthropic", [OVERLOADED], True, "Overloaded"),
        ("anthropic", [], False, "broke the connection"),
        ("anthropic", [b"data: [1]\n\n"], True, "no answer"),
    ],
)
def test_a_stream_of_messages_that_breaks(
    kind: str, pieces: list[bytes], ends: bool, words: str
) -> None:
    gate = Event()
    script = [breaking(BEGUN[kind], pieces, gate, ends=ends)]
    with messaging(kind, script) as (client, _, gateway):
        with (
            pytest.raises(anthropic.APIError, match=words),
            client.messages.stream(**ASKED) as events,
        ):
            read_all(events, gate)
        (record,) = gateway.records()
    assert 0 < record.cost_usd < 1e-3


@BOTH
def test_details_of_a_decision(kind: str) -> None:
    headers = {"x-mildroute-details": "on"}
    with messaging(kind) as (_, _, gateway):
        whole = gateway.http.post("/v1/messages", json=ASKED, headers=headers)
        stream = gateway.http.post("/v1/messages", json=ASKED | {"stream": True}, headers=headers)
    assert whole.json()["mildroute"]["expert"] == "small"
    assert b'event: mildroute\ndata: {"type": "mildroute", "mildroute": {"expert": "small"' in (
        stream.content
    )


def test_a_large_image_is_passed_on() -> None:
    data = "aGk=" * 400_000
    source = {"type": "base64", "media_type": "image/png", "data": data}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "2 + 2?"}]
    asked = ASKED | {"messages": [{"role": "user", "content": content}]}
    with messaging("openai") as (_, server, gateway):
        assert gateway.http.post("/v1/messages", json=asked).status_code == 200
        (record,) = gateway.records()
    assert len(server.calls[0].json["messages"][0]["content"][0]["image_url"]["url"]) > 1_600_000
    assert record.path == "messages"


# Bills.


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
    with messaging("anthropic", script) as (_, _, gateway):
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
    price = PRICE | {"cache_write": 1.25}
    with messaging("anthropic", script, price=price) as (_, _, gateway):
        assert gateway.chat(stream=stream).status_code == 200
        (record,) = gateway.records()
    # 12 plain, 30 read, 100 written, 6 out.
    assert record.cost_usd == pytest.approx((12 + 3 + 125 + 60) / 1e6)
    assert record.tokens_in == 142


def test_a_stream_that_was_cut_is_charged_for_the_tokens_that_it_told() -> None:
    script = [streams(start(), *text_block(0, "fo")[:2], ends=False)]
    with messaging("anthropic", script) as (_, _, gateway):
        gateway.chat(stream=True)
        (record,) = gateway.records()
    # 12 plain, 30 read, and "fo" is one token.
    assert record.cost_usd == pytest.approx((12 + 3 + 10) / 1e6)


def test_a_flood_is_not_charged_beyond_what_the_request_allowed() -> None:
    flood = [delta(0, {"type": "text_delta", "text": "x" * 4000})] * 5
    script = [streams(start(), *text_block(0)[:1], *flood, ends=False)]
    with messaging("anthropic", script) as (_, _, gateway):
        gateway.chat(stream=True, max_tokens=7)
        (record,) = gateway.records()
    assert record.cost_usd == pytest.approx((12 + 3 + 70) / 1e6)


@pytest.mark.parametrize("depth", [100, 900, 990, 5_000, 100_000])
def test_requests_that_are_nested_deeply_break_nothing(depth: int) -> None:
    tool = b'{"name": "add", "input_schema": {"a": %b}}' % (b"[" * depth + b"]" * depth)
    turn = b'"model": "mildroute", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]'
    function = b'{"type": "function", "function": {"name": "add", "parameters": {"a": %b}}}' % (
        b"[" * depth + b"]" * depth
    )
    for kind in ("openai", "anthropic"):
        with messaging(kind) as (_, _, gateway):
            native = gateway.http.post(
                "/v1/messages", content=b'{%b, "tools": [%b]}' % (turn, tool)
            )
            chat = gateway.http.post(
                "/v1/chat/completions", content=b'{%b, "tools": [%b]}' % (turn, function)
            )
        assert native.status_code in (200, 400)
        assert chat.status_code in (200, 400)
