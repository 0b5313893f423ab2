from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges.multiple_choice import MultipleChoiceJudge
from mildroute.judges.options import parse_options
from mildroute.judges.stated_choice import read_choice
from tests.judges.tables import judge_of, label_of, pure_verdict, query_of, table, verdict

CASES = table("choice")


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60
    assert {case["score"] for case in CASES} == {0, 1, None}


@pytest.mark.parametrize("case", CASES, ids=label_of)
def test_answers_are_read_as_a_careful_reader_would(case: dict[str, Any]) -> None:
    found = pure_verdict(judge_of("choice", case), query_of(case), case["answer"])
    assert found.score == case["score"], found.reason
    assert found.reason
    assert found.dollars == 0


def test_a_statement_that_is_taken_back_without_a_new_one_still_counts() -> None:
    assert read_choice("The answer is A. Hmm, no, that cannot be right.", {"A": "", "B": ""}) == "A"


def test_a_letter_beats_the_text_of_another_choice_beside_it() -> None:
    assert read_choice("B) Paris", {"A": "Paris", "B": "Rome"}) == "B"


def test_a_long_calculation_that_is_cut_off_gives_no_choice() -> None:
    text = (
        "Let h be the height and (a) the area. "
        + "Then we have f(a) = 4 and b - C) = D + e. " * 20
        + "So at 12\u00b0C, the value of"
    )
    assert read_choice(text, {"A": "3", "B": "4", "C": "5", "D": "6", "E": "7", "H": "8"}) is None


def test_a_reference_that_could_mean_two_choices_is_no_verdict_and_says_what_to_set() -> None:
    found = verdict(
        MultipleChoiceJudge(),
        Query("q", "?", reference="2", fields={"choices": ["2", "4", "6"]}),
        "A",
    )
    assert found.score is None
    assert "set reference" in found.reason


def test_choices_may_be_any_of_the_usual_forms() -> None:
    assert (
        parse_options(["x", "y"], "ABCD")
        == parse_options({"a": "x", "b": "y"}, "ABCD")
        == {"A": "x", "B": "y"}
    )
    assert (
        parse_options('["x", "y"]', "ABCD")
        == parse_options({"text": ["x", "y"], "label": ["A", "B"]}, "ABCD")
        == {"A": "x", "B": "y"}
    )
    assert parse_options(None, "ab") == {"A": "", "B": ""}


@pytest.mark.parametrize(
    "choices", ["x", "{", [], {}, 7, {"A": "x", "a": "y"}, {"first": "x"}, ["x"] * 27]
)
def test_choices_that_nobody_can_choose_from_are_refused(choices: Any) -> None:
    with pytest.raises(ArgumentError, match="choices must"):
        parse_options(choices, "ABCD")


@pytest.mark.parametrize(
    "settings", [{"letters": ""}, {"letters": "AA"}, {"letters": "A1"}, {"reference": "number"}]
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        MultipleChoiceJudge(**settings)
