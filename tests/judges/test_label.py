from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.judges.label import LabelJudge, read_label
from tests.judges.tables import judge_of, label_of, pure_verdict, query_of, table

CASES = table("label")


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60
    assert {case["score"] for case in CASES} == {0, 1, None}


@pytest.mark.parametrize("case", CASES, ids=label_of)
def test_answers_are_read_as_a_careful_reader_would(case: dict[str, Any]) -> None:
    found = pure_verdict(judge_of("label", case), query_of(case), case["answer"])
    assert found.score == case["score"], found.reason
    assert found.reason
    assert found.dollars == 0


def test_what_a_denial_leaves_over_is_not_guessed() -> None:
    assert read_label("This is not spam.", {"ham": (), "spam": ()}) is None


def test_an_index_does_not_count_beside_a_name() -> None:
    assert read_label('{"label": "spam", "confidence": 0}', {"ham": (), "spam": ()}) == "spam"


@pytest.mark.parametrize(
    "labels",
    [["a", "a"], ["a", "A "], [""], {"a": ["b"], "b": []}, "a", "{", 7, ["card_lost", "card lost"]],
)
def test_labels_that_cannot_be_told_apart_are_refused(labels: Any) -> None:
    with pytest.raises(ArgumentError, match="labels"):
        LabelJudge(labels)
