from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.experts.completion import answer_logprob, answer_text, parse_completion

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=15,
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
