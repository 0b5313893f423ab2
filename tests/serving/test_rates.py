from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from mildroute.exceptions import ArgumentError
from mildroute.serving.auth.limits import TokenBucket
from tests.serving.ticking import Clock


def test_a_full_bucket_gives_its_burst_and_then_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 3.0, clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now += 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    clock.now += 100.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_looking_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 1.0, Clock())
    assert [bucket.has() for _ in range(3)] == [True] * 3
    assert bucket.seconds_until() == 0.0
    assert bucket.take()


def test_what_was_spent_afterwards_must_flow_in_again_before_anything_is_had() -> None:
    clock = Clock()
    bucket = TokenBucket(0.5, 1.0, clock)
    bucket.spend(3.0)
    assert bucket.level() == -2.0
    assert not bucket.has(0.0)
    assert bucket.seconds_until(0.5) == 5.0
    clock.now += 5.0
    assert bucket.has(0.5)
    assert not bucket.has(0.6)


def test_more_than_the_bucket_holds_can_never_be_had() -> None:
    bucket = TokenBucket(1.0, 2.0, Clock())
    assert not bucket.take(3.0)
    assert bucket.seconds_until(3.0) == math.inf
    assert bucket.take(2.0)


def test_without_a_rate_it_is_emptied_once() -> None:
    clock = Clock()
    bucket = TokenBucket(0.0, 1.0, clock)
    assert bucket.take()
    clock.now += 1e9
    assert not bucket.take()
    assert bucket.seconds_until() == math.inf


@given(
    st.floats(0.001, 10_000),
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1)), max_size=30),
    st.floats(0, 1e7),
)
def test_never_more_than_burst_and_inflow_is_had_and_whoever_waits_is_served(
    rate: float, burst: float, steps: list[tuple[float, float]], begin: float
) -> None:
    clock = Clock(begin)
    bucket = TokenBucket(rate, burst, clock)
    taken = 0.0
    for pause, share in steps:
        clock.now += pause
        amount = share * burst
        if bucket.take(amount):
            taken += amount
        else:
            clock.now += bucket.seconds_until(amount)
            assert bucket.take(amount)
            taken += amount
        assert taken <= burst + rate * (clock.now - begin + 2e-6) + 1e-6 * taken


@pytest.mark.parametrize(
    ("rate", "burst"),
    [(-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, 0.0), (1.0, math.nan), (1.0, math.inf)],
)
def test_a_rate_or_burst_that_makes_no_sense_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ArgumentError, match="must be a finite number"):
        TokenBucket(rate, burst)


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
def test_an_amount_that_would_spoil_the_level_is_refused(amount: float) -> None:
    bucket = TokenBucket(1.0, 1.0, Clock())
    with pytest.raises(ArgumentError, match="an amount"):
        bucket.spend(amount)
    assert bucket.level() == 1.0
