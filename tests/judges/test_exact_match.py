from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.judges.exact_match import ExactMatchJudge
from tests.judges.tables import judge_of, label_of, pure_verdict, query_of, table

CASES = table("exact")


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60
    assert {case["score"] for case in CASES} == {0, 1, None}


@pytest.mark.parametrize("case", CASES, ids=label_of)
def test_answers_are_read_as_a_careful_reader_would(case: dict[str, Any]) -> None:
    found = pure_verdict(judge_of("exact", case), query_of(case), case["answer"])
    assert found.score == case["score"], found.reason
    assert found.reason
    assert found.dollars == 0


def test_a_part_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ArgumentError, match="part must be"):
        ExactMatchJudge(part="first")  # type: ignore[arg-type]
