"""What a response costs, in its headers and, if the client asks for it, in its body."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.running import Running, running
from tests.gateway.streams import DONE, event, streams, usage

ON = {"x-mildroute-details": "on"}
PRICE = {"input": 2.0, "output": 8.0}
# 7 tokens in and 3 out.
COST = (7 * 2 + 3 * 8) / 1e6


@pytest.fixture
def priced() -> Iterator[Running]:
    with (
        HostileServer([says("4", (7, 3))]) as expert,
        running(small={"base_url": expert.url, "price": PRICE}) as gateway,
    ):
        yield gateway


def test_a_whole_response_tells_its_dollars_in_a_header(priced: Running) -> None:
    answer = priced.chat()
    assert answer.headers["x-mildroute-cost"] == f"{COST:.10f}"
    assert "x-mildroute-cost-estimated" not in answer.headers
    assert priced.records()[0].cost_usd == pytest.approx(COST)


def test_the_body_stays_as_it_is_without_the_header(priced: Running) -> None:
    assert "mildroute" not in priced.chat().json()
    assert "mildroute" not in priced.chat(headers={"x-mildroute-details": "off"}).json()


def test_details_are_added_to_the_body_on_request(priced: Running) -> None:
    answer = priced.chat(headers=ON)
    document = answer.json()
    assert document["choices"][0]["message"]["content"] == "4"
    assert document["mildroute"] == {
        "expert": "small",
        "reason": "router",
        "cost_dollars": pytest.approx(COST),
        "cost_is_estimated": False,
        "decision_id": answer.headers["x-mildroute-decision-id"],
    }


def test_a_cost_that_is_estimated_is_marked() -> None:
    with (
        HostileServer([says("4", None)]) as expert,
        running(small={"base_url": expert.url, "price": PRICE}) as gateway,
    ):
        answer = gateway.chat(headers=ON)
    assert float(answer.headers["x-mildroute-cost"]) > 0
    assert answer.headers["x-mildroute-cost-estimated"] == "true"
    assert answer.json()["mildroute"]["cost_is_estimated"] is True


def test_an_expert_without_a_price_has_no_dollars() -> None:
    with HostileServer([says("4", (7, 3))]) as expert, running(small=expert.url) as gateway:
        answer = gateway.chat(headers=ON)
    assert "x-mildroute-cost" not in answer.headers
    assert answer.json()["mildroute"]["cost_dollars"] is None


def test_the_dollars_of_a_fallback_are_those_of_all_calls() -> None:
    with (
        HostileServer([status(500)]) as broken,
        HostileServer([says("4", (7, 3))]) as good,
        running(
            broken={"base_url": broken.url, "price": PRICE},
            good={"base_url": good.url, "price": PRICE},
        ) as gateway,
    ):
        found = gateway.chat(headers=ON).json()["mildroute"]
        assert (found["expert"], found["reason"]) == ("good", "fallback")
        assert found["cost_dollars"] == gateway.records()[0].cost_usd


def test_an_error_of_an_expert_is_passed_on_without_details() -> None:
    with (
        HostileServer([status(400, body=b'{"error": {"message": "no"}}')]) as expert,
        running(small={"base_url": expert.url, "price": PRICE}) as gateway,
    ):
        answer = gateway.chat(headers=ON)
    assert answer.json() == {"error": {"message": "no"}}
    assert "x-mildroute-cost" not in answer.headers


@pytest.mark.parametrize("pieces", [1, 2, 7], ids=lambda pieces: f"{pieces}-bytes")
def test_a_stream_tells_its_details_in_the_last_event(pieces: int) -> None:
    whole = b"".join((event("a"), event("b"), usage(7, 3), DONE))
    parts = [whole] if pieces == 1 else [whole[:-pieces], whole[-pieces:]]
    with (
        HostileServer([streams(*parts)]) as expert,
        running(small={"base_url": expert.url, "price": PRICE}) as gateway,
    ):
        answer = gateway.chat(headers=ON, stream=True)
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    last = json.loads(events[-2])
    assert last["choices"] == []
    assert last["mildroute"]["cost_dollars"] == pytest.approx(COST)
    assert [json.loads(each).get("usage") for each in events[:-1]] == [None] * 3


def test_a_stream_without_the_header_is_as_before() -> None:
    with (
        HostileServer([streams(event("a"), usage(7, 3), DONE)]) as expert,
        running(small={"base_url": expert.url, "price": PRICE}) as gateway,
    ):
        answer = gateway.chat(stream=True)
    assert answer.content == event("a") + DONE
    assert "x-mildroute-cost" not in answer.headers
