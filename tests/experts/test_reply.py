from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.experts._attempt import classify_attempt
from mildroute.experts.base import (
    HTTPResult,
    TransportFailure,
    answer_logprob,
    answer_text,
    parse_completion,
)

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


def with_content(content: Any, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **choice.pop("message", {})}, **choice}]}


@given(ANYTHING, ANYTHING, ANYTHING)
def test_no_document_raises_and_only_text_is_a_text(content: Any, choices: Any, usage: Any) -> None:
    for document in (
        content,
        {"choices": choices, "usage": usage},
        with_content(content),
        {"choices": [{"text": content}], "usage": usage},
    ):
        found = parse_completion(document)
        assert (found.text is None) == bool(found.problem)
        assert found.tokens_in is None or found.tokens_in >= 0
    found = parse_completion(with_content(content))
    if isinstance(content, str):
        assert found.text == content
    elif not isinstance(content, list):
        assert found.text is None


@given(st.binary())
def test_no_body_raises(body: bytes) -> None:
    for status in (200, 302, 400, 429, 500):
        outcome = classify_attempt(HTTPResult(status, body), str, now=0.0)
        assert outcome.completion is not None or outcome.error


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (with_content("a"), "a"),
        (with_content(""), ""),
        (with_content("a", finish_reason="length"), "a"),
        (with_content("a", finish_reason="content_filter"), "a"),
        (with_content([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab"),
        (
            with_content([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "b"}]),
            "b",
        ),
        (with_content(None, message={"refusal": "I will not."}), "I will not."),
        ({"choices": [{"text": "raw"}]}, "raw"),
        (
            {"choices": [{"message": {"content": "first"}}, {"message": {"content": "second"}}]},
            "first",
        ),
        (with_content("", finish_reason="content_filter"), None),
        (with_content(None), None),
        (with_content([{"type": "image", "text": "a"}]), None),
        (with_content([{"type": "text", "text": "a"}, "b"]), None),
        (with_content([{"type": "text", "text": "a"}, {"type": "text", "text": None}]), None),
        (with_content(b"".decode(), message={"refusal": 3}), ""),
        ({"choices": [{"message": {"text": "a"}}]}, None),
    ],
)
def test_the_text_is_what_the_model_said_or_nothing(document: Any, text: str | None) -> None:
    assert parse_completion(document).text == text


@pytest.mark.parametrize(
    ("result", "again", "doubtful"),
    [
        (HTTPResult(429, b""), "after refusal", False),
        (HTTPResult(503, b"", retry_after="3"), "after refusal", False),
        (HTTPResult(529, b"", retry_after="3"), "after refusal", False),
        (HTTPResult(503, b""), "after failure", False),
        (HTTPResult(500, b""), "after failure", False),
        (HTTPResult(502, b""), "after failure", True),
        (HTTPResult(504, b""), "after failure", True),
        (HTTPResult(524, b""), "after failure", True),
        (HTTPResult(408, b""), "after failure", True),
        (HTTPResult(409, b""), "after failure", False),
        (HTTPResult(400, b""), "never", False),
        (HTTPResult(301, b"", location="https://example.com"), "never", False),
        (HTTPResult(200, b"{"), "after failure", True),
        (HTTPResult(200, b"{}"), "never", True),
        (HTTPResult(200, b"{}", cut=True), "never", True),
        (TransportFailure("no connection", sent=False), "after failure", False),
        (TransportFailure("timeout", sent=True), "after failure", True),
        (TransportFailure("closed", sent=True, final=True), "never", True),
    ],
)
def test_what_is_tried_again_and_what_may_have_been_charged(
    result: HTTPResult | TransportFailure, again: str, doubtful: bool
) -> None:
    outcome = classify_attempt(result, str, now=0.0)
    assert (outcome.again, outcome.doubtful) == (again, doubtful)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "no"}}', "no"),
        ('{"error": "no"}', "no"),
        ('{"message": "no"}', "no"),
        ('{"detail": "no"}', "no"),
        ('{"detail": [{"msg": "no"}]}', '{"detail": [{"msg": "no"}]}'),
        ("", "(empty)"),
        ("a\n\n b\x1b[31m\tc", "a b [31m c"),
        ("x" * 300, "x" * 200 + "..."),
    ],
)
def test_the_servers_own_words_are_shown_on_one_short_line(body: str, said: str) -> None:
    assert (
        classify_attempt(HTTPResult(400, body.encode()), str, now=0.0).error == f"HTTP 400: {said}"
    )


def test_numbers_that_python_refuses_to_parse_are_a_broken_body() -> None:
    body = json.dumps({"usage": 1}).replace("1", "1" * 10_000).encode()
    assert classify_attempt(HTTPResult(200, body), str, now=0.0).again == "after failure"


def with_logprobs(*values: object) -> dict[str, object]:
    tokens = [{"token": "x", "logprob": value} for value in values]
    return {"choices": [{"message": {"content": "4"}, "logprobs": {"content": tokens}}]}


@pytest.mark.parametrize(
    ("document", "mean"),
    [
        (with_logprobs(-1.0, -0.5), -0.75),
        (with_logprobs(0), 0.0),
        (with_logprobs(1e-9), 0.0),
        (with_logprobs(), None),
        (with_logprobs(-1.0, None), None),
        (with_logprobs(-1.0, "-1"), None),
        (with_logprobs(-math.inf), None),
        (with_logprobs(-(10**400)), None),
        (with_logprobs(0.5), None),
        ({"choices": [{"message": {"content": "4"}, "logprobs": None}]}, None),
        ({"choices": [{"message": {"content": "4"}, "logprobs": {"content": 7}}]}, None),
        ({"choices": [{"message": {"content": "4"}, "logprobs": {"content": [7]}}]}, None),
        ({"choices": [{"text": "4", "logprobs": {"token_logprobs": [-1.0]}}]}, None),
        ([], None),
    ],
)
def test_the_mean_log_probability_is_told_or_unknown(document: object, mean: float | None) -> None:
    assert parse_completion(document).logprob == mean
    assert answer_logprob(json.dumps(document).encode()) == mean


def test_log_probabilities_of_a_stream_are_those_of_all_its_events() -> None:
    events = [with_logprobs(-1.0), {"choices": [{"logprobs": None}]}, with_logprobs(-0.5, -0.3)]
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    assert answer_logprob(body + b"data: [DONE]\n\n") == pytest.approx(-0.6)
    assert answer_logprob(b"data: {\n\n") is None


@given(ANYTHING)
def test_any_tool_calls_of_a_stream_are_read(value: Any) -> None:
    line = json.dumps({"choices": [{"delta": {"tool_calls": value}}]}).encode()
    assert isinstance(answer_text(b"data: " + line + b"\n\n"), str)
    assert isinstance(answer_text(json.dumps({"choices": value}).encode()), str)


@pytest.mark.parametrize("odd", ["x", [5], [{"index": "a", "function": 7}], [{"function": "f"}]])
def test_odd_tool_calls_of_a_stream_say_nothing(odd: Any) -> None:
    line = json.dumps({"choices": [{"delta": {"tool_calls": odd}}]}).encode()
    assert answer_text(b"data: " + line + b"\n\n") == ""
