"""Translation between chats and messages, and experts of kind ``anthropic`` while collecting."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import anthropic.types
import pytest
from hypothesis import given, settings, strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from mildroute.exceptions import ArgumentError
from mildroute.experts.anthropic import (
    ChatStream,
    MessageStream,
    TranslationError,
    chat_error,
    chat_to_messages,
    completion_to_message,
    message_to_completion,
    messages_to_chat,
)
from mildroute.experts.base import Answer, Query
from mildroute.experts.config import ExpertSpec, build_expert, read_experts
from tests.experts.asking import ask
from tests.experts.hostile_server import HostileServer, answers
from tests.support.messages import (
    OVERLOADED,
    PING,
    STREAM,
    TOOL_USE,
    USAGE,
    block_start,
    delta,
    end,
    event,
    fails,
    message,
    start,
    text_block,
    tool_block,
)

USER = {"role": "user", "content": "2 + 2?"}
PIXEL = "data:image/png;base64,aGk="
CALL = {
    "id": "toolu_1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a": 2}'},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def translated(**fields: Any) -> dict[str, Any]:
    return chat_to_messages({"model": "m", "messages": [USER], **fields})


# Requests.


@pytest.mark.parametrize(
    ("fields", "bound"),
    [({}, 4096), ({"max_tokens": 0}, 0), ({"max_completion_tokens": 0, "max_tokens": 5}, 0)],
)
def test_a_bound_of_zero_is_not_the_default(fields: dict[str, Any], bound: int) -> None:
    assert chat_to_messages({"model": "m", "messages": [USER], **fields})["max_tokens"] == bound


@pytest.mark.parametrize(
    "arguments", ['{"a": NaN}', '{"a": 1e999}', '{"a": [' + "1, " * 200_000 + "1]}", "[]", 7]
)
def test_arguments_that_no_json_can_hold_are_refused(arguments: Any) -> None:
    call = CALL | {"function": {"name": "add", "arguments": arguments}}
    chat = {"model": "m", "messages": [USER, {"role": "assistant", "tool_calls": [call]}]}
    with pytest.raises(TranslationError, match="must be a JSON object in a text"):
        chat_to_messages(chat)


def test_many_messages_of_one_role_are_joined_in_their_order() -> None:
    """Of 66,000 the translation took 13 seconds: it copied all earlier ones with each."""
    messages = [{"role": "user", "content": str(place)} for place in range(60_000)]
    started = time.process_time()
    (turn,) = chat_to_messages({"model": "m", "messages": messages})["messages"]
    assert time.process_time() - started < 3
    assert [block["text"] for block in turn["content"]] == [str(n) for n in range(60_000)]


def test_a_chat_of_all_roles_becomes_alternating_turns() -> None:
    chat = [
        {"role": "system", "content": "Be terse."},
        USER,
        {"role": "assistant", "content": "Let me add.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "4"},
        {"role": "user", "content": [{"type": "text", "text": "And this?"}]},
        {"role": "developer", "content": "In English."},
    ]
    request = chat_to_messages({"model": "m", "messages": chat, "max_tokens": 9})
    assert request["system"] == "Be terse.\nIn English."
    assert request["messages"] == [
        {"role": "user", "content": "2 + 2?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me add."},
                {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"},
                {"type": "text", "text": "And this?"},
            ],
        },
    ]


def test_turns_of_the_same_role_are_merged_and_empty_ones_left_out() -> None:
    chat = [USER, {"role": "assistant", "content": ""}, {"role": "user", "content": "Well?"}]
    texts = [{"type": "text", "text": text} for text in ("2 + 2?", "Well?")]
    assert translated(messages=chat)["messages"] == [{"role": "user", "content": texts}]


def test_fields_have_their_counterparts() -> None:
    request = translated(
        max_completion_tokens=7,
        temperature=1.7,
        top_p=0.9,
        stop=["END", "\n"],
        user="u1",
        seed=3,
        frequency_penalty=0.5,
        stream=True,
        stream_options={"include_usage": True},
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": 1}}},
    )
    del request["messages"]
    assert request == {
        "model": "m",
        "max_tokens": 7,
        "stream": True,
        "temperature": 1,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u1"},
        "output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}},
    }


def test_sampling_can_be_left_out_for_models_that_refuse_it() -> None:
    chat = {"model": "m", "messages": [USER], "temperature": 0, "top_p": 1, "top_k": 5}
    assert chat_to_messages(chat, sampling=False).keys() == {"model", "max_tokens", "messages"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "add"}}, {"type": "tool", "name": "add"}),
    ],
)
def test_tools_and_their_choice(choice: Any, expected: dict[str, Any]) -> None:
    request = translated(tools=[TOOL], tool_choice=choice)
    (tool,) = request["tools"]
    assert (tool["name"], tool["description"]) == ("add", "Adds.")
    assert tool["input_schema"] == TOOL["function"]["parameters"]  # type: ignore[index]
    assert request["tool_choice"] == expected


def test_tools_one_at_a_time() -> None:
    request = translated(tools=[TOOL], parallel_tool_calls=False)
    assert request["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_images_by_their_data_or_their_address() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    request = translated(messages=[{"role": "user", "content": parts}])
    assert [part["source"] for part in request["messages"][0]["content"]] == [
        {"type": "base64", "media_type": "image/png", "data": "aGk="},
        {"type": "url", "url": "https://example.com/a.png"},
    ]


def test_marks_for_the_prompt_cache_are_kept() -> None:
    mark = {"type": "ephemeral"}
    part = {"type": "text", "text": "A book.", "cache_control": mark}
    request = translated(messages=[{"role": "system", "content": [part]}, USER])
    assert request["system"] == [part]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "custom"}]}, "tools[0]"),
        ({"tools": [7]}, "tools[0]"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"stop": {"a": 1}}, "stop"),
        ({"messages": None}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "function"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages[0].content"),
    ],
)
def test_what_cannot_be_translated_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(TranslationError) as caught:
        translated(**fields)
    assert caught.value.param == param


# Answers.


def test_an_answer_with_tools_and_cached_tokens_is_a_chat_completion() -> None:
    document = message({"type": "text", "text": "Adding."}, TOOL_USE, stop_reason="tool_use")
    found = ChatCompletion.model_validate(message_to_completion(document), strict=True)
    assert found.choices[0].finish_reason == "tool_calls"
    assert found.choices[0].message.content == "Adding."
    call = found.choices[0].message.tool_calls[0]  # type: ignore[index]
    assert json.loads(call.function.arguments) == {"a": 2, "b": 2}  # type: ignore[union-attr]
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (42, 6)
    assert found.usage.prompt_tokens_details is not None
    assert found.usage.prompt_tokens_details.cached_tokens == 30


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("of_the_future", "stop"),
    ],
)
def test_reasons_to_stop(stop_reason: str, finish_reason: str) -> None:
    found = message_to_completion(message(stop_reason=stop_reason))
    assert found["choices"][0]["finish_reason"] == finish_reason


def test_thoughts_are_no_part_of_the_text() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    said = message_to_completion(message(thought, {"type": "text", "text": "4"}))["choices"][0]
    assert said["message"]["content"] == "4"
    assert said["message"]["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"content": "four"},
        {"content": ["four"]},
        {"content": [{"type": "text", "text": 4}]},
        {"content": [{"type": "tool_use", "id": 1, "name": "add", "input": {}}]},
        {"content": [{"type": "tool_use", "id": "t", "name": "add", "input": "{}"}]},
        {"type": "error", "error": {}},
    ],
)
def test_what_is_no_answer_is_an_error(document: Any) -> None:
    with pytest.raises(TranslationError):
        message_to_completion(document)


def test_usage_that_cannot_be_right_is_not_told() -> None:
    for usage in (
        None,
        7,
        {},
        {"input_tokens": "12"},
        USAGE | {"input_tokens": -12},
        USAGE | {"input_tokens": 1 << 60},
        USAGE | {"output_tokens": -6},
        {"input_tokens": 12},
    ):
        assert "usage" not in message_to_completion(message(usage=usage))
    found = message_to_completion(message(usage=USAGE | {"cache_read_input_tokens": -5}))
    assert found["usage"]["prompt_tokens"] == 12


def test_errors_of_any_shape() -> None:
    for long in (
        "prompt is too long: 210000 tokens > 200000 maximum",
        "request (9 tokens) exceeds the available context size (8 tokens)",
    ):
        document = {"type": "error", "error": {"type": "invalid_request_error", "message": long}}
        assert chat_error(document)["error"]["code"] == "context_length_exceeded"
    for document in (None, {}, {"error": "x"}, {"error": {"message": 7}}):
        assert chat_error(document)["error"]["type"] == "api_error"


# Streams.


def chunks_of(*pieces: bytes) -> list[ChatCompletionChunk]:
    stream = ChatStream()
    sent = b"".join(map(stream.feed, pieces))
    datas = [line[6:] for line in sent.split(b"\n") if line.startswith(b"data: ")]
    assert datas[-1] == b"[DONE]"
    return [ChatCompletionChunk.model_validate_json(data, strict=True) for data in datas[:-1]]


def test_a_stream_is_one_of_chunks_with_its_usage_at_the_end() -> None:
    chunks = chunks_of(*STREAM)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "four"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (42, 6)


def test_tools_in_a_stream() -> None:
    chunks = chunks_of(
        start(),
        *text_block(0, "Adding."),
        *tool_block(1, '{"a":', " 2}"),
        *tool_block(2, name="now", id="toolu_2"),
        *end("tool_use"),
    )
    calls: dict[int, list[str]] = {}
    for chunk in chunks[:-1]:
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function is not None
            calls.setdefault(call.index, []).append(call.function.arguments or "")
    assert {index: "".join(parts) for index, parts in calls.items()} == {0: '{"a": 2}', 1: "{}"}
    assert chunks[-2].choices[0].finish_reason == "tool_calls"


@given(st.lists(st.integers(1, 60), max_size=40), st.sampled_from([b"\n", b"\r\n"]))
def test_a_stream_may_be_cut_anywhere(sizes: list[int], newline: bytes) -> None:
    whole = b"".join(STREAM).replace(b"\n", newline)
    stream, pieces, at = ChatStream(created=1), b"", 0
    for size in [*sizes, len(whole)]:
        pieces += stream.feed(whole[at : at + size])
        at += size
    assert pieces == ChatStream(created=1).feed(whole)


def test_pings_keep_the_connection_alive_and_errors_are_told() -> None:
    stream = ChatStream()
    assert stream.feed(PING) == b": ping\n\n"
    told = json.loads(stream.feed(OVERLOADED)[6:])
    assert told["error"] == {
        "message": "Overloaded",
        "type": "overloaded_error",
        "param": None,
        "code": "overloaded_error",
    }


@pytest.mark.parametrize(
    "piece",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"data: " + b"x" * (3 << 20),
        event({"type": "message_start", "message": "x"}),
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}}),
        block_start(0, {"type": "tool_use", "id": None, "name": "add", "input": {}}),
        delta(0, {"type": "text_delta", "text": ["x"]}),
        event({"type": "content_block_stop", "index": "0"}),
    ],
)
def test_a_stream_of_something_else_is_an_error(piece: bytes) -> None:
    with pytest.raises(TranslationError):
        ChatStream().feed(piece)


def test_kinds_of_events_and_blocks_of_the_future_are_passed_over() -> None:
    stream = ChatStream()
    assert stream.feed(event({"type": "message_of_the_future"})) == b""
    assert stream.feed(block_start(0, {"type": "server_tool_use", "id": "x"})) == b""
    assert stream.feed(delta(0, {"type": "signature_delta", "signature": "x"})) == b""


# There and back again.


texts = st.text(min_size=1, max_size=20)
names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
json_objects = st.dictionaries(
    names, st.one_of(st.integers(-9, 9), st.booleans(), texts, st.lists(texts, max_size=2))
)
calls = st.builds(
    lambda name, given: {
        "id": f"toolu_{name}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(given, ensure_ascii=False)},
    },
    names,
    json_objects,
)
images = st.just({"type": "image_url", "image_url": {"url": PIXEL}})
text_parts = st.builds(lambda text: {"type": "text", "text": text}, texts)


@st.composite
def chats(draw: st.DrawFn) -> dict[str, Any]:
    """Conversations in the form that a translation gives: roles that alternate."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(texts)})
    for _ in range(draw(st.integers(1, 3))):
        parts = draw(st.lists(st.one_of(text_parts, images), min_size=2, max_size=3))
        messages.append({"role": "user", "content": draw(st.one_of(texts, st.just(parts)))})
        made = draw(st.lists(calls, max_size=2))
        said: dict[str, Any] = {"role": "assistant", "content": draw(texts)}
        if made:
            said |= {"tool_calls": made, "content": draw(st.one_of(st.none(), texts))}
        messages.append(said)
        for call in made:
            result = {"role": "tool", "tool_call_id": call["id"], "content": draw(texts)}
            messages.append(result)
    chat: dict[str, Any] = {"model": "m", "messages": messages, "max_tokens": 9}
    if draw(st.booleans()):
        chat |= {"tools": [TOOL], "tool_choice": draw(st.sampled_from(["auto", "required"]))}
    return chat


@given(chats())
def test_a_request_there_and_back_is_the_same(chat: dict[str, Any]) -> None:
    request = chat_to_messages(chat)
    TypeAdapter(list[anthropic.types.MessageParam]).validate_python(request["messages"])
    back, lost = messages_to_chat(request)
    assert lost == []
    merged, _ = messages_to_chat(chat_to_messages(back))
    assert back == merged
    assert _said(back) == _said(chat)
    assert {name: back[name] for name in back if name != "messages"} == {
        name: chat[name] for name in chat if name != "messages"
    }


def _said(chat: dict[str, Any]) -> list[Any]:
    """Texts, images, calls and results in their order, whichever messages they stand in."""
    said: list[Any] = []
    for each in chat["messages"]:
        content = each["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        said += [(each["role"], part) for part in parts]
        said += [
            (call["id"], json.loads(call["function"]["arguments"]))
            for call in each.get("tool_calls", ())
        ]
    return said


@given(
    st.one_of(st.none(), texts),
    st.lists(calls, max_size=3),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_an_answer_there_and_back_is_the_same(
    text: str | None, made: list[Any], tokens_in: int, tokens_out: int, cached: int
) -> None:
    cached = min(cached, tokens_in)
    said = {"role": "assistant", "content": text or ("" if not made else None)}
    completion = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": said | ({"tool_calls": made} if made else {}),
                "logprobs": None,
                "finish_reason": "tool_calls" if made else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        },
    }
    found = completion_to_message(completion)
    anthropic.types.Message.model_validate(found, strict=True)
    assert message_to_completion(found, created=1) == completion


def call_part(place: int | None, arguments: Any = "", **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": fields["id"]} if "id" in fields else {})
    return ({} if place is None else {"index": place}) | fields | {"function": function}


A, B = {"id": "a"}, {"id": "b"}


@pytest.mark.parametrize(
    "parts",
    [
        # One after the other, as nearly all servers send them.
        [call_part(0, **A), call_part(0, '{"x": 1}'), call_part(1, **B), call_part(1, '{"y": 2}')],
        # Mixed.
        [
            call_part(0, **A),
            call_part(1, **B),
            call_part(0, '{"x":'),
            call_part(1, '{"y":'),
            call_part(0, " 1}"),
            call_part(1, " 2}"),
        ],
        # All in the same place, or in none.
        [call_part(0, '{"x": 1}', **A), call_part(0, '{"y": 2}', **B)],
        [call_part(None, '{"x": 1}', **A), call_part(None, '{"y": 2}', **B)],
        # The id again with each part.
        [call_part(0, '{"x"', **A), call_part(0, ": 1}", **A), call_part(1, '{"y": 2}', **B)],
        # The object itself.
        [call_part(0, {"x": 1}, **A), call_part(1, {"y": 2}, **B)],
    ],
)
def test_calls_are_blocks_one_after_the_other(parts: list[dict[str, Any]]) -> None:
    stream = MessageStream()
    deltas = [{"tool_calls": [part]} for part in parts]
    chunks = [{"choices": [{"index": 0, "delta": each}]} for each in deltas]
    sent = b"".join(stream.feed(b"data: %b\n\n" % json.dumps(each).encode()) for each in chunks)
    sent += stream.feed(b"data: [DONE]\n\n")
    events = [json.loads(line[6:]) for line in sent.split(b"\n") if line.startswith(b"data: ")]
    inputs: dict[str, str] = {}
    opened = ""
    for each in events[1:-2]:
        # A delta or an end always belongs to the block that is open, and they are counted.
        assert each["index"] == len(inputs) - (each["type"] != "content_block_start")
        if each["type"] == "content_block_start":
            assert not opened
            opened = each["content_block"]["name"]
            inputs[opened] = ""
        elif each["type"] == "content_block_delta":
            inputs[opened] += each["delta"]["partial_json"]
        else:
            opened = ""
    assert {name: json.loads(text) for name, text in inputs.items()} == {
        "a": {"x": 1},
        "b": {"y": 2},
    }
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_calls_without_an_id_get_one() -> None:
    functions = [{"name": "f", "arguments": '{"x": 1}'}, {"name": "g", "arguments": '{"y": 2}'}]
    calls_ = [
        {"index": 0, "function": functions[0]},
        {"index": 0, "id": "", "function": functions[1]},
    ]
    whole = completion_to_message({"choices": [{"message": {"tool_calls": calls_}}]})["content"]
    stream = MessageStream()
    chunks = [{"choices": [{"delta": {"tool_calls": [each]}}]} for each in calls_]
    sent = b"".join(stream.feed(b"data: %b\n\n" % json.dumps(each).encode()) for each in chunks)
    events = [json.loads(line[6:]) for line in sent.split(b"\n") if line.startswith(b"data: ")]
    blocks = [each["content_block"] for each in events if each["type"] == "content_block_start"]
    for found in (whole, blocks):
        assert [block["name"] for block in found] == ["f", "g"]
        assert len({block["id"] for block in found}) == 2
        assert all(block["id"].startswith("toolu_") for block in found)


def test_arguments_that_come_too_late_are_an_error() -> None:
    stream = MessageStream()
    for delta_ in ({"tool_calls": [call_part(0, '{"x":', **A)]}, {"content": "Wait."}):
        stream.feed(b"data: %b\n\n" % json.dumps({"choices": [{"delta": delta_}]}).encode())
    late = {"choices": [{"delta": {"tool_calls": [call_part(0, " 1}")]}}]}
    with pytest.raises(TranslationError, match="before the next block"):
        stream.feed(b"data: %b\n\n" % json.dumps(late).encode())


def test_a_turn_that_only_anthropic_understands_is_one() -> None:
    file = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
    asked = {"max_tokens": 9, "messages": [{"role": "user", "content": [file]}]}
    chat, lost = messages_to_chat(asked)
    assert chat["messages"] == [{"role": "user", "content": ""}]
    assert lost == ["messages[0].content"]


@given(st.lists(st.one_of(texts, calls), max_size=4), st.integers(0, 99), st.integers(0, 99))
def test_a_stream_there_and_back_says_the_same(
    said: list[Any], tokens_in: int, tokens_out: int
) -> None:
    blocks: list[bytes] = []
    for index, each in enumerate(said):
        if isinstance(each, str):
            blocks += text_block(index, each)
        else:
            function = each["function"]
            parts = (function["arguments"],)
            blocks += tool_block(index, *parts, name=function["name"], id=each["id"])
    usage = {"input_tokens": tokens_in, "output_tokens": tokens_out}
    begin = event({"type": "message_start", "message": message(content=[], usage=usage)})
    first = ChatStream(created=1).feed(b"".join([begin, *blocks, *end("end_turn", tokens_out)]))
    second = ChatStream(created=1).feed(MessageStream().feed(first))
    assert _streamed(second) == _streamed(first)


def _streamed(events: bytes) -> tuple[str, dict[int, str], Any]:
    text, arguments, usage = "", {}, None
    for line in events.split(b"\n"):
        if line.startswith(b"data: {"):
            document = json.loads(line[6:])
            usage = document.get("usage") or usage
            for choice in document["choices"]:
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", ()):
                    at = call["index"]
                    part = call["function"].get("name", "") + call["function"]["arguments"]
                    arguments[at] = arguments.get(at, "") + part
    return text, arguments, usage


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "text", "content", "role", "source", "id", "name", "input"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["messages", "system", "tools", "stop", "tool_choice", "metadata"]),
        json_values,
        min_size=1,
        max_size=2,
    )
)
def test_no_shape_of_a_request_is_anything_but_a_translation_error(fields: dict[str, Any]) -> None:
    for translate in (chat_to_messages, messages_to_chat):
        with contextlib.suppress(TranslationError):
            translate({"model": "m", "max_tokens": 1, "messages": [USER], **fields})


@settings(max_examples=300)
@given(json_values)
def test_no_shape_of_an_answer_is_anything_but_a_translation_error(document: Any) -> None:
    for given_ in (document, {"content": document}, {"choices": [{"message": document}]}):
        for translate in (message_to_completion, completion_to_message, chat_error):
            with contextlib.suppress(TranslationError):
                translate(given_)


# Collection.


def claude_at(url: str, **settings: Any) -> Any:
    given_ = {"base_url": url.removesuffix("/v1"), "model": "claude-test", "retries": 1, **settings}
    return build_expert(ExpertSpec("claude", "anthropic", given_))


def answer_of(server: HostileServer, **settings: Any) -> Answer:
    (found,) = ask(claude_at(server.url, **settings), Query("q1", "2 + 2?"))
    return found


def test_collection_asks_the_messages_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789abcdef")
    price = {"input": 1.0, "output": 10.0}
    with HostileServer([answers(message())]) as server:
        found = answer_of(
            server,
            api_key_env="CLAUDE_KEY",
            price=price,
            prompt={"system": "Be terse."},
            request={"max_tokens": 64, "temperature": 0},
        )
    (call,) = server.calls
    assert call.path == "/v1/messages"
    assert call.headers["x-api-key"] == "sk-ant-0123456789abcdef"
    assert call.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in call.headers
    assert call.json == {
        "model": "claude-test",
        "max_tokens": 64,
        "messages": [USER],
        "system": "Be terse.",
        "temperature": 0,
    }
    assert (found.text, found.tokens_in, found.tokens_out) == ("four", 42, 6)
    assert found.dollars == pytest.approx((42 * 1 + 6 * 10) / 1e6)


def test_collection_tries_again_when_the_api_is_overloaded() -> None:
    overloaded = fails(529, "overloaded_error", "Overloaded")
    with HostileServer([overloaded, answers(message())]) as server:
        found = answer_of(server)
    assert (found.text, found.attempts) == ("four", 2)


def test_collection_reports_errors_in_the_words_of_the_api() -> None:
    with HostileServer([fails(400, "invalid_request_error", "max_tokens: too large")]) as server:
        found = answer_of(server)
    assert found.error == "HTTP 400: max_tokens: too large"
    with HostileServer([answers({"content": 7})]) as server:
        found = answer_of(server)
    assert found.error is not None
    assert "the body is no message" in found.error


def test_what_an_answer_can_cost_is_bounded_by_the_default(tmp_path: Path) -> None:
    expert = claude_at("http://127.0.0.1:1", price={"input": 0, "output": 10}, retries=0)
    assert expert.max_cost(Query("q1", "Hi")) == pytest.approx(4096 * 10 / 1e6)


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experts.yaml"
    path.write_text(
        "experts: {c: {kind: anthropic, base_url: 'https://x.example', model: m, api_key_env: KEY,"
        " headers: {X-API-Key: {env: OTHER}}}}"
    )
    with pytest.raises(ArgumentError, match="'x-api-key' beside api_key_env"):
        read_experts(path)


def test_a_file_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experts.yaml"
    line = "  claude: {kind: anthropic, base_url: 'https://api.anthropic.com', model: m, "
    path.write_text(f"experts:\n{line}sampling: false}}\n")
    assert read_experts(path).experts[0].kind == "anthropic"
    for wrong in ("logprobs: true", "request: {n: 3}", "prompt: {raw: '{input}'}"):
        path.write_text(f"experts:\n{line}{wrong}}}\n")
        with pytest.raises(ArgumentError):
            read_experts(path)
