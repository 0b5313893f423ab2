"""What holds for every text.

No judge breaks, spaces around an answer say nothing, and no text takes long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mildroute.experts.base import Answer, Query
from mildroute.judges._answer_code import find_python
from mildroute.judges._json_values import find_json
from mildroute.judges.label import read_label
from mildroute.judges.pairwise import read_preference
from mildroute.judges.registry import get_judge
from mildroute.judges.rubric import RubricJudge, read_grade
from mildroute.judges.stated_choice import read_choice
from mildroute.judges.stated_number import read_number
from tests.judges.scripted import Scripted
from tests.judges.tables import judge_of, pure_verdict, query_of, table, verdict

PIECES = [
    "A", "b", "(C)", "D.", "I", "I'm", "a", "not ", "the answer is ", "Answer:", "**", "\n", " ",
    ", ", " or ", " and ", "\\boxed{", "}", "{", "$", "\\frac{1}{2}", "\\frac", "####",
    "final answer", "1,234.5", "-3/4", "1/0", "50%", "10^5", "e9", "1e400", "=", "+", "- ",
    "\u00bd", "\u00b2", "\u2212", "Paris", "Rome", "positive", "very positive", "is wrong",
    "is correct", "<think>", "</think>", "<answer>", "</answer>", "```python\n", "```",
    '{"answer": ', '"x"', "[", "]", "]]", "[[7", "Grade: 7", "Verdict: A", "\u7b54\u6848",
    "\ud800", "\x00", "\u200b", "\u202e", "...", "?!", "'", '"', "_",
]  # fmt: skip
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=[])),
    st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    st.binary().map(lambda raw: raw.decode("latin-1")),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
)
CHOICES = {"A": "Rome", "B": "Berlin", "C": "Paris", "D": "4", "E": "A cat", "I": "both A and B"}
LABELS: dict[str, tuple[str, ...]] = {"negative": (), "positive": ("good",), "very positive": ()}
PURE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("exact", {}, {}),
    ("exact", {"part": "last", "keep_accents": False}, {}),
    ("choice", {}, {"choices": CHOICES}),
    ("choice", {}, {}),
    ("numeric", {"round_to_reference": True}, {}),
    ("label", {"labels": LABELS}, {}),
    ("json", {"path": "answer"}, {}),
    ("json", {"path": "", "compare": "numeric"}, {}),
]
READERS: list[Callable[[str], object]] = [
    lambda text: read_choice(text, CHOICES),
    lambda text: read_label(text, LABELS),
    read_number,
    find_json,
    find_python,
    lambda text: read_grade(text, 1, 10),
    read_preference,
]


@given(
    text=ANY_TEXT,
    reference=st.one_of(st.sampled_from(["C", "4", "positive", "Paris", "50%"]), ANY_TEXT),
)
@settings(max_examples=200)
def test_no_text_and_no_reference_breaks_a_judge(text: str, reference: str) -> None:
    for name, given_settings, fields in PURE:
        found = pure_verdict(
            get_judge(name, **given_settings),
            Query("q", "?", reference=reference, fields=fields),
            text,
        )
        assert found.score in (None, 0.0, 1.0)
        assert isinstance(found.reason, str)


@given(text=ANY_TEXT)
@settings(max_examples=200)
def test_no_text_breaks_a_reader(text: str) -> None:
    for read in READERS:
        read(text)


@given(text=ANY_TEXT, reply=ANY_TEXT)
@settings(max_examples=100)
def test_no_text_and_no_reply_breaks_a_model_as_judge(text: str, reply: str) -> None:
    found = verdict(RubricJudge(Scripted([Answer(reply, dollars=1.0)])), Query("q", "?"), text)
    assert found.score is None or 0 <= found.score <= 1


@given(text=ANY_TEXT)
@settings(max_examples=8)
def test_no_text_breaks_a_judge_that_starts_a_process(text: str) -> None:
    query = Query("q", "?", reference="x", fields={"pattern": "x", "tests": "assert f() == 1"})
    assert verdict(get_judge("regex"), query, text).score in (0.0, 1.0)
    assert verdict(get_judge("tests"), query, "def f():\n    return 2\n" + text).score == 0.0


@given(
    choices=st.one_of(
        st.none(), ANY_TEXT, st.lists(ANY_TEXT), st.dictionaries(ANY_TEXT, ANY_TEXT), st.integers()
    ),
    text=ANY_TEXT,
)
@settings(max_examples=150)
def test_no_choices_and_no_labels_break_a_judge(choices: Any, text: str) -> None:
    query = Query(
        "q",
        "?",
        reference="A",
        fields={"choices": choices, "labels": choices, "path": choices, "tests": choices},
    )
    for name in ("choice", "label", "json"):
        assert pure_verdict(get_judge(name), query, text).score in (None, 0.0, 1.0)


@pytest.mark.parametrize("name", ["choice", "numeric", "exact", "label", "json_field"])
def test_space_around_an_answer_never_changes_a_verdict(name: str) -> None:
    for case in table(name):
        if len(case["answer"]) > 2000:
            continue
        padded = f"\n\u00a0 \t\n{case['answer']} \r\n\u200b\t "
        judge = judge_of(name.removesuffix("_field"), case)
        assert pure_verdict(judge, query_of(case), padded) == pure_verdict(
            judge, query_of(case), case["answer"]
        ), case["answer"]


@pytest.mark.parametrize(
    "code",
    ["def f():\n    return 1", "```python\ndef f():\n    return 1\n```", "Sure!\n\nx = 1\n\nDone."],
)
def test_space_around_code_never_changes_what_is_read(code: str) -> None:
    plain = {variant.strip() for variant in find_python(code)}
    assert plain <= {variant.strip() for variant in find_python(f"\n \t\n  {code} \n\n ")}


@pytest.mark.parametrize(
    "unit", ["A\n", "1+", "answer: 1 ", "\u7b54\u6848", "\\boxed{", '{"a":', "```\n", "[[", "9"]
)
def test_no_long_text_takes_long(unit: str) -> None:
    text = (unit * 50_000)[:50_000] + "A1"
    for read in READERS:
        start = time.process_time()
        read(text)
        assert time.process_time() - start < 10
