from __future__ import annotations

import asyncio
import itertools
import math

import pytest

from mildroute.experts.throttle import Throttle
from tests.experts.times import VirtualTime


def starts_of(throttle: Throttle, callers: int) -> list[float]:
    async def run() -> list[float]:
        return sorted(await asyncio.gather(*(throttle.turn() for _ in range(callers))))

    return asyncio.run(run())


def test_without_a_refusal_nobody_waits() -> None:
    assert starts_of(Throttle(VirtualTime().timing), 5) == [0.0] * 5


def test_a_refusal_halves_the_rate_of_answers() -> None:
    time = VirtualTime()
    throttle = Throttle(time.timing)
    for moment in range(21):
        time.time = moment / 10
        throttle.answered()
    # 21 answers in two seconds
    throttle.refused(started=1.95)
    assert throttle.rate() == pytest.approx(21 / 2 / 2)
    time.time += 30
    assert throttle.rate() == pytest.approx(21 / 2)


def test_refusals_of_calls_that_started_before_a_cut_cut_nothing() -> None:
    time = VirtualTime()
    throttle = Throttle(time.timing)
    for moment in range(81):
        time.time = moment / 10
        throttle.answered()
    for started in (7.5, 7.6, 7.7, 7.8, 7.9):
        throttle.refused(started)
    assert throttle.rate() == pytest.approx(81 / 8 / 2)
    time.time = 9.0
    throttle.refused(started=8.5)
    # half of what a second of recovery had made of it
    assert throttle.rate() == pytest.approx(81 / 8 / 2 * 2 ** (1 / 30) / 2)


def test_the_limit_is_forgotten_after_four_minutes() -> None:
    time = VirtualTime()
    throttle = Throttle(time.timing)
    throttle.refused(started=0.0)
    time.time = 241.0
    starts_of(throttle, 1)
    assert throttle.rate() == math.inf


def test_callers_are_spread_evenly_and_come_back_slowly() -> None:
    time = VirtualTime()
    throttle = Throttle(time.timing)
    throttle.refused(started=0.0)
    starts = starts_of(throttle, 6)
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert starts[0] == 2.0
    assert gaps == pytest.approx([2.0] * 5, rel=0.01)
    time.time = 30.0
    # a minute of sleep would be three doublings; half a minute is one
    assert throttle.rate() == pytest.approx(1.0)


def test_everybody_waits_as_long_as_the_server_asks_and_the_longest_wait_counts() -> None:
    time = VirtualTime()
    throttle = Throttle(time.timing)
    throttle.refused(started=0.0, wait=5.0)
    throttle.refused(started=0.0, wait=20.0)
    throttle.refused(started=0.0, wait=1.0)
    assert starts_of(throttle, 3) == pytest.approx([20.0, 22.0, 24.0], rel=0.01)
    assert throttle.rate() == pytest.approx(0.5 * 2 ** (4 / 30), rel=0.01)


def test_sleepers_take_on_the_new_pace_when_another_refusal_comes() -> None:
    async def run() -> list[float]:
        throttle.refused(started=0.0)
        waiting = [asyncio.create_task(throttle.turn()) for _ in range(4)]
        await asyncio.sleep(0)
        throttle.refused(started=0.5, wait=60.0)
        return sorted(await asyncio.gather(*waiting))

    time = VirtualTime()
    throttle = Throttle(time.timing)
    assert asyncio.run(run()) == pytest.approx([60.0, 62.0, 64.0, 66.0], rel=0.01)
