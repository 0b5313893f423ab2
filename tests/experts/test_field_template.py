from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.exceptions import ArgumentError
from mildroute.experts.field_template import FieldTemplate


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
    with pytest.raises(ArgumentError, match="for literal braces, write"):
        FieldTemplate(text)


def test_a_point_is_a_part_of_a_name_and_reaches_into_nothing() -> None:
    with pytest.raises(ArgumentError, match=r"needs \{input.__class__\}"):
        FieldTemplate("{input.__class__}").fill({"input": "x"})
    assert FieldTemplate("{a.b}").fill({"a.b": 1, "a": "x"}) == "1"


@pytest.mark.parametrize(
    ("value", "written"),
    [(3, "3"), (0.5, "0.5"), (True, "True"), (["é", 1], '["é", 1]'), ({"a": None}, '{"a": null}')],
)
def test_values_are_written_plainly(value: Any, written: str) -> None:
    assert FieldTemplate("{x}").fill({"x": value}) == written
