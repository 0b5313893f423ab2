"""The official client against the gateway, as its users would write it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import openai
import pytest

from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from tests.experts.hostile_server import Behavior, Call, HostileServer, answers, completion, status
from tests.gateway.running import TRUST, Running, running
from tests.gateway.streams import DONE, event, streams, usage

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
USER = {"role": "user", "content": "2 + 2?"}


def _expert(call: Call) -> Behavior:
    parsed = call.json
    if call.path.endswith("/embeddings"):
        reported = {"prompt_tokens": 3, "total_tokens": 3}
        return answers(
            {
                "object": "list",
                "model": "m",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}],
                "usage": reported,
            }
        )
    if call.path.endswith("/responses"):
        return answers(_RESPONSE)
    if parsed.get("stream"):
        return streams(event("fo"), event("ur"), usage(5, 2), DONE)
    document = completion("four", created=1, model="m")
    if "tools" in parsed:
        document["choices"][0]["message"] = {
            "role": "assistant",
            "content": None,
            "tool_calls": [CALL],
        }
    return answers(document)


_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "four", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
}


@pytest.fixture
def key() -> str:
    return new_key()


@pytest.fixture
def gateway(key: str) -> Iterator[Running]:
    ring = KeyStore([(hash_key(key), APIClient("team-a"))])
    with (
        HostileServer(_expert) as expert,
        running(services={"key_store": ring}, small=expert.url, large=expert.url) as gateway,
    ):
        yield gateway


@pytest.fixture
def client(gateway: Running, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1",
        api_key=key,
        max_retries=0,
        http_client=httpx.Client(trust_env=False, verify=TRUST),
    ) as made:
        yield made


def test_a_chat_with_its_decision_in_the_headers(client: openai.OpenAI) -> None:
    answer = client.chat.completions.with_raw_response.create(model="mildroute", messages=[USER])
    assert answer.headers["x-mildroute-expert"] == "small"
    assert answer.parse().choices[0].message.content == "four"


def test_a_stream_with_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="mildroute", messages=[USER], stream=True, stream_options={"include_usage": True}
        )
    )
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "four"
    )
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2


def test_tools(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="mildroute", messages=[USER], tools=[TOOL], tool_choice="auto"
    )
    assert answer.choices[0].message.tool_calls[0].function.arguments == '{"a": 2}'  # type: ignore[union-attr, index]


def test_embeddings_responses_and_models(client: openai.OpenAI) -> None:
    assert client.embeddings.create(model="small", input="x", encoding_format="float").data[
        0
    ].embedding == [0.5, 1.0]
    assert client.responses.create(model="mildroute", input="2 + 2?").output_text == "four"
    assert [model.id for model in client.models.list()] == ["mildroute", "small", "large"]


def test_a_model_can_be_retrieved_by_its_name(client: openai.OpenAI) -> None:
    assert [client.models.retrieve(name).owned_by for name in ("mildroute", "small")] == [
        "mildroute",
        "expert",
    ]
    with pytest.raises(openai.NotFoundError, match="see /v1/models"):
        client.models.retrieve("gpt-99")


def test_errors_are_the_clients_own_kinds_of_errors(
    client: openai.OpenAI, gateway: Running
) -> None:
    with pytest.raises(openai.NotFoundError, match="model must be a route or an expert"):
        client.chat.completions.create(model="gpt-99", messages=[USER])
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="mr-wrong").chat.completions.create(
            model="mildroute", messages=[USER]
        )
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="mildroute", messages=[])


def test_a_stream_that_breaks_is_an_error_of_the_client(key: str) -> None:
    with (
        HostileServer([streams(event("fo"), ends=False)]) as expert,
        running(small=expert.url) as gateway,
        openai.OpenAI(
            base_url=f"{gateway.url}/v1",
            api_key=key,
            max_retries=0,
            http_client=httpx.Client(trust_env=False, verify=TRUST),
        ) as client,
    ):
        chunks = client.chat.completions.create(model="mildroute", messages=[USER], stream=True)
        assert next(iter(chunks)).choices[0].delta.content == "fo"
        with pytest.raises(openai.APIError, match="broke the connection"):
            list(chunks)


def test_the_asynchronous_client_and_failover() -> None:
    async def ask(url: str) -> str | None:
        http = httpx.AsyncClient(trust_env=False, verify=TRUST)
        async with openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http
        ) as client:
            answers_seen = await asyncio.gather(
                *(
                    client.chat.completions.create(model="mildroute", messages=[USER])
                    for _ in range(5)
                )
            )
        return answers_seen[-1].choices[0].message.content

    with (
        HostileServer([status(500, {}, json.dumps({"error": "x"}))]) as broken,
        HostileServer(_expert) as good,
        running(small=broken.url, large=good.url) as gateway,
    ):
        assert asyncio.run(ask(gateway.url)) == "four"
