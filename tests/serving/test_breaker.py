from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mildroute.serving.config import CircuitBreakerConfig
from mildroute.serving.upstream.circuit_breaker import CircuitBreaker
from tests.serving.ticking import Clock


def breaker_of(clock: Clock, chance: float = 0.0, **rules: float) -> CircuitBreaker:
    return CircuitBreaker(CircuitBreakerConfig(**rules), clock, lambda: chance)  # type: ignore[arg-type]


def opened(clock: Clock, chance: float = 0.0, **rules: float) -> CircuitBreaker:
    breaker = breaker_of(clock, chance, failures=1, **rules)
    breaker.fail()
    return breaker


def test_it_opens_after_failures_in_a_row_and_not_before() -> None:
    breaker = breaker_of(Clock(), failures=3)
    for _ in range(2):
        breaker.fail()
    breaker.succeed()
    for _ in range(2):
        breaker.fail()
    assert (breaker.state, breaker.try_enter()) == ("closed", True)
    breaker.fail()
    assert (breaker.state, breaker.is_closed_for_call(), breaker.try_enter()) == ("open", False, False)


def test_an_open_circuit_that_nobody_asks_shows_when_its_rest_is_over() -> None:
    clock = Clock()
    breaker = opened(clock, rest=4.0)
    clock.now += 3.9
    assert breaker.state == "open"
    clock.now += 0.1
    assert (breaker.state, breaker.try_enter(), breaker.state) == ("half-open", True, "half-open")
    breaker.fail()
    assert breaker.state == "open"


def test_it_opens_when_too_large_a_share_of_enough_calls_fails() -> None:
    breaker = breaker_of(Clock(), failures=100, share=0.5, least=20)
    for _ in range(9):
        breaker.succeed()
        breaker.fail()
    breaker.succeed()
    assert breaker.state == "closed"
    # 10 of 20
    breaker.fail()
    assert breaker.state == "open"


def test_a_share_below_the_bound_keeps_it_closed() -> None:
    breaker = breaker_of(Clock(), failures=100, share=0.5, least=20)
    for _ in range(100):
        breaker.succeed()
        breaker.succeed()
        breaker.fail()
    assert breaker.state == "closed"


def test_failures_leave_the_window_with_time() -> None:
    clock = Clock()
    breaker = breaker_of(clock, failures=100, share=0.5, least=10, window=30.0)
    for _ in range(9):
        breaker.fail()
    clock.now += 30.0
    breaker.fail()
    assert breaker.state == "closed"
    for _ in range(8):
        breaker.fail()
    assert breaker.state == "closed"
    clock.now += 26.0
    breaker.fail()
    assert breaker.state == "open"


def test_after_its_rest_one_probe_is_let_in_and_closes_it() -> None:
    clock = Clock()
    breaker = opened(clock, rest=1.0)
    clock.now += 0.99
    assert not breaker.is_closed_for_call()
    clock.now += 0.02
    assert breaker.is_closed_for_call()
    assert breaker.state == "half-open"
    assert breaker.try_enter()
    assert (breaker.state, breaker.is_closed_for_call(), breaker.try_enter()) == ("half-open", False, False)
    breaker.succeed()
    assert (breaker.state, breaker.try_enter(), breaker.try_enter()) == ("closed", True, True)


def test_a_failed_probe_doubles_the_rest_up_to_the_longest_and_a_success_forgets_it() -> None:
    clock = Clock()
    breaker = opened(clock, rest=1.0, longest_rest=5.0)
    for rest in (1.0, 2.0, 4.0, 5.0, 5.0):
        clock.now += rest - 0.01
        assert not breaker.try_enter()
        clock.now += 0.02
        assert breaker.try_enter()
        breaker.fail()
    clock.now += 5.01
    assert breaker.try_enter()
    breaker.succeed()
    breaker.fail()
    clock.now += 1.01
    assert breaker.try_enter()


def test_chance_shortens_a_rest_by_a_half_at_most() -> None:
    clock = Clock()
    breaker = opened(clock, chance=1.0, rest=4.0)
    clock.now += 1.99
    assert not breaker.try_enter()
    clock.now += 0.02
    assert breaker.try_enter()


def test_a_cancelled_probe_leaves_its_place_to_the_next_call() -> None:
    clock = Clock()
    breaker = opened(clock, rest=1.0)
    clock.now += 1.0
    assert breaker.try_enter()
    breaker.cancel()
    assert (breaker.state, breaker.is_closed_for_call(), breaker.try_enter(), breaker.try_enter()) == ("half-open", True, True, False)


def test_a_probe_that_nobody_reports_does_not_close_the_expert_out_for_ever() -> None:
    clock = Clock()
    breaker = opened(clock, rest=1.0, longest_rest=10.0)
    clock.now += 1.0
    assert breaker.try_enter()
    clock.now += 9.9
    assert not breaker.try_enter()
    clock.now += 0.1
    assert breaker.try_enter()
    assert not breaker.try_enter()


def test_a_cancelled_call_changes_nothing_while_it_is_closed_or_open() -> None:
    clock = Clock()
    breaker = breaker_of(clock, failures=2)
    breaker.fail()
    breaker.cancel()
    breaker.fail()
    assert breaker.state == "open"
    breaker.cancel()
    assert not breaker.try_enter()


def test_calls_that_started_before_it_opened_tell_nothing() -> None:
    clock = Clock()
    breaker = breaker_of(clock, failures=1, rest=1.0)
    early = clock.now
    clock.now += 5.0
    breaker.fail(started=clock.now - 1.0)
    breaker.succeed(started=early)
    assert breaker.state == "open"
    clock.now += 1.0
    assert breaker.try_enter()
    probe = clock.now
    breaker.fail(started=early)
    breaker.cancel(started=early)
    assert (breaker.state, breaker.try_enter()) == ("half-open", False)
    breaker.succeed(started=probe)
    assert breaker.state == "closed"
    breaker.fail(started=early)
    assert breaker.state == "closed"


def test_a_call_that_was_made_although_it_was_open_closes_it_by_its_success() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 0.1
    breaker.fail(started=clock.now)
    assert breaker.state == "open"
    breaker.succeed(started=clock.now)
    assert breaker.state == "closed"


def test_a_fresh_start_after_closing_forgets_the_failures_of_before() -> None:
    clock = Clock()
    breaker = breaker_of(clock, failures=100, share=0.5, least=4, rest=1.0)
    for _ in range(4):
        breaker.fail()
    clock.now += 1.0
    assert breaker.try_enter()
    breaker.succeed()
    for _ in range(3):
        breaker.fail()
    assert breaker.state == "closed"


@given(st.lists(st.tuples(st.sampled_from(["enter", "succeed", "fail", "cancel", "wait"]), st.floats(0, 3)), max_size=80))
def test_looking_foretells_entering_and_there_is_never_more_than_one_probe(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    breaker = breaker_of(clock, failures=2, rest=1.0, longest_rest=4.0)
    probing_since: float | None = None
    for step, pause in steps:
        if step == "wait":
            clock.now += pause
        elif step == "enter":
            was, foretold = breaker.state, breaker.is_closed_for_call()
            assert breaker.try_enter() == foretold
            if foretold and was != "closed":
                assert probing_since is None or clock.now - probing_since >= 4.0
                probing_since = clock.now
        else:
            getattr(breaker, step)()
            probing_since = None
    clock.now += 4.0
    assert breaker.is_closed_for_call(), "nobody is left out for longer than the longest rest"


@pytest.mark.parametrize("begin", [0.0, 5e8])
def test_the_window_does_not_care_when_its_clock_began(begin: float) -> None:
    clock = Clock(begin)
    breaker = breaker_of(clock, failures=100, least=5, share=1.0, window=1.0)
    for _ in range(4):
        breaker.fail()
        clock.now += 0.05
    breaker.fail()
    assert breaker.state == "open"
