"""Clients of decision models as their packages have them, in an environment of their own.

Run: python ask_as_a_client.py CLIENT URL < texts.json > answers.json
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

NAMES = ("small", "mid", "large")
CHOICE = {"type": "choice", "instructions": "Who answers?", "criteria": dict.fromkeys(NAMES, "one")}
NOUL = {"type": "noul", "instructions": "small"}
SCORE = {"type": "score", "instructions": "small", "criteria": ["wrong", "right"]}
QUESTIONS: dict[str, dict[str, Any]] = {"who": CHOICE, "small": NOUL, "score": SCORE}


def semantic_router(url: str, texts: list[str]) -> list[Any]:
    """The decision model of semantic-router, and the router that asks it."""
    from semantic_router.decision_models import SystemOneDecisionModel, choice
    from semantic_router.route import Route
    from semantic_router.routers import DecisionRouter

    model = SystemOneDecisionModel(name="mildroute", base_url=url)
    question = {"who": choice("Who answers?", dict.fromkeys(NAMES, "one"))}

    async def ask() -> list[Any]:
        answers = await model.aask_many(texts, question)
        await model.aclose()
        return [answer["who"]["choice"] for answer in answers]

    asked = asyncio.run(ask())
    routes = [Route(name=name, description=name, utterances=[name]) for name in NAMES]
    router = DecisionRouter(SystemOneDecisionModel(name="mildroute", base_url=url), routes)
    chosen = [router(text) for text in texts]
    router.close()
    return [[one, other.name] for one, other in zip(asked, chosen, strict=True)]


def typesafe(url: str, texts: list[str]) -> list[Any]:
    """The client of TypeSafe's SDK, with its checks, and its list of models."""
    from typesafe_sdk import Choice, Noul, Score, TypeSafeAPIError, TypeSafeClient

    questions = {
        "who": Choice(instructions="Who answers?", criteria=dict.fromkeys(NAMES)),
        "small": Noul(instructions="small"),
        "score": Score(instructions="small", criteria=["wrong", "right"]),
    }
    with TypeSafeClient(api_key="any", base_url=url) as client:
        assert [model.name for model in client.models.list().models] == ["mildroute"]
        answers = [client.system_one(text, questions) for text in texts]
        try:
            client.system_one("x", {"spam": Noul(instructions="Is this spam?")})
        except TypeSafeAPIError as error:
            assert "questions.spam: this model only predicts how well experts answer" in str(error)  # noqa: PT017
        else:
            raise AssertionError("the question cannot be answered")
    for answer in answers:
        assert abs(answer.scores["score"].score - answer.nouls["small"].noul) < 1e-9
        assert answer.scores["score"].legend == {0: "wrong", 1: "right"}
    return [[answer.choices["who"].choice] for answer in answers]


def typesafe_schemas(url: str, texts: list[str]) -> list[Any]:
    """Bodies against the published models of TypeSafe's SDK, with no further members."""
    from typesafe_sdk._schemas import models as wire

    wire.SystemOneRequest.model_validate(body_of(texts[0]), strict=True)
    answers = []
    for document in documents(url, texts):
        assert set(document) == set(wire.SystemOneResponse.model_fields)
        response = wire.SystemOneResponse.model_validate(document)
        for name, answer in response.answers.items():
            members = set(document["answers"][name]) - {"x_mildroute"}
            assert members == set(type(answer.root).model_fields)
        answers.append([document["answers"]["who"]["choice"]])
    return answers


def langchain_schemas(url: str, texts: list[str]) -> list[Any]:
    """Bodies against the models of LangChain's decision models."""
    from langchain_core.decisions import Choice, ClassifierResponse, Noul, Score

    kinds = {"choice": Choice, "noul": Noul, "score": Score}
    for question in QUESTIONS.values():
        kinds[question["type"]].model_validate(question)
    answers = []
    for document in documents(url, texts):
        response = ClassifierResponse.model_validate(document)
        assert set(response.scores["score"].probabilities) == {0, 1}
        answers.append([response.choices["who"].choice])
    return answers


def body_of(text: str) -> dict[str, Any]:
    return {"model": "mildroute", "state": text, "questions": QUESTIONS}


def documents(url: str, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the responses to plain requests."""
    headers = {"content-type": "application/json"}
    for text in texts:
        content = json.dumps(body_of(text)).encode()
        request = urllib.request.Request(f"{url}/v1/systemone", content, headers)  # noqa: S310
        with urllib.request.urlopen(request) as response:  # noqa: S310
            yield json.load(response)


CLIENTS = {
    "semantic_router": semantic_router,
    "typesafe": typesafe,
    "typesafe_schemas": typesafe_schemas,
    "langchain_schemas": langchain_schemas,
}
if __name__ == "__main__":
    json.dump(CLIENTS[sys.argv[1]](sys.argv[2], json.load(sys.stdin)), sys.stdout)
