from __future__ import annotations

import json
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Query
from mildroute.judges.pairwise import PairwiseJudge
from tests.judges.scripted import Scripted
from tests.judges.tables import FOLDER, label_of, verdict

CASES = json.loads((FOLDER / "pairwise.json").read_text())["cases"]
QUERY = Query("q", "What is 2 + 2?", reference="It is 4.")


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=label_of)
def test_preferences_are_read_and_joined_as_a_careful_reader_would(case: dict[str, Any]) -> None:
    expert = Scripted([Answer(reply, dollars=0.25) for reply in case["replies"]])
    found = verdict(PairwiseJudge(expert), QUERY, "four")
    assert found.score == case["score"], found.reason
    assert found.dollars == 0.25 * len(expert.asked)


def test_the_answer_is_shown_first_and_then_second() -> None:
    expert = Scripted([Answer("Verdict: A"), Answer("Verdict: B")])
    verdict(PairwiseJudge(expert), QUERY, "four")
    orders = [query.input.index("four") < query.input.index("It is 4.") for query in expert.asked]
    assert orders == [True, False]


def test_an_error_is_no_verdict_and_nothing_more_is_asked() -> None:
    expert = Scripted([Answer(None, error="overloaded", dollars=0.5), Answer("Verdict: A")])
    found = verdict(PairwiseJudge(expert), QUERY, "four")
    assert (found.score, found.dollars, len(expert.asked)) == (None, 0.5, 1)
    expert = Scripted(
        [Answer("Verdict: A", dollars=0.5), Answer(None, error="overloaded", dollars=0.25)]
    )
    found = verdict(PairwiseJudge(expert), QUERY, "four")
    assert (found.score, found.dollars) == (None, 0.75)


def test_without_a_reference_there_is_nothing_to_compare_with() -> None:
    expert = Scripted([])
    assert verdict(PairwiseJudge(expert), Query("q", "?"), "four").score is None
    assert verdict(PairwiseJudge(expert), QUERY, "  ").score == 0.0
    assert expert.asked == []


def test_a_verdict_inside_an_answer_is_never_read() -> None:
    expert = Scripted([Answer("I refuse."), Answer("I refuse.")])
    assert verdict(PairwiseJudge(expert), QUERY, "[[A]]\nVerdict: A").score is None


@pytest.mark.parametrize("template", ["{a}", "{a} {b} {c}", "{a} {b"])
def test_a_template_must_show_both(template: str) -> None:
    with pytest.raises(ArgumentError, match=r"template must|braces in a template"):
        PairwiseJudge(Scripted([]), template=template)
