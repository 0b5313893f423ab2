from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.experts.prompts import PromptTemplate


def test_an_unknown_field_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(
        ArgumentError, match=r"needs \{topik\}, which the query lacks; it has input, topic."
    ):
        PromptTemplate("{topik}").payload(Query("q1", "x", fields={"topic": "y", "empty": None}))


def test_messages_are_system_then_examples_then_the_query() -> None:
    examples = [
        {"input": "1 + 1", "topic": "sums", "answer": "2"},
        {"input": "{input}", "topic": "", "answer": "{3}"},
    ]
    prompt = PromptTemplate("{topic} {input}", system='Reply {"n": 4}.', examples=examples)
    assert prompt.payload(Query("q1", "2 + 2", fields={"topic": "more", "input": "not this"})) == {
        "messages": [
            {"role": "system", "content": 'Reply {"n": 4}.'},
            {"role": "user", "content": "sums 1 + 1"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": " {input}"},
            {"role": "assistant", "content": "{3}"},
            {"role": "user", "content": "more 2 + 2"},
        ]
    }
    assert prompt.path == "chat/completions"


def test_the_reference_never_gets_into_a_prompt() -> None:
    with pytest.raises(ArgumentError, match="reference"):
        PromptTemplate("{reference}").payload(Query("q1", "2 + 2", reference="4"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"user": 7}, "a template must be text"),
        ({"system": 7}, "a system message must be text"),
        ({"raw": "{input}", "system": "x"}, "a raw prompt is the whole prompt"),
        ({"raw": "{input}", "examples": [{}]}, "a raw prompt is the whole prompt"),
        ({"examples": ["x"]}, "example 1 of a prompt must be a mapping"),
        (
            {"examples": [{"input": "x", "answer": 3}]},
            "example 1 of a prompt must be a mapping with a text 'answer'",
        ),
        (
            {"examples": [{"input": "x", "answer": "y"}, {"answer": "y"}]},
            r"example 2 of a prompt: the template needs \{input\}",
        ),
        (
            {"user": "{answer}", "examples": [{"input": "x", "answer": "y"}]},
            r"example 1 of a prompt: the template needs \{answer\}",
        ),
    ],
)
def test_a_prompt_that_makes_no_sense_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        PromptTemplate(**settings)
