from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.judges.numeric import NumericJudge
from mildroute.judges.stated_number import read_number
from tests.judges.tables import judge_of, label_of, pure_verdict, query_of, table

CASES = table("numeric")


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60
    assert {case["score"] for case in CASES} == {0, 1, None}


@pytest.mark.parametrize("case", CASES, ids=label_of)
def test_answers_are_read_as_a_careful_reader_would(case: dict[str, Any]) -> None:
    found = pure_verdict(judge_of("numeric", case), query_of(case), case["answer"])
    assert found.score == case["score"], found.reason
    assert found.reason
    assert found.dollars == 0


def test_large_whole_numbers_are_compared_digit_by_digit() -> None:
    one, other = read_number("100000000000000000000001"), read_number("100000000000000000000002")
    assert one is not None
    assert other is not None
    assert one.value != other.value


@pytest.mark.parametrize(
    "settings",
    [
        {"relative": -1.0},
        {"absolute": float("nan")},
        {"relative": float("inf")},
        {"percent": "maybe"},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        NumericJudge(**settings)
