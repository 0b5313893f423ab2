"""Clients of decision models as their packages have them, in an environment of their own.

Run: python ask_as_a_client.py CLIENT URL < texts.json > answers.json
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

NAMES = ("small", "mid", "large")
CHOICE = {"type": "choice", "instructions": "Who answers?", "criteria": dict.fromkeys(NAMES, "one")}
NOUL = {"type": "noul", "instructions": "small"}
SCORE = {"type": "score", "instructions": "small", "criteria": ["wrong", "right"]}
QUESTIONS = {"who": CHOICE, "small": NOUL, "score": SCORE}


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
            assert "questions.spam: this model knows how well experts answer" in str(error)  # noqa: PT017
        else:
            raise AssertionError("the question cannot be answered")
    for answer in answers:
        assert abs(answer.scores["score"].score - answer.nouls["small"].noul) < 1e-9
        assert answer.scores["score"].legend == {0: "wrong", 1: "right"}
    return [[answer.choices["who"].choice] for answer in answers]


def schemas(url: str, texts: list[str]) -> list[Any]:
    """Bodies against the models of TypeSafe's SDK, with no further members, and LangChain's."""
    import urllib.request

    from langchain_core.decisions import ClassifierResponse
    from typesafe_sdk._schemas import models as wire

    answers = []
    for text in texts:
        body = {"model": "mildroute", "state": text, "questions": QUESTIONS}
        wire.SystemOneRequest.model_validate(body, strict=True)
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(  # noqa: S310
            f"{url}/v1/systemone", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request) as response:  # noqa: S310
            document = json.load(response)
        assert set(document) == set(wire.SystemOneResponse.model_fields)
        response_model = wire.SystemOneResponse.model_validate(document)
        for name, answer in response_model.answers.items():
            known = set(type(answer.root).model_fields)
            assert set(document["answers"][name]) - {"x_mildroute"} == known
        parsed = ClassifierResponse.model_validate(document)
        answers.append([parsed.choices["who"].choice])
    return answers


if __name__ == "__main__":
    client = {"semantic_router": semantic_router, "typesafe": typesafe, "schemas": schemas}
    json.dump(client[sys.argv[1]](sys.argv[2], json.load(sys.stdin)), sys.stdout)
