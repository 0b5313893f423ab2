"""The plug-in and the callback inside LiteLLM's Python router."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from mildroute.decision import DecisionService, ServiceConfig
from mildroute.decision.log import DecisionRecord, read_log
from mildroute.decision.settings import (
    DecisionLogConfig,
    EncoderConfig,
    ExplorationConfig,
    RoutingConfig,
)
from mildroute.integrations.litellm import MildrouteLogger, MildroutePlugin

litellm = pytest.importorskip("litellm")
# LiteLLM and pydantic warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")


def deployment(model: str, price: float, **more: Any) -> dict[str, Any]:
    parameters = {
        "model": f"openai/{model}",
        "api_key": "none",
        "input_cost_per_token": price,
        "output_cost_per_token": price,
        "mock_response": f"I am {model}",
        **more,
    }
    return {"model_name": "auto", "litellm_params": parameters}


async def ask(router: Any, texts: list[str]) -> list[str]:
    responses = await asyncio.gather(
        *(
            router.acompletion(model="auto", messages=[{"role": "user", "content": text}])
            for text in texts
        )
    )
    return [response.choices[0].message.content for response in responses]


async def records(log: Path, count: int) -> list[DecisionRecord]:
    """The decisions, once each has an outcome."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        rows = list(read_log(log))
        if len(rows) == count and all(row.attempts for row in rows):
            return rows
        await asyncio.sleep(0.05)
    raise AssertionError(list(read_log(log)))


def test_requests_of_a_python_router_are_decided_and_billed(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routing = RoutingConfig(exploration=ExplorationConfig(rate=0.5))
    config = ServiceConfig(
        routing=routing,
        encoder=EncoderConfig(timeout=60.0),
        log=DecisionLogConfig(tmp_path, log_prompts=True),
    )
    texts = [f"{kind} {index}" for kind in ("add 1 and", "sing a song") for index in range(20)]

    async def run(service: DecisionService) -> tuple[list[str], list[DecisionRecord]]:
        monkeypatch.setattr(litellm, "callbacks", [MildrouteLogger(service)])
        router = litellm.Router(
            model_list=[deployment("sums", 0.001), deployment("songs", 0.01)],
            plugins=[MildroutePlugin(service)],
        )
        answers = await ask(router, texts)
        return answers, await records(tmp_path, len(texts))

    with DecisionService.load(artifact, config) as service:
        answers, rows = asyncio.run(run(service))
    answer_of = dict(zip(texts, answers, strict=True))
    prices = {"sums": 0.001, "songs": 0.01}
    for row in rows:
        assert row.text is not None
        assert answer_of[row.text] == f"I am {row.selected}" == f"I am {row.served_by}"
        assert row.propensity in {0.25, 0.75}
        tokens = row.tokens_in + row.tokens_out
        assert row.cost_usd == pytest.approx(tokens * prices[row.served_by])
    assert {row.propensity for row in rows} == {0.25, 0.75}
