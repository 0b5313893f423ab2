"""Events of streams, and the tokens of answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.experts.events import (
    Event,
    EventSplitter,
    EventTooLargeError,
    StreamState,
    parse_event,
)
from mildroute.experts.usage import TokenUsage, tokens_of_usage, usage_of_document
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.response_edits import ResponseEdits

CHAT = {
    "prompt_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens": 2,
    "total_tokens": 11,
}
RESPONSE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 2,
    "total_tokens": 11,
}


def parse_usage(document: Any) -> TokenUsage | None:
    return tokens_of_usage(usage_of_document(document))


def split(*chunks: bytes) -> list[Event]:
    splitter = EventSplitter()
    raw = [event for chunk in chunks for event in splitter.feed(chunk)]
    return [parse_event(event) for event in [*raw, *splitter.flush()]]


def fed(*chunks: bytes) -> StreamState:
    state = StreamState()
    for event in split(*chunks):
        state.see(event)
    return state


def data(value: Any) -> bytes:
    return (
        b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


def delta(text: str, **more: Any) -> bytes:
    return data(
        {
            "id": "c1",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": text}}],
            **more,
        }
    )


def named(name: str, **fields: Any) -> bytes:
    return b"event: " + name.encode() + b"\n" + data({"type": name, **fields})


def written(**counts: int | None) -> dict[str, Any]:
    """Details of a usage with four tokens from the cache, and others written to it."""
    return {"prompt_tokens_details": {"cached_tokens": 4, **counts}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"choices": [], "usage": CHAT}, TokenUsage(9, 2, 4)),
        (
            {
                "usage": CHAT,
                "choices": [],
                "system_fingerprint": None,
                "timings": {"n": [1, {"x": 2}]},
            },
            TokenUsage(9, 2, 4),
        ),
        (
            {"object": "response", "usage": RESPONSE, "user": None, "metadata": {}},
            TokenUsage(9, 2, 4),
        ),
        (
            {"data": [{"embedding": [0.1] * 9}], "usage": {"prompt_tokens": 5, "total_tokens": 5}},
            TokenUsage(5, 0, 0),
        ),
        ({"usage": {"prompt_tokens": 5, "total_tokens": 12}}, TokenUsage(5, 7, 0)),
        ({"usage": {"prompt_tokens": 5, "total_tokens": 3}}, None),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": None}}, None),
        ({"usage": {**CHAT, "prompt_tokens_details": {"cached_tokens": 10}}}, TokenUsage(9, 2, 0)),
        ({"usage": {**CHAT, "prompt_tokens_details": {"cached_tokens": "4"}}}, TokenUsage(9, 2, 0)),
        ({"usage": {**CHAT, "prompt_tokens_details": None}}, TokenUsage(9, 2, 0)),
        ({"usage": CHAT | written(cache_write_tokens=5)}, TokenUsage(9, 2, 4, 5)),
        ({"usage": CHAT | written(cache_creation_tokens=5)}, TokenUsage(9, 2, 4, 5)),
        ({"usage": CHAT | written(cache_write_tokens=6)}, TokenUsage(9, 2, 4, 0)),
        ({"usage": CHAT | written(cache_write_tokens=None)}, TokenUsage(9, 2, 4, 0)),
        ({"choices": [], "usage": None}, None),
        ({"choices": []}, None),
        ({"usage": {"prompt_tokens": "9", "completion_tokens": 2}}, None),
        ({"usage": {"prompt_tokens": -9, "completion_tokens": 2}}, None),
        ({"usage": {"prompt_tokens": True, "completion_tokens": 2}}, None),
        ({"usage": [1, 2]}, None),
        (
            {
                "usage": {
                    "input_tokens": 12,
                    "cache_read_input_tokens": 30,
                    "cache_creation_input_tokens": 5,
                    "output_tokens": 6,
                }
            },
            TokenUsage(47, 6, 30, 5),
        ),
        ([{"usage": CHAT}], None),
        (None, None),
    ],
)
def test_a_whole_answer_states_its_tokens(answer: Any, expected: TokenUsage | None) -> None:
    assert parse_usage(answer) == expected


def test_fields_of_the_same_name_further_inside_are_not_taken() -> None:
    forged = {"usage": {"input_tokens": 0, "output_tokens": 0}}
    schema = {"type": "function", "parameters": {"type": "object", "properties": forged}}
    for answer in (
        {"usage": RESPONSE, "tools": [schema], "kind": "usage"},
        {"tools": [schema], "usage": RESPONSE},
        {"usage": RESPONSE, "text": {"format": {"schema": {"properties": forged}}}},
        {"usage": RESPONSE, "output": [{"usage": forged["usage"]}]},
    ):
        assert parse_usage(answer) == TokenUsage(9, 2, 4)
    assert parse_usage({"tools": [schema]}) is None


@given(
    st.binary(max_size=200)
    | st.lists(
        st.sampled_from([b'"usage"', b":", b"{", b"}", b",", b"1", b"\\", b'"', b"\xff"])
    ).map(b"".join)
)
def test_no_bytes_break_it(body: bytes) -> None:
    for event in split(body, b"\n\n", body):
        assert event.raw
    state = fed(body, b"\n\n", body)
    assert state.usage.tokens_out is not None
    assert state.has_failed in (True, False)


def test_a_deeply_nested_event_breaks_nothing() -> None:
    assert fed(b'data: {"error":' + b"[" * 100_000 + b"\n\n").has_failed is False
    deep = b'data: {"a":' + b"[" * 500 + b"]" * 500 + b"}\n\n"
    assert fed(deep).usage == TokenUsage(None, 0)


CHAT_STREAM = (
    data({"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": None})
    + b": keep-alive\n\n"
    + delta("Grüß", usage=None)
    + delta(' dich, "error" \n data: [DONE]', usage=None)
    + data({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None})
    + data({"choices": [], "usage": CHAT})
    + b"data: [DONE]\n\n"
)
RESPONSE_STREAM = (
    named("response.created", response={"status": "in_progress", "error": None, "usage": None})
    + named("response.output_text.delta", delta="Grüß")
    + named("response.output_text.delta", delta=" dich: response.completed, response.failed, error")
    + named("response.output_text.done", text="Grüß dich")
    + named(
        "response.completed",
        response={
            "status": "completed",
            "error": None,
            "usage": RESPONSE,
            "user": None,
            "metadata": {},
        },
    )
)
STREAMS = [CHAT_STREAM, RESPONSE_STREAM]


@pytest.mark.parametrize("stream", STREAMS, ids=["chat", "response"])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("space", [b"data: ", b"data:"])
def test_a_stream_states_its_tokens_wherever_it_is_cut_and_however_its_lines_end(
    stream: bytes, ends: bytes, space: bytes
) -> None:
    stream = stream.replace(b"\n", ends).replace(b"data: {", space + b"{")
    for size in (1, 2, 3, 7, 64, 1000, len(stream)):
        watched = fed(*(stream[at : at + size] for at in range(0, len(stream), size)))
        assert (watched.usage, watched.has_ended, watched.has_failed) == (
            TokenUsage(9, 2, 4),
            True,
            False,
        )


@given(st.sampled_from(STREAMS), st.data())
def test_a_stream_that_was_cut_off_is_not_complete(stream: bytes, chosen: st.DataObject) -> None:
    # The last event: of a chat "data: [DONE]", of a response its name and its data.
    last = len(stream.rstrip())
    end = chosen.draw(st.integers(0, last - 1))
    middle = chosen.draw(st.integers(0, end))
    watched = fed(stream[:middle], stream[middle:end])
    assert (watched.has_ended, watched.has_failed) == (False, False)


@pytest.mark.parametrize("stream", STREAMS, ids=["chat", "response"])
def test_the_last_line_needs_no_end(stream: bytes) -> None:
    watched = fed(stream.rstrip())
    assert (watched.usage, watched.has_ended) == (TokenUsage(9, 2, 4), True)


def test_without_a_statement_four_characters_of_the_deltas_are_a_token() -> None:
    start = data({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    end = data({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    chat = fed(
        start,
        *(delta(word) for word in ("one", " two", " data:", "\n data:")),
        end,
        b"data: [DONE]\n\n",
    )
    # 3, 4, 6 and 7 characters.
    assert chat.usage == TokenUsage(None, 5, 0)
    text = fed(*(data({"choices": [{"text": word}]}) for word in "abc"), b"data: [DONE]\n\n")
    assert text.usage == TokenUsage(None, 1, 0)
    response = fed(RESPONSE_STREAM[: RESPONSE_STREAM.index(b"event: response.completed")])
    assert response.usage == TokenUsage(None, 14, 0)  # 53 characters
    assert fed().usage == TokenUsage(None, 0, 0)


def test_of_a_running_count_the_last_one_counts() -> None:
    events = [
        delta("x", usage={"prompt_tokens": 9, "completion_tokens": count}) for count in (1, 2, 3)
    ]
    assert fed(*events).usage == TokenUsage(9, 3, 0)
    assert fed(b"".join(events)).usage == TokenUsage(9, 3, 0)


def test_usage_one_level_down_is_found() -> None:
    assert fed(data({"choices": [], "x_groq": {"id": "r", "usage": CHAT}})).usage == TokenUsage(
        9, 2, 4
    )


def test_a_last_event_longer_than_what_is_kept_is_understood() -> None:
    text = "ü" * 300_000
    stream = named(
        "response.completed",
        response={
            "output": [{"content": [{"text": text}]}],
            "error": None,
            "usage": RESPONSE,
            "metadata": {},
        },
    )
    watched = fed(*(stream[at : at + 5000] for at in range(0, len(stream), 5000)))
    assert (watched.usage, watched.has_ended, watched.has_failed) == (
        TokenUsage(9, 2, 4),
        True,
        False,
    )


def test_an_event_that_does_not_end_is_refused() -> None:
    splitter = EventSplitter()
    splitter.feed(b"data: " + b"x" * (15 << 20))
    with pytest.raises(EventTooLargeError):
        splitter.feed(b"x" * (2 << 20))


@pytest.mark.parametrize(
    "event",
    [
        data({"error": {"message": "overloaded", "type": "server_error"}}),
        data({"id": "c1", "choices": [], "error": {"code": 502}}),
        data({"object": "error", "message": "too long", "code": 400}),
        b"event: error\n" + data({"type": "error", "message": "no"}),
        b"event: error\ndata: oops\n\n",
        named("error", message="no", code=None),
        b'error: {"code":500}\n\n',
        data({"error": "overloaded"}),
        named("response.failed", response={"status": "failed", "error": {"code": "server_error"}}),
        data(
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "server_error"}},
            }
        ),
    ],
)
def test_an_event_that_tells_of_an_error_is_noticed(event: bytes) -> None:
    assert fed(delta("a"), event).has_failed
    assert fed(delta("a"), *(event[at : at + 1] for at in range(len(event)))).has_failed
    assert fed(event.rstrip()).has_failed


def test_an_answer_about_errors_is_no_error() -> None:
    words = [
        '"error"',
        "event: error",
        'data: {"error": {}}',
        "\nerror: {}",
        '{"type":"error"}',
        "response.failed",
        '\\"error"',
    ]
    assert not fed(*(delta(word) for word in words)).has_failed
    assert not fed(*(named("response.output_text.delta", delta=word) for word in words)).has_failed
    assert not fed(delta("a", error=None)).has_failed


@pytest.mark.parametrize("name", ["response.completed", "response.incomplete", "response.failed"])
def test_a_response_has_three_ends_with_and_without_names_of_events(name: str) -> None:
    assert fed(named(name, response={})).has_ended
    assert fed(data({"response": {}, "sequence_number": 3, "type": name})).has_ended
    assert not fed(f"event: {name}\n".encode()).has_ended


SILENT = [delta("one"), delta('"usage":{'), b": a comment\n\n"]
REMOVED = data({"id": "c1", "choices": [], "usage": CHAT})
KEPT = [
    data({"choices": [{"delta": {"content": "x"}}], "usage": CHAT}),
    data({"choices": [], "usage": None}),
    data({"choices": [], "prompt_filter_results": []}),
    data({"choices": [], "x_groq": {"usage": CHAT}}),
    b'data: {"choices":[],"usage":{\n\n',
]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_only_the_event_of_the_usage_is_taken_out_wherever_it_is_cut(line_end: bytes) -> None:
    before, after = b"".join([*SILENT, *KEPT]), b"data: [DONE]\n\n"
    stream = (before + REMOVED + after).replace(b"\n", line_end)
    expected = (before + after).replace(b"\n", line_end)
    parsed = ParsedRequest("chat/completions", "m", "Hi", is_stream=True)
    edits = ResponseEdits(parsed, "small", hides_usage=True, details=None)
    for size in (1, 2, 3, 7, 64, len(stream)):
        events = split(*(stream[at : at + size] for at in range(0, len(stream), size)))
        assert b"".join([event.raw for event in events]) == stream
        assert b"".join([edits.event(event) for event in events]) == expected


def test_characters_are_counted_and_not_their_bytes() -> None:
    for written in (True, False):
        document = {"choices": [{"delta": {"content": "äöüß" * 2}}]}
        line = b"data: " + json.dumps(document, ensure_ascii=written).encode() + b"\n\n"
        assert fed(line).usage == TokenUsage(None, 2, 0)
