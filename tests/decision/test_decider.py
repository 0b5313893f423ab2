"""The decider alone, and that servers decide as it does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from mildroute import TextRouter
from mildroute.decision import Decider, Decision, DecisionRequest, ExpertStatus
from mildroute.decision.async_decider import AsyncDecider
from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.decision.settings import EncoderConfig, ExplorationConfig, RoutingConfig
from mildroute.exceptions import ArgumentError
from mildroute.persistence import save_router
from mildroute.routers.frontier.target import Target

TEXTS = [f"add {place} and {place + 1}" for place in range(60)] + [
    f"sing song number {place}" for place in range(60)
]
COSTS = [[0.0, 1.0]] * 60 + [[1.0, 0.0]] * 60
UP = {"small": ExpertStatus(), "large": ExpertStatus()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    router = TextRouter().fit(TEXTS, COSTS, experts=("small", "large"))
    return save_router(router, tmp_path_factory.mktemp("artifact") / "router")


def test_a_decision_says_who_why_and_with_which_probability(folder: Path) -> None:
    decider = Decider.load(folder)
    decision = decider.decide(DecisionRequest("sing song number 7", decision_id="d1"))
    assert (decision.expert, decision.reason, decision.propensity) == ("large", "router", 1.0)
    assert decision.ranking == ("large", "small")
    assert sum(decision.probabilities.values()) == pytest.approx(1.0)
    assert decision.expected_score is not None
    assert decision.expected_dollars is None
    assert decision.router == decider.predictor.digest  # type: ignore[union-attr]
    assert decision.decision_id == "d1"
    assert decider.decide(DecisionRequest("sing song number 7")).decision_id != ""


def test_states_of_experts_and_conversations_count(folder: Path) -> None:
    decider = Decider.load(folder)
    request = DecisionRequest("sing song number 7", conversation="c", is_first_turn=False)
    down = UP | {"large": ExpertStatus(is_available=False)}
    decision = decider.decide(request, down)
    assert (decision.expert, decision.reason) == ("small", "next_best")
    assert decision.excluded == {"large": "circuit_open"}
    assert decision.first_choice == "large"
    decider.remember("c", "small")
    tool_result = DecisionRequest("sing song number 7", conversation="c", is_tool_result=True)
    assert decider.decide(tool_result, UP).reason == "sticky"


def test_exploration_has_exact_propensities(folder: Path) -> None:
    config = RoutingConfig(exploration=ExplorationConfig(rate=0.2))
    predictor = Decider.load(folder).predictor
    decider = Decider(predictor, config, random=lambda: 0.15)
    decision = decider.decide(DecisionRequest("sing song number 7"), UP)
    assert (decision.expert, decision.reason) == ("small", "exploration")
    assert decision.propensities == pytest.approx({"small": 0.1, "large": 0.9})
    assert decision.propensity == pytest.approx(0.1)


def test_without_a_router_requests_go_to_the_default() -> None:
    decider = Decider(None, RoutingConfig(default="large"))
    decision = decider.decide(DecisionRequest("Hi"), UP)
    assert (decision.order, decision.reason) == (("large", "small"), "passthrough")


def test_a_target_that_cannot_be_reached_is_an_error(folder: Path) -> None:
    request = DecisionRequest("Hi", target=Target("quality", 0.9))
    with pytest.raises(ArgumentError, match="knows no prices"):
        Decider.load(folder).decide(request)


@pytest.mark.anyio
async def test_servers_decide_as_the_decider_does(folder: Path) -> None:
    predictor = AsyncPredictor.load(folder, EncoderConfig(timeout=30.0))
    requests = [DecisionRequest(text, decision_id=text) for text in TEXTS[50:70]]
    alone = Decider.load(folder)
    server = AsyncDecider(Decider(predictor), SimpleNamespace(predictor=predictor))
    expected = [alone.decide(request, UP) for request in requests]
    single = [(await server.decide(request, lambda: UP))[0] for request in requests]
    batch = [decision for decision, _ in await server.decide_batch(requests, lambda: UP)]

    def facts(decision: Decision) -> tuple[object, ...]:
        return decision.order, decision.reason, decision.propensities, decision.decision_id

    assert list(map(facts, single)) == list(map(facts, expected))
    assert list(map(facts, batch)) == list(map(facts, expected))
    predictor.close()
