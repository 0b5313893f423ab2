from __future__ import annotations

import pytest

from mildroute.experts.spec import ExpertSpec
from mildroute.serving.candidate import Candidate
from mildroute.serving.settings import BreakerRules, Settings
from tests.serving.ticking import Clock

SPEC = ExpertSpec("small", "openai", {"base_url": "http://127.0.0.1:1/v1", "model": "m", "context": 8, "capabilities": ["tools"]})


def test_a_refusal_leaves_an_expert_alone_for_the_time_that_it_names() -> None:
    clock = Clock()
    candidate = Candidate(SPEC, Settings(), clock)
    assert candidate.standing().has_room
    assert candidate.refused(clock(), 7.0) == 7.0
    assert not candidate.standing().has_room
    clock.now += 7.0
    assert candidate.standing().has_room
    assert candidate.breaker.state == "closed"


def test_refusals_without_a_time_double_it_until_an_answer_comes() -> None:
    clock = Clock()
    candidate = Candidate(SPEC, Settings(), clock)
    assert [candidate.refused(clock(), None) for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    candidate.succeeded(clock())
    assert candidate.standing().has_room
    assert candidate.refused(clock(), None) == 1.0


def test_a_refusal_of_a_day_is_not_believed_for_longer_than_a_minute() -> None:
    clock = Clock()
    assert Candidate(SPEC, Settings(), clock).refused(clock(), 86_400.0) == 60.0


def test_failures_open_its_circuit_and_an_answer_closes_it() -> None:
    clock = Clock()
    candidate = Candidate(SPEC, Settings(breaker=BreakerRules(failures=2)), clock)
    for state in ("closed", "open", "open"):
        candidate.failed(clock())
        assert candidate.breaker.state == state
    clock.now += 10.0
    assert candidate.breaker.try_enter()
    candidate.succeeded(clock())
    assert candidate.breaker.state == "closed"


def test_its_standing_has_what_its_file_says() -> None:
    standing = Candidate(SPEC, Settings()).standing()
    assert (standing.context, standing.capabilities) == (8, frozenset({"tools"}))


@pytest.mark.parametrize(
    ("price", "dollars"), [(None, 0.0), ({"input": 1.0, "output": 2.0}, 5.0), (1.0, 4.0)], ids=["free", "two prices", "one price"]
)
def test_dollars_are_those_of_the_file(price: object, dollars: float) -> None:
    settings = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "price": price}
    assert Candidate(ExpertSpec("a", "openai", settings), Settings()).dollars(3_000_000, 1_000_000) == dollars


def test_people_are_paid_by_the_answer() -> None:
    crowd = Candidate(ExpertSpec("crowd", "people", {"field": "x", "price": {"per_answer": 0.08}}), Settings())
    assert crowd.dollars(0, 0) == 0.08
    assert crowd.standing().has_room
