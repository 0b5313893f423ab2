"""Ids of responses name their expert: chains go on in any replica."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, strategies as st

from mildroute.gateway.config import GatewayConfig, RoutingConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.response_ids import decode_response_id, encode_response_id
from tests.experts.hostile_server import Behavior, Call, HostileServer, answers, status
from tests.gateway.fakes import FakePredictor
from tests.gateway.running import TRUST, Running, running
from tests.gateway.streams import streams

OWN = new_key()
IDS = st.text(string.ascii_letters + string.digits + "_.:/+=-", min_size=1, max_size=200)


def first_of(text: str) -> tuple[str, str]:
    return ("large", "small") if text == "first" else ("small", "large")


def response(number: int, previous: str | None = None, text: str = "four") -> dict[str, Any]:
    content = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [message | {"content": [content]}],
        "parallel_tool_calls": True,
        "previous_response_id": previous,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    }


def event(kind: str, number: int, **fields: Any) -> bytes:
    document = {"type": kind, "sequence_number": number, **fields}
    return f"event: {kind}\ndata: {json.dumps(document)}\n\n".encode()


def events(document: dict[str, Any]) -> bytes:
    begun = document | {"status": "in_progress", "output": []}
    text = document["output"][0]["content"][0]["text"]
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return b"".join(
        (
            event("response.created", 0, response=begun),
            event("response.in_progress", 1, response=begun),
            event("response.output_text.delta", 2, delta=text, logprobs=[], **place),
            event("response.completed", 3, response=document),
        )
    )


class Storing:
    """An expert that keeps its responses, and goes on from no others."""

    def __init__(self, base: int) -> None:
        self.number = base
        self.stored: set[str] = set()

    def __call__(self, call: Call) -> Behavior:
        previous = call.json.get("previous_response_id")
        if previous is not None and previous not in self.stored:
            error = {"error": {"message": "no such response", "code": "not_found"}}
            return status(400, {"content-type": "application/json"}, json.dumps(error))
        self.number += 1
        document = response(self.number, previous)
        self.stored.add(document["id"])
        if not call.json.get("stream"):
            return answers(document)
        whole = events(document)
        # Cut so that ids are split over pieces.
        return streams(*(whole[at : at + 37] for at in range(0, len(whole), 37)))


@contextmanager
def fleet(size: int, settings: GatewayConfig | None = None) -> Iterator[list[Running]]:
    """Gateways that share nothing but their experts and keys."""
    clients = [(hash_key(OWN), APIClient("team-a"))]
    with ExitStack() as stack:
        small = stack.enter_context(HostileServer(Storing(1000)))
        large = stack.enter_context(HostileServer(Storing(2000)))
        yield [
            stack.enter_context(
                running(
                    settings,
                    FakePredictor("small", "large", rank=first_of),
                    {"key_store": KeyStore(clients)},
                    small=small.url,
                    large=large.url,
                )
            )
            for _ in range(size)
        ]


@contextmanager
def client_of(gateway: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1",
        api_key=OWN,
        max_retries=0,
        http_client=httpx.Client(trust_env=False, verify=TRUST),
    ) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_goes_on_in_any_of_four_replicas(stream: bool) -> None:
    with fleet(4) as gateways, ExitStack() as stack:
        clients = [stack.enter_context(client_of(gateway)) for gateway in gateways]
        previous: Any = openai.omit
        seen = set()
        for turn in range(8):
            text = "first" if turn == 0 else "next"
            arguments: dict[str, Any] = {"model": "mildroute", "input": text}
            arguments["previous_response_id"] = previous
            client = clients[turn % 4]
            if stream:
                told = [*client.responses.create(stream=True, **arguments)]
                given = [one.response for one in told if hasattr(one, "response")]
                assert [one.type for one in told][::3] == ["response.created", "response.completed"]
                assert len({one.id for one in given}) == 1
                answer = given[-1]
            else:
                answer = client.responses.create(**arguments)
            assert answer.output_text == "four"
            assert answer.previous_response_id == (None if turn == 0 else previous)
            previous = answer.id
            seen.add(previous)
        assert len(seen) == 8
        records = [record for gateway in gateways for record in gateway.records(2)]
        assert [record.served_by for record in records] == ["large"] * 8
        assert {(record.tokens_in, record.tokens_out) for record in records} == {(3, 4)}
        assert sorted(record.reason for record in records) == ["router"] + ["sticky"] * 7


def test_the_expert_sees_its_own_id_and_the_client_ids_of_the_gateway() -> None:
    with (
        HostileServer([answers(response(1)), answers(response(2, "resp_1"))]) as expert,
        running(small=expert.url) as gateway,
    ):
        first = gateway.http.post("/v1/responses", json={"model": "mildroute", "input": "x"})
        encoded = first.json()["id"]
        asked = {"model": "mildroute", "input": f"{encoded} é", "x": 1.0}
        second = gateway.http.post("/v1/responses", json=asked | {"previous_response_id": encoded})
        assert expert.calls[1].json == asked | {
            "model": "small-model",
            "previous_response_id": "resp_1",
        }
        sent = response(2, encoded)
        assert second.json() == sent | {"id": second.json()["id"]}
        assert decode_response_id(second.json()["id"]) == ("resp_2", "small")
        assert int(second.headers["content-length"]) == len(second.content)


def test_it_stays_although_another_expert_seems_much_better() -> None:
    settings = GatewayConfig(routing=RoutingConfig(switch_threshold=0.0, session_affinity=False))
    with fleet(1, settings) as (gateway,):
        gateway.http.headers["authorization"] = f"Bearer {OWN}"
        for named in ({}, {"metadata": {"conversation_id": "c1"}}):
            first = gateway.http.post(
                "/v1/responses", json={"model": "mildroute", "input": "first"}
            )
            body = {"model": "mildroute", "input": "x", "previous_response_id": first.json()["id"]}
            answer = gateway.http.post("/v1/responses", json=body | named)
            headers = answer.headers
            assert (headers["x-mildroute-expert"], headers["x-mildroute-reason"]) == (
                "large",
                "sticky",
            )


def test_no_other_expert_is_called_if_its_own_fails() -> None:
    bad = status(500, {}, "{}")
    with (
        HostileServer([answers(response(1))]) as small,
        HostileServer([answers(response(1)), bad]) as large,
        running(
            None, FakePredictor("small", "large", rank=first_of), small=small.url, large=large.url
        ) as gateway,
    ):
        first = gateway.http.post("/v1/responses", json={"model": "mildroute", "input": "first"})
        body = {"model": "mildroute", "input": "x", "previous_response_id": first.json()["id"]}
        answer = gateway.http.post("/v1/responses", json=body)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "no expert answered: large had an error."
        assert small.calls == []


@pytest.mark.parametrize(
    "previous",
    [
        "resp_of_no_gateway",
        "resp_mr",
        "resp_mr!",
        "resp_mrAAAA",
        "resp_mr" + "A" * 90,
        "resp_mr" + "A" * 5000,
        "resp_mré",
    ],
)
def test_ids_that_the_gateway_did_not_give_are_refused(previous: str) -> None:
    with (
        HostileServer([answers(response(1))]) as expert,
        running(small=expert.url) as gateway,
    ):
        body = {"model": "mildroute", "input": "x", "previous_response_id": previous}
        answer = gateway.http.post("/v1/responses", content=json.dumps(body))
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "previous_response_not_found"
        assert not expert.calls


def test_an_expert_that_is_gone_is_a_clear_error() -> None:
    previous = encode_response_id("resp_1", "retired")
    with HostileServer([answers(response(1))]) as expert, running(small=expert.url) as gateway:
        body = {"model": "mildroute", "input": "x", "previous_response_id": previous}
        answer = gateway.http.post("/v1/responses", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"] == {
            "message": (
                "previous_response_id must belong to an expert that this gateway can call, got one"
                " of retired, which was removed; send the whole conversation."
            ),
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }
        # A client that names an expert itself may know better: both may have the same account.
        named = gateway.http.post("/v1/responses", json=body | {"model": "small"})
        assert named.status_code == 200
        assert expert.calls[0].json["previous_response_id"] == "resp_1"


@given(IDS, st.text(min_size=1, max_size=40).filter(lambda name: "\0" not in name))
def test_what_is_encoded_decodes(response_id: str, expert: str) -> None:
    expert = expert.encode("utf-8", "replace").decode()
    encoded = encode_response_id(response_id, expert)
    assert encoded.startswith("resp_mr")
    assert set(encoded) <= {*string.ascii_letters, *string.digits, "-", "_"}
    assert decode_response_id(encoded) == (response_id, expert)


@pytest.mark.parametrize(
    "document",
    [
        {"id": 7, "object": "response"},
        {"id": 'with "quotes"'},
        {"object": "response"},
        {"id": "x" * 201},
        [{"id": "resp_1"}],
    ],
)
def test_what_has_no_usual_id_stays_as_it_is(document: Any) -> None:
    with HostileServer([answers(document)]) as expert, running(small=expert.url) as gateway:
        answer = gateway.http.post("/v1/responses", json={"model": "mildroute", "input": "x"})
        assert answer.json() == document
