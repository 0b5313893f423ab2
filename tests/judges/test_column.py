"""A judge for each query, named by a column."""

from __future__ import annotations

import asyncio

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges.column import ColumnJudge
from mildroute.judges.registry import get_judge, judge_from_config


def query(judge: str | None, reference: str) -> Query:
    return Query("q", "?", reference, {"judge": judge})


def test_each_query_is_scored_by_the_judge_that_its_column_names() -> None:
    mixed = get_judge("numeric,exact")
    assert asyncio.run(mixed.judge(query("numeric", "4"), "It is 4.0")).score == 1.0
    assert asyncio.run(mixed.judge(query("exact", "4"), "It is 4.0")).score == 0.0
    verdict = asyncio.run(mixed.judge(query(None, "4"), "4"))
    assert verdict.score is None
    assert verdict.reason == "the column 'judge' must be one of numeric, exact, got nothing"


def test_a_query_lacks_what_its_own_judge_needs() -> None:
    mixed = get_judge("numeric,exact")
    assert mixed.missing_fields(query("exact", "Paris")) == ""
    assert (
        mixed.missing_fields(query("numeric", "Paris")) == "the reference 'Paris' is not a number"
    )


def test_settings_go_to_the_judge_whose_name_they_begin_with() -> None:
    mixed = judge_from_config("numeric,exact", {"numeric.absolute": 1}, ())
    assert isinstance(mixed, ColumnJudge)
    assert asyncio.run(mixed.judge(query("numeric", "4"), "5")).score == 1.0
    assert mixed.version != get_judge("numeric,exact").version
    for setting in ("absolute", "choice.letters"):
        with pytest.raises(ArgumentError, match="the judge must be one of numeric, exact"):
            judge_from_config("numeric,exact", {setting: 1}, ())
    with pytest.raises(ArgumentError, match="judge must be one of"):
        get_judge("numeric,vibes")
