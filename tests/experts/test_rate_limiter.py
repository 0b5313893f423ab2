from __future__ import annotations

import asyncio
import itertools
import math
import random

import pytest

from mildroute.experts.rate_limiter import AdaptiveRateLimiter
from tests.experts.times import VirtualTime


def starts_of(throttle: AdaptiveRateLimiter, callers: int) -> list[float]:
    async def run() -> list[float]:
        return sorted(await asyncio.gather(*(throttle.acquire() for _ in range(callers))))

    return asyncio.run(run())


def answering(per_second: int, seconds: int) -> tuple[VirtualTime, AdaptiveRateLimiter]:
    """An endpoint that has answered so many calls a second."""
    time = VirtualTime()
    throttle = AdaptiveRateLimiter(time.clock)
    for moment in range(per_second * seconds + 1):
        time.time = moment / per_second
        throttle.record_success()
    return time, throttle


def test_without_a_refusal_nobody_waits() -> None:
    assert starts_of(AdaptiveRateLimiter(VirtualTime().clock), 5) == [0.0] * 5


def test_a_first_refusal_among_few_calls_tells_of_a_limit() -> None:
    time = VirtualTime()
    throttle = AdaptiveRateLimiter(time.clock)
    throttle.record_rejection(started=0.0)
    assert throttle.rate() == pytest.approx(
        0.7 * 4
    )  # it is taken to stand four calls a second before it has answered any


def test_one_refusal_among_many_answers_slows_nobody_down() -> None:
    _, throttle = answering(10, 2)
    throttle.record_rejection(started=1.95)
    throttle.record_rejection(started=1.96)
    assert throttle.rate() == math.inf


def test_three_refusals_of_twenty_cut_to_seven_tenths_and_five_seconds_bring_it_back() -> None:
    time, throttle = answering(10, 2)
    for started in (1.95, 1.96, 1.97):
        throttle.record_rejection(started)
    before = 21 / 2  # 21 answers in two seconds
    assert throttle.rate() == pytest.approx(0.7 * before)
    for after, share in ((2.5, 1 - 0.3 / 8), (5.0, 1.0), (7.5, 1 + 0.3 / 8), (15.0, 1 + 0.3 * 8)):
        time.time = 2.0 + after
        assert throttle.rate() == pytest.approx(share * before)


def test_refusals_of_calls_that_started_before_a_cut_cut_nothing() -> None:
    time, throttle = answering(10, 8)
    for started in (7.5, 7.6, 7.7, 7.8, 7.9, 7.91, 7.92, 7.93):
        throttle.record_rejection(started)
    assert throttle.rate() == pytest.approx(0.7 * 81 / 8)
    time.time = 9.0
    throttle.record_rejection(started=8.5)
    # Seven tenths of what a second of recovery had made of it.
    assert throttle.rate() == pytest.approx(0.7 * 81 / 8 * (1 - 0.3 * 0.8**3))


def test_only_answers_of_the_last_ten_seconds_count() -> None:
    time, throttle = answering(10, 8)
    for moment in range(9, 40):
        time.time = moment
        throttle.record_success()
    for started in (38.5, 38.6, 38.7):
        throttle.record_rejection(started)
    assert throttle.rate() == pytest.approx(0.7 * 11 / 10)


def test_the_limit_is_forgotten_after_a_minute() -> None:
    time = VirtualTime()
    throttle = AdaptiveRateLimiter(time.clock)
    throttle.record_rejection(started=0.0)
    time.time = 61.0
    starts_of(throttle, 1)
    assert throttle.rate() == math.inf


def test_callers_are_spread_evenly() -> None:
    time = VirtualTime()
    throttle = AdaptiveRateLimiter(time.clock)
    throttle.record_rejection(started=0.0)
    starts = starts_of(throttle, 4)
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert starts[0] == pytest.approx(1 / 2.8)
    assert gaps == pytest.approx([1 / 2.8] * 3)


def test_everybody_waits_as_long_as_the_server_asks_and_the_longest_wait_counts() -> None:
    time = VirtualTime()
    throttle = AdaptiveRateLimiter(time.clock)
    throttle.record_rejection(started=0.0, wait=5.0)
    throttle.record_rejection(started=0.0, wait=20.0)
    throttle.record_rejection(started=0.0, wait=1.0)
    assert starts_of(throttle, 3) == pytest.approx([20.0, 20 + 1 / 2.8, 20 + 2 / 2.8])


def test_a_wait_is_heeded_even_where_no_limit_is_seen() -> None:
    _, throttle = answering(10, 2)
    throttle.record_rejection(started=1.95, wait=3.0)
    assert throttle.rate() == math.inf
    assert starts_of(throttle, 3) == pytest.approx([5.0] * 3)


def test_sleepers_take_on_the_new_pace_when_another_refusal_comes() -> None:
    async def run() -> list[float]:
        throttle.record_rejection(started=0.0)
        waiting = [asyncio.create_task(throttle.acquire()) for _ in range(4)]
        await asyncio.sleep(0)
        throttle.record_rejection(started=0.5, wait=60.0)
        return sorted(await asyncio.gather(*waiting))

    time = VirtualTime()
    throttle = AdaptiveRateLimiter(time.clock)
    pace = 0.7 * 0.7 * 4  # cut twice
    assert asyncio.run(run()) == pytest.approx(
        [60.0 + place / pace for place in range(4)], rel=1e-3
    )


class Bucket:
    """An endpoint with a true limit."""

    def __init__(self, rate: float) -> None:
        self.rate = self.level = rate
        self.time = 0.0

    def takes(self, now: float) -> bool:
        self.level, self.time = min(self.rate, self.level + (now - self.time) * self.rate), now
        is_taken = self.level >= 1
        self.level -= is_taken
        return is_taken


def answers_a_second(workers: int, takes: object, seconds: float = 120.0) -> float:
    """Workers that call for some minutes, each call half a second long.

    Refused ones come back after a moment.
    """
    time, chance, done = VirtualTime(), random.Random(0), 0  # noqa: S311
    throttle = AdaptiveRateLimiter(time.clock)

    async def work() -> None:
        nonlocal done
        refusals = 0
        while time.time < seconds:
            started = await throttle.acquire()
            if takes(time.time):  # type: ignore[operator]
                await time.clock.sleep(0.25 + 0.5 * chance.random())
                throttle.record_success()
                done, refusals = done + (time.time < seconds), 0
            else:
                throttle.record_rejection(started)
                await time.clock.sleep(chance.random() * min(60.0, 0.5 * 2.0**refusals))
                refusals += 1

    async def run() -> None:
        await asyncio.gather(*(work() for _ in range(workers)))

    asyncio.run(run())
    return done / seconds


@pytest.mark.parametrize(("share", "least"), [(0.01, 14.0), (0.05, 8.0)])
def test_refusals_at_random_cost_little(share: float, least: float) -> None:
    chance = random.Random(1)  # noqa: S311
    # Undisturbed, eight workers get 16 answers a second.
    assert answers_a_second(8, lambda _now: chance.random() >= share) >= least


@pytest.mark.parametrize(("workers", "limit"), [(32, 5.0), (8, 5.0)])
def test_most_of_a_true_limit_is_used(workers: int, limit: float) -> None:
    assert 0.75 * limit <= answers_a_second(workers, Bucket(limit).takes) <= 1.05 * limit
