from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges.base import Verdict
from mildroute.judges.regex_match import RegexJudge
from tests.judges.tables import judge_of, label_of, query_of, table, verdict

CASES = table("regex")


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60
    assert {case["score"] for case in CASES} == {0, 1, None}


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """All cases at once: some wait for their clock."""

    async def judged() -> list[Verdict]:
        return await asyncio.gather(
            *(judge_of("regex", case).judge(query_of(case), case["answer"]) for case in CASES)
        )

    return asyncio.run(judged())


@pytest.mark.parametrize("index", range(len(CASES)), ids=[label_of(case) for case in CASES])
def test_a_pattern_decides(index: int, verdicts: list[Verdict]) -> None:
    assert verdicts[index].score == CASES[index]["score"], verdicts[index].reason
    assert verdicts[index].reason


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a|aa)+$", "a" * 100 + "b"),
        (r"^(?:a|aa|aaa)+$", "a" * 200 + "b"),
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 50_000),
    ],
)
def test_a_hostile_pattern_is_given_up_in_time_and_is_no_wrong_answer(
    pattern: str, text: str
) -> None:
    start = time.monotonic()
    found = verdict(RegexJudge(pattern, seconds=0.4), Query("q", "?"), text)
    assert time.monotonic() - start < 10
    assert found.score is None
    assert "took more than" in found.reason


@pytest.mark.parametrize(
    ("pattern", "text", "score"),
    [
        (r"^(a+)+$", "a" * 40 + "!", 0.0),
        (r"(x+x+)+y", "x" * 60, 0.0),
        (r"^(\w+\s?)*$", "word " * 40 + "!", 0.0),
        (r"(.*a){25}", "a" * 30 + "b" * 200, 1.0),
    ],
)
def test_patterns_that_are_endless_for_re_have_a_verdict(
    pattern: str, text: str, score: float
) -> None:
    assert verdict(RegexJudge(pattern), Query("q", "?"), text).score == score


def test_a_match_of_too_much_memory_is_no_wrong_answer() -> None:
    found = verdict(
        RegexJudge("(?:" * 90 + "a*" + ")*" * 90 + "$", seconds=1),
        Query("q", "?"),
        "a" * 50_000 + "b",
    )
    assert found.score is None


@pytest.mark.parametrize(
    "settings",
    [
        {"pattern": "("},
        {"pattern": "(a)", "group": 2},
        {"pattern": "(a)", "group": "n"},
        {"seconds": 0},
        {"max_chars": 0},
        {"compare": "exact"},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        RegexJudge(**settings)
