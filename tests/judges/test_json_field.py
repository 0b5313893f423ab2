from __future__ import annotations

from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.judges.json_field import JsonFieldJudge, read_field
from mildroute.judges.numeric import NumericJudge
from tests.judges.tables import judge_of, label_of, pure_verdict, query_of, table

CASES = table("json_field")


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(CASES) >= 60
    assert {case["score"] for case in CASES} == {0, 1, None}


@pytest.mark.parametrize("case", CASES, ids=label_of)
def test_answers_are_read_as_a_careful_reader_would(case: dict[str, Any]) -> None:
    found = pure_verdict(judge_of("json", case), query_of(case), case["answer"])
    assert found.score == case["score"], found.reason
    assert found.reason
    assert found.dollars == 0


def test_the_last_json_that_has_the_field_counts() -> None:
    assert read_field('{"a": 1} {"a": 2} {"b": 3}', "a") == 2


def test_a_judge_must_compare() -> None:
    with pytest.raises(ArgumentError, match="compare must be a judge"):
        JsonFieldJudge("a", compare="numeric")  # type: ignore[arg-type]


def test_the_version_changes_with_that_of_the_judge_that_compares() -> None:
    versions = {
        JsonFieldJudge("a").version,
        JsonFieldJudge("a", NumericJudge()).version,
        JsonFieldJudge("a", NumericJudge(0.1)).version,
    }
    assert len(versions) == 3
