"""The decision model inside LangChain's agents, with chat models that need no server.

Run in an environment with LangChain, which wants other versions than the others tests do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mildroute.decision import DecisionService, ServiceConfig
from mildroute.decision.export import costs_from_log
from mildroute.decision.log import read_log
from mildroute.decision.settings import DecisionLogConfig, EncoderConfig
from mildroute.exceptions import ArgumentError
from mildroute.experts.config import ExpertFile, ExpertSpec
from mildroute.integrations.langchain import MildrouteDecisionModel, report_run

pytest.importorskip("langchain.agents.middleware.model_router")

from langchain.agents import create_agent
from langchain.agents.middleware import ModelChoice, ModelRouterMiddleware
from langchain_core.decisions import Choice, Noul
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

pytestmark = pytest.mark.filterwarnings("ignore:The middleware:Warning")

EXPERTS = ExpertFile(
    Path("experts.yaml"),
    (
        ExpertSpec("sums", "openai", {"price": {"input": 1.0, "output": 2.0}}),
        ExpertSpec("songs", "openai", {"price": {"input": 10.0, "output": 20.0}}),
    ),
)
USAGE = {"input_tokens": 1_000, "output_tokens": 100, "total_tokens": 1_100}


class Expert(GenericFakeChatModel):
    """A chat model that always says its name."""

    def bind_tools(self, *_: Any, **__: Any) -> Expert:
        return self


def expert(name: str) -> Expert:
    def answers() -> Iterator[AIMessage]:
        while True:
            yield AIMessage(f"I am {name}", usage_metadata=USAGE)

    return Expert(messages=answers())


@pytest.fixture
def service(artifact: Path, tmp_path: Path) -> Iterator[DecisionService]:
    config = ServiceConfig(
        encoder=EncoderConfig(timeout=60.0), log=DecisionLogConfig(tmp_path, log_prompts=True)
    )
    with DecisionService.load(artifact, config, EXPERTS) as loaded:
        yield loaded


def agent(service: DecisionService, **more: Any) -> Any:
    middleware = ModelRouterMiddleware(
        choices={
            "simple": ModelChoice(expert("sums"), "Sums."),
            "hard": ModelChoice(expert("songs"), "Songs."),
        },
        instructions="Choose the expert.",
        classifier=MildrouteDecisionModel(service, {"simple": "sums", "hard": "songs"}),
    )
    return create_agent(expert("nobody"), middleware=[middleware], **more)


def asked(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("text", "label", "name", "dollars"),
    [("add 1 and 1", "simple", "sums", 0.0012), ("sing a song", "hard", "songs", 0.012)],
)
def test_an_agent_calls_the_expert_and_reports_its_bill(
    service: DecisionService,
    tmp_path: Path,
    text: str,
    label: str,
    name: str,
    dollars: float,
    is_async: bool,
) -> None:
    routed = agent(service)
    state = asyncio.run(routed.ainvoke(asked(text))) if is_async else routed.invoke(asked(text))
    assert state["messages"][-1].text == f"I am {name}"
    answer = state["model_route"]
    assert answer.choice == label
    assert sum(answer.probabilities.values()) == pytest.approx(1.0)
    decision_id = report_run(service, state)
    assert service.report_score(decision_id, 0.5)
    (row,) = read_log(tmp_path)
    assert (row.decision_id, row.text, row.path) == (decision_id, text, "langchain")
    assert (row.selected, row.served_by, row.propensity) == (name, name, 1.0)
    assert row.cost_usd == pytest.approx(dollars)
    assert costs_from_log(tmp_path).arrow[f"score:{name}"].to_pylist() == [0.5]


def test_a_turn_after_a_checkpoint_is_decided_and_billed_by_itself(
    service: DecisionService, tmp_path: Path
) -> None:
    routed = agent(service, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    routed.invoke(asked("sing a song"), thread)
    state = routed.invoke(asked("add 1 and 1"), thread)
    assert report_run(service, state)
    restored = routed.get_state(thread).values
    assert restored["model_route"].decision_id == state["model_route"].decision_id
    assert [row.selected for row in read_log(tmp_path)] == ["songs", "sums"]
    assert list(read_log(tmp_path))[1].tokens_in == 1_000


def test_states_are_read_as_the_gateway_reads_messages(
    service: DecisionService, tmp_path: Path
) -> None:
    model = MildrouteDecisionModel(service)
    questions = {"who": Choice(instructions="Who?", criteria={"sums": None, "songs": None})}
    states = [
        "sing a song",
        HumanMessage("sing a song"),
        [SystemMessage("You add."), HumanMessage("sing a song")],
        HumanMessage(
            [
                {"type": "text", "text": "sing a song"},
                {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
            ]
        ),
        HumanMessage("请唱一首歌"),
        {"order": 7, "note": None},
    ]
    for state in states:
        response = model.invoke({"state": state, "questions": questions})
        assert response.choices["who"].choice in {"sums", "songs"}
    texts = [row.text for row in read_log(tmp_path)]
    assert texts == ["sing a song"] * 4 + ["请唱一首歌", '{"order":7,"note":null}']


def test_what_no_router_can_answer_is_refused_and_not_logged(
    service: DecisionService, tmp_path: Path
) -> None:
    model = MildrouteDecisionModel(service)
    choice = Choice(instructions="Who?", criteria={"sums": None, "songs": None})
    with pytest.raises(Exception, match="answers choices between experts, got the noul"):
        model.invoke(
            {"state": "x", "questions": {"a": choice, "b": Noul(instructions="Is it spam?")}}
        )
    with pytest.raises(Exception, match="got spam, ham"):
        model.invoke(
            {
                "state": "x",
                "questions": {"a": Choice(instructions="?", criteria={"spam": None, "ham": None})},
            }
        )
    with pytest.raises(ArgumentError, match="'poems'"):
        MildrouteDecisionModel(service, {"hard": "poems"})
    assert list(read_log(tmp_path)) == []


def test_an_agent_without_the_middleware_has_nothing_to_report(service: DecisionService) -> None:
    assert report_run(service, create_agent(expert("sums")).invoke(asked("sing"))) == ""
