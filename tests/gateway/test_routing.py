"""The decision alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mildroute.gateway.config import GatewayConfig, RequestLimits, RoutingConfig
from tests.experts.hostile_server import HostileServer, says
from tests.gateway.fakes import FakePredictor
from tests.gateway.running import Running, running

BRAIN = {
    "rank": lambda text: (
        ("crowd", "small", "large") if "hard" in text else ("small", "large", "crowd")
    )
}


@pytest.fixture
def gateway() -> Iterator[Running]:
    settings = GatewayConfig(
        routing=RoutingConfig(presets={"cheap": 100.0}, routes={"fast": 7.0}),
        limits=RequestLimits(max_route_inputs=3),
    )
    predictor = FakePredictor("small", "large", "crowd", **BRAIN)
    with (
        HostileServer([says("never")]) as expert,
        running(
            settings,
            predictor,
            small=expert.url,
            large=expert.url,
            crowd={"kind": "people", "field": "x"},
        ) as gateway,
    ):
        yield gateway
    assert expert.calls == []


def route(gateway: Running, **body: Any) -> Any:
    answer = gateway.http.post("/v1/route", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_decision_tells_all_that_is_known(gateway: Running) -> None:
    told = route(gateway, input="easy")
    record = gateway.records()[0]
    assert told == {
        "object": "mildroute.decision",
        "decision_id": record.decision_id,
        "expert": "small",
        "reason": "router",
        "look": None,
        "probabilities": {"small": 1.0, "large": 0.0, "crowd": 0.0},
        "ranking": [
            {"expert": "small", "posterior": pytest.approx(3 / 6), "score": 0.5, "dollars": 0.25},
            {"expert": "large", "posterior": pytest.approx(2 / 6), "score": 0.5, "dollars": 0.25},
            {"expert": "crowd", "posterior": pytest.approx(1 / 6), "score": 0.5, "dollars": 0.25},
        ],
        "order": ["small", "large", "crowd"],
        "excluded": {},
        "price_weight": None,
        "operating_point": None,
        "router": "fake",
    }
    assert (
        record.path,
        record.status,
        len(record.attempts),
        record.served_by,
        record.cost_usd,
    ) == (
        "route",
        200,
        0,
        "",
        0.0,
    )


def test_experts_that_the_gateway_cannot_call_can_be_chosen(gateway: Running) -> None:
    assert route(gateway, input="hard")["expert"] == "crowd"


def test_many_inputs_are_decided_in_their_order_and_each_is_written_down(gateway: Running) -> None:
    told = route(gateway, inputs=["easy", "hard", "easy"])
    assert [decision["expert"] for decision in told["data"]] == ["small", "crowd", "small"]
    assert [record.decision_id for record in gateway.records(3)] == [
        decision["decision_id"] for decision in told["data"]
    ]


def test_a_chat_is_decided_as_it_would_be_answered(gateway: Running) -> None:
    messages = [{"role": "system", "content": "easy"}, {"role": "user", "content": "hard"}]
    assert route(gateway, messages=messages)["expert"] == "crowd"
    assert route(gateway, model="fast", messages=messages)["price_weight"] == 7.0


def test_the_price_weight_comes_from_header_body_or_route(gateway: Running) -> None:
    assert route(gateway, input="x", price_weight=2)["price_weight"] == 2.0
    assert route(gateway, input="x", preset="cheap")["price_weight"] == 100.0
    assert route(gateway, input="x", model="fast")["price_weight"] == 7.0
    sent = gateway.http.post(
        "/v1/route", json={"input": "x"}, headers={"x-mildroute-price-weight": "3"}
    )
    assert sent.json()["price_weight"] == 3.0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": "x", "inputs": ["x"]}, "input"),
        ({"input": 3}, "input"),
        ({"inputs": "x"}, "inputs"),
        ({"inputs": ["x", 3]}, "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": ["x"] * 4}, "inputs"),
        ({"input": "x", "model": 3}, "model"),
        ({"input": "x", "model": "small"}, "model"),
        ({"input": "x", "price_weight": -1}, "price_weight"),
        ({"input": "x", "price_weight": True}, "price_weight"),
        ({"input": "x", "price_weight": "10" * 400}, "price_weight"),
        ({"input": "x", "preset": ["cheap"]}, "preset"),
        ({"messages": "x"}, "messages"),
    ],
)
def test_what_is_no_request_is_refused_with_the_member_at_fault(
    gateway: Running, body: dict[str, Any], param: str
) -> None:
    answer = gateway.http.post("/v1/route", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_numbers_that_json_does_not_know_and_unknown_models_are_refused(gateway: Running) -> None:
    assert (
        gateway.http.post("/v1/route", content=b'{"input": "x", "price_weight": NaN}').status_code
        == 400
    )
    assert (
        gateway.http.post(
            "/v1/route", content=b'{"input": "x", "price_weight": 1%b}' % (b"0" * 400)
        ).status_code
        == 400
    )
    assert gateway.http.post("/v1/route", content=b"[" * 100_000).status_code == 400
    assert gateway.http.post("/v1/route", json={"input": "x", "model": "who"}).status_code == 404


def test_half_a_letter_is_no_json(gateway: Running) -> None:
    assert gateway.http.post("/v1/route", content=b'{"input": "\\ud83d"}').status_code == 400
