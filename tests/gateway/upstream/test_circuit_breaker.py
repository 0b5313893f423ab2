from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mildroute.gateway.config import CircuitBreakerConfig
from mildroute.gateway.upstream.circuit_breaker import CircuitBreaker
from tests.gateway.ticking import Clock


def breaker_of(clock: Clock, chance: float = 0.0, **rules: float) -> CircuitBreaker:
    return CircuitBreaker(CircuitBreakerConfig(**rules), clock, lambda: chance)  # type: ignore[arg-type]


def opened(clock: Clock, chance: float = 0.0, **rules: float) -> CircuitBreaker:
    breaker = breaker_of(clock, chance, consecutive_failures=1, **rules)
    breaker.record_failure()
    return breaker


def test_it_opens_after_failures_in_a_row_and_not_before() -> None:
    breaker = breaker_of(Clock(), consecutive_failures=3)
    for _ in range(2):
        breaker.record_failure()
    breaker.record_success()
    for _ in range(2):
        breaker.record_failure()
    assert (breaker.state, breaker.try_acquire()) == ("closed", True)
    breaker.record_failure()
    assert (breaker.state, breaker.allows_call(), breaker.try_acquire()) == (
        "open",
        False,
        False,
    )


def test_an_open_circuit_that_nobody_asks_shows_when_its_rest_is_over() -> None:
    clock = Clock()
    breaker = opened(clock, cooldown=4.0)
    clock.now += 3.9
    assert breaker.state == "open"
    clock.now += 0.1
    assert (breaker.state, breaker.try_acquire(), breaker.state) == ("half-open", True, "half-open")
    breaker.record_failure()
    assert breaker.state == "open"


def test_it_opens_when_too_large_a_share_of_enough_calls_fails() -> None:
    breaker = breaker_of(Clock(), consecutive_failures=100, failure_rate=0.5, min_calls=20)
    for _ in range(9):
        breaker.record_success()
        breaker.record_failure()
    breaker.record_success()
    assert breaker.state == "closed"
    # 10 of 20
    breaker.record_failure()
    assert breaker.state == "open"


def test_a_share_below_the_bound_keeps_it_closed() -> None:
    breaker = breaker_of(Clock(), consecutive_failures=100, failure_rate=0.5, min_calls=20)
    for _ in range(100):
        breaker.record_success()
        breaker.record_success()
        breaker.record_failure()
    assert breaker.state == "closed"


def test_failures_leave_the_window_with_time() -> None:
    clock = Clock()
    breaker = breaker_of(
        clock, consecutive_failures=100, failure_rate=0.5, min_calls=10, window=30.0
    )
    for _ in range(9):
        breaker.record_failure()
    clock.now += 30.0
    breaker.record_failure()
    assert breaker.state == "closed"
    for _ in range(8):
        breaker.record_failure()
    assert breaker.state == "closed"
    clock.now += 26.0
    breaker.record_failure()
    assert breaker.state == "open"


def test_after_its_rest_one_probe_is_let_in_and_closes_it() -> None:
    clock = Clock()
    breaker = opened(clock, cooldown=1.0)
    clock.now += 0.99
    assert not breaker.allows_call()
    clock.now += 0.02
    assert breaker.allows_call()
    assert breaker.state == "half-open"
    assert breaker.try_acquire()
    assert (breaker.state, breaker.allows_call(), breaker.try_acquire()) == (
        "half-open",
        False,
        False,
    )
    breaker.record_success()
    assert (breaker.state, breaker.try_acquire(), breaker.try_acquire()) == ("closed", True, True)


def test_a_failed_probe_doubles_the_rest_up_to_the_longest_and_a_success_forgets_it() -> None:
    clock = Clock()
    breaker = opened(clock, cooldown=1.0, max_cooldown=5.0)
    for rest in (1.0, 2.0, 4.0, 5.0, 5.0):
        clock.now += rest - 0.01
        assert not breaker.try_acquire()
        clock.now += 0.02
        assert breaker.try_acquire()
        breaker.record_failure()
    clock.now += 5.01
    assert breaker.try_acquire()
    breaker.record_success()
    breaker.record_failure()
    clock.now += 1.01
    assert breaker.try_acquire()


def test_chance_shortens_a_rest_by_a_half_at_most() -> None:
    clock = Clock()
    breaker = opened(clock, chance=1.0, cooldown=4.0)
    clock.now += 1.99
    assert not breaker.try_acquire()
    clock.now += 0.02
    assert breaker.try_acquire()


def test_a_cancelled_probe_leaves_its_place_to_the_next_call() -> None:
    clock = Clock()
    breaker = opened(clock, cooldown=1.0)
    clock.now += 1.0
    assert breaker.try_acquire()
    breaker.release()
    assert (
        breaker.state,
        breaker.allows_call(),
        breaker.try_acquire(),
        breaker.try_acquire(),
    ) == ("half-open", True, True, False)


def test_a_probe_that_nobody_reports_does_not_close_the_expert_out_for_ever() -> None:
    clock = Clock()
    breaker = opened(clock, cooldown=1.0, max_cooldown=10.0)
    clock.now += 1.0
    assert breaker.try_acquire()
    clock.now += 9.9
    assert not breaker.try_acquire()
    clock.now += 0.1
    assert breaker.try_acquire()
    assert not breaker.try_acquire()


def test_a_cancelled_call_changes_nothing_while_it_is_closed_or_open() -> None:
    clock = Clock()
    breaker = breaker_of(clock, consecutive_failures=2)
    breaker.record_failure()
    breaker.release()
    breaker.record_failure()
    assert breaker.state == "open"
    breaker.release()
    assert not breaker.try_acquire()


def test_calls_that_started_before_it_opened_tell_nothing() -> None:
    clock = Clock()
    breaker = breaker_of(clock, consecutive_failures=1, cooldown=1.0)
    early = clock.now
    clock.now += 5.0
    breaker.record_failure(started=clock.now - 1.0)
    breaker.record_success(started=early)
    assert breaker.state == "open"
    clock.now += 1.0
    assert breaker.try_acquire()
    probe = clock.now
    breaker.record_failure(started=early)
    breaker.release(started=early)
    assert (breaker.state, breaker.try_acquire()) == ("half-open", False)
    breaker.record_success(started=probe)
    assert breaker.state == "closed"
    breaker.record_failure(started=early)
    assert breaker.state == "closed"


def test_a_call_that_was_made_although_it_was_open_closes_it_by_its_success() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 0.1
    breaker.record_failure(started=clock.now)
    assert breaker.state == "open"
    breaker.record_success(started=clock.now)
    assert breaker.state == "closed"


def test_a_fresh_start_after_closing_forgets_the_failures_of_before() -> None:
    clock = Clock()
    breaker = breaker_of(
        clock, consecutive_failures=100, failure_rate=0.5, min_calls=4, cooldown=1.0
    )
    for _ in range(4):
        breaker.record_failure()
    clock.now += 1.0
    assert breaker.try_acquire()
    breaker.record_success()
    for _ in range(3):
        breaker.record_failure()
    assert breaker.state == "closed"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "record_success", "record_failure", "release", "wait"]),
            st.floats(0, 3),
        ),
        max_size=80,
    )
)
def test_looking_foretells_entering_and_there_is_never_more_than_one_probe(
    steps: list[tuple[str, float]],
) -> None:
    clock = Clock()
    breaker = breaker_of(clock, consecutive_failures=2, cooldown=1.0, max_cooldown=4.0)
    probing_since: float | None = None
    for step, pause in steps:
        if step == "wait":
            clock.now += pause
        elif step == "enter":
            was, foretold = breaker.state, breaker.allows_call()
            assert breaker.try_acquire() == foretold
            if foretold and was != "closed":
                assert probing_since is None or clock.now - probing_since >= 4.0
                probing_since = clock.now
        else:
            getattr(breaker, step)()
            probing_since = None
    clock.now += 4.0
    assert breaker.allows_call(), "nobody is left out for longer than the longest rest"


@pytest.mark.parametrize("begin", [0.0, 5e8])
def test_the_window_does_not_care_when_its_clock_began(begin: float) -> None:
    clock = Clock(begin)
    breaker = breaker_of(clock, consecutive_failures=100, min_calls=5, failure_rate=1.0, window=1.0)
    for _ in range(4):
        breaker.record_failure()
        clock.now += 0.05
    breaker.record_failure()
    assert breaker.state == "open"


def test_one_request_opens_no_circuit_and_two_do() -> None:
    clock = Clock()
    config = CircuitBreakerConfig(consecutive_failures=2, min_calls=2)
    breaker = CircuitBreaker(config, clock)
    for _ in range(20):
        breaker.record_failure(request=1)
    assert breaker.state == "closed"
    breaker.record_failure(request=2)
    assert breaker.state == "open"
