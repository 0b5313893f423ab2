from __future__ import annotations

import asyncio

import pytest

from mildroute.experts.base import Answer, Query
from mildroute.judges.rubric import RubricJudge
from tests.judges.scripted import Scripted


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_is_asked_at_a_time_than_the_expert_likes(concurrency: int) -> None:
    expert = Scripted([Answer("Grade: 10")] * 20, concurrency)
    judge = RubricJudge(expert)

    async def all_at_once() -> None:
        await asyncio.gather(
            *(judge.judge(Query("q", "?"), f"answer {number}") for number in range(20))
        )

    asyncio.run(all_at_once())
    assert expert.busiest == concurrency
    assert len(expert.asked) == 20


def test_a_judge_lives_through_several_event_loops() -> None:
    judge = RubricJudge(Scripted([Answer("Grade: 10")] * 40))

    async def some() -> list[float | None]:
        verdicts = await asyncio.gather(
            *(judge.judge(Query("q", "?"), f"answer {number}") for number in range(20))
        )
        return [verdict.score for verdict in verdicts]

    assert asyncio.run(some()) == asyncio.run(some()) == [1.0] * 20
