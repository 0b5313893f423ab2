from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.experts.prompts import FieldTemplate, PromptTemplate


@given(st.text(), st.text("ab{}!.[]:0"))
def test_braces_in_data_are_never_read_as_a_template(text: str, other: str) -> None:
    assert (
        FieldTemplate("<{input}|{other}>").fill({"input": text, "other": other})
        == f"<{text}|{other}>"
    )


@given(st.text())
def test_any_text_can_be_written_with_doubled_braces(text: str) -> None:
    assert FieldTemplate(text.replace("{", "{{").replace("}", "}}")).fill({}) == text


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "}",
        "{}",
        "{0}",
        "{input!r}",
        "{input:>10}",
        "{input[0]}",
        "{{input}",
        '{"a": 1}',
        "{a{b}}",
        "{ input}",
    ],
)
def test_other_braces_are_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ArgumentError, match="stand for themselves"):
        FieldTemplate(text)


def test_a_point_is_a_part_of_a_name_and_reaches_into_nothing() -> None:
    with pytest.raises(ArgumentError, match=r"needs \{input.__class__\}"):
        FieldTemplate("{input.__class__}").fill({"input": "x"})
    assert FieldTemplate("{a.b}").fill({"a.b": 1, "a": "x"}) == "1"


def test_an_unknown_field_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(
        ArgumentError, match=r"needs \{topik\}, which the query lacks; it has input, topic."
    ):
        PromptTemplate("{topik}").payload(Query("q1", "x", fields={"topic": "y", "empty": None}))


@pytest.mark.parametrize(
    ("value", "written"),
    [(3, "3"), (0.5, "0.5"), (True, "True"), (["é", 1], '["é", 1]'), ({"a": None}, '{"a": null}')],
)
def test_values_are_written_plainly(value: Any, written: str) -> None:
    assert FieldTemplate("{x}").fill({"x": value}) == written


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
