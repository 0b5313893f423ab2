from __future__ import annotations

import asyncio
import json
import logging

import httpx
import pytest

from mildroute import Target
from mildroute.exceptions import ArgumentError
from mildroute.integrations.litellm import RouteClient


def test_the_question_goes_to_the_route_endpoint_with_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "mr-1234")
    seen: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"expert": "large", "order": ["large", "small"]})

    client = RouteClient(
        "http://gateway:8000/v1/", key_env="GATEWAY_KEY", transport=httpx.MockTransport(respond)
    )
    assert asyncio.run(client.ranking("Prove it.", Target("price weight", 5.0))) == (
        "large",
        "small",
    )
    assert str(seen[0].url) == "http://gateway:8000/v1/route"
    assert json.loads(seen[0].content) == {"input": "Prove it.", "price_weight": 5.0}
    assert seen[0].headers["authorization"] == "Bearer mr-1234"


def test_an_outage_is_logged_once_and_its_end_too_without_what_was_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = iter(
        [
            httpx.ConnectTimeout("x"),
            httpx.Response(500),
            httpx.Response(200, json={"order": ["a"]}),
            httpx.Response(401),
        ]
    )

    def respond(_request: httpx.Request) -> httpx.Response:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def four() -> list[tuple[str, ...] | None]:
        client = RouteClient("http://gateway", transport=httpx.MockTransport(respond))
        found = [await client.ranking("a secret question") for _ in range(4)]
        await client.close()
        return found

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(four()) == [None, None, ("a",), None]
    assert len(caplog.records) == 3
    assert "ConnectTimeout" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "{}",
        '{"order": []}',
        '{"order": [1]}',
        '{"order": [{"name": "a"}]}',
        '{"order": 5}',
        "null",
    ],
)
def test_an_answer_that_is_no_decision_is_none(answer: str) -> None:
    client = RouteClient(
        "http://gateway", transport=httpx.MockTransport(lambda _: httpx.Response(200, text=answer))
    )
    assert asyncio.run(client.ranking("x")) is None


def test_an_address_with_a_password_is_refused() -> None:
    with pytest.raises(ArgumentError):
        RouteClient("http://user:word@gateway")
