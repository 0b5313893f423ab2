from __future__ import annotations

import pytest

from mildroute.experts.config import ExpertSpec
from mildroute.gateway.config import CircuitBreakerConfig, GatewayConfig
from mildroute.gateway.upstream.pool import UpstreamExpert
from tests.gateway.ticking import Clock

SPEC = ExpertSpec(
    "small",
    "openai",
    {"base_url": "http://127.0.0.1:1/v1", "model": "m", "context": 8, "capabilities": ["tools"]},
)


def test_a_refusal_leaves_an_expert_alone_for_the_time_that_it_names() -> None:
    clock = Clock()
    expert = UpstreamExpert(SPEC, GatewayConfig(), clock)
    assert expert.status().has_capacity
    assert expert.record_rate_limit(clock(), 7.0) == 7.0
    assert not expert.status().has_capacity
    clock.now += 7.0
    assert expert.status().has_capacity
    assert expert.breaker.state == "closed"


def test_refusals_without_a_time_double_it_until_an_answer_comes() -> None:
    clock = Clock()
    expert = UpstreamExpert(SPEC, GatewayConfig(), clock)
    assert [expert.record_rate_limit(clock(), None) for _ in range(8)] == [
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        32.0,
        60.0,
        60.0,
    ]
    expert.record_success(clock())
    assert expert.status().has_capacity
    assert expert.record_rate_limit(clock(), None) == 1.0


def test_a_refusal_of_a_day_is_not_believed_for_longer_than_a_minute() -> None:
    clock = Clock()
    assert UpstreamExpert(SPEC, GatewayConfig(), clock).record_rate_limit(clock(), 86_400.0) == 60.0


def test_failures_open_its_circuit_and_an_answer_closes_it() -> None:
    clock = Clock()
    expert = UpstreamExpert(
        SPEC, GatewayConfig(breaker=CircuitBreakerConfig(consecutive_failures=2)), clock
    )
    for state in ("closed", "open", "open"):
        expert.record_failure(clock())
        assert expert.breaker.state == state
    clock.now += 10.0
    assert expert.breaker.try_acquire()
    expert.record_success(clock())
    assert expert.breaker.state == "closed"


def test_its_standing_has_what_its_file_says() -> None:
    status = UpstreamExpert(SPEC, GatewayConfig()).status()
    assert (status.context, status.capabilities) == (8, frozenset({"tools"}))


@pytest.mark.parametrize(
    ("price", "dollars"),
    [(None, 0.0), ({"input": 1.0, "output": 2.0}, 5.0), (1.0, 4.0)],
    ids=["free", "two prices", "one price"],
)
def test_dollars_are_those_of_the_file(price: object, dollars: float) -> None:
    settings = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "price": price}
    assert (
        UpstreamExpert(ExpertSpec("a", "openai", settings), GatewayConfig()).cost(
            3_000_000, 1_000_000
        )
        == dollars
    )


def test_people_are_paid_by_the_answer() -> None:
    crowd = UpstreamExpert(
        ExpertSpec("crowd", "people", {"field": "x", "price": {"per_answer": 0.08}}),
        GatewayConfig(),
    )
    assert crowd.cost(0, 0) == 0.08
    assert crowd.status().has_capacity
