"""Every door decides as Python does, and logs the same propensities.

A door is one function from a :class:`Case` to a :class:`Made` for each text. To test another one,
write its function and add it to ``DOORS``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from mildroute import Target, load_router
from mildroute.cli.app import app
from mildroute.decision import Decider, DecisionRequest, DecisionService, ServiceConfig
from mildroute.decision.log import read_log
from mildroute.decision.predictor import Predictor
from mildroute.decision.settings import DecisionLogConfig, EncoderConfig
from mildroute.fitting.targets import point_of, without_looks
from mildroute.gateway.app import create_app
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.factory import load_gateway
from mildroute.integrations.decision_server import create_decision_app
from mildroute.integrations.litellm import MildrouteClassifier, MildroutePlugin
from tests.doors.artifacts import KINDS, TARGET, experts_file, make_artifact, texts_for
from tests.experts.hostile_server import HostileServer, says
from tests.gateway.running import TRUST, Served
from tests.support.envoy import Envoy, be_patient, processor

ROOT = Path(__file__).parents[2]
# A Python with langchain-core 1.8, which wants other versions than the development environment has.
CLIENTS = os.environ.get("MILDROUTE_DECISION_CLIENTS", "")
PATIENT = EncoderConfig(timeout=60.0)


@dataclass(frozen=True)
class Case:
    """An artifact, and what is decided with it.

    Args:
        kind: One of ``KINDS``.
        folder: The artifact.
        experts: Its file of experts.
        log: Folder for the decision log.
        texts: Texts to decide on, without ids, so that each text seeds its coin.
        target: The target of all decisions.
        names: Names of the experts.
    """

    kind: str
    folder: Path
    experts: Path
    log: Path
    texts: list[str]
    target: Target
    names: tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """A decision on a text.

    Args:
        choice: The expert, or a cascade's first look.
        propensities: Probability of each expert or look to be chosen, without zeros.
    """

    choice: str
    propensities: dict[str, float]


def logged(case: Case) -> list[Made]:
    """Return the decisions of a log, in the order of the texts."""
    records = {record.text: record for record in read_log(case.log)}
    made = []
    for text in case.texts:
        record = records[text]
        chances = dict(zip(record.experts, record.propensities, strict=True))
        assert record.propensity == chances[record.selected]
        made.append(Made(record.selected, {name: each for name, each in chances.items() if each}))
    return made


def library(case: Case, *, reads_answers: bool) -> list[Made]:
    """Return what the router decides in Python."""
    router: Any = load_router(case.folder)
    if case.kind == "cascade" and not reads_answers:
        router = without_looks(router)
    point = point_of(router, case.target)
    return [
        Made(
            each.name,
            {
                name: chance
                for name, chance in zip(each.experts, each.probabilities, strict=True)
                if chance
            },
        )
        for each in router.explain(case.texts, point=point, request_ids=case.texts)
    ]


def decider(case: Case) -> list[Made]:
    """Decide in Python, as a program without a log does."""
    inner = Decider.load(case.folder)
    decisions = [
        inner.decide(DecisionRequest(text, target=case.target, answers="complete"))
        for text in case.texts
    ]
    return [
        Made(each.selected, {name: chance for name, chance in each.propensities.items() if chance})
        for each in decisions
    ]


def command_line(case: Case) -> list[Made]:
    """Decide with ``mildroute route``."""
    path = case.log.with_suffix(".jsonl")
    path.write_text("".join(json.dumps({"input": text}) + "\n" for text in case.texts))
    option = f"--{case.target.kind.replace(' ', '-')}"
    result = CliRunner().invoke(
        app, ["route", str(case.folder), "--file", str(path), option, str(case.target.value)]
    )
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return [
        Made(
            line["expert"],
            {one["expert"]: one["probability"] for one in line["ranking"] if one["probability"]},
        )
        for line in lines
    ]


@contextmanager
def gateway(case: Case) -> Iterator[httpx.Client]:
    """Run the gateway with a log of the case."""
    log = DecisionLogConfig(case.log, log_prompts=True)
    services = load_gateway(case.folder, case.experts, GatewayConfig(log=log, encoder=PATIENT))
    with Served(create_app(services)) as server, client_of(server) as http:
        yield http


def gateway_route(case: Case) -> list[Made]:
    """Decide with ``POST /v1/route`` of the gateway."""
    with gateway(case) as http:
        body = {"inputs": case.texts, case.target.kind: case.target.value}
        assert http.post("/v1/route", json=body).status_code == 200
    return logged(case)


def gateway_system_one(case: Case) -> list[Made]:
    """Decide with ``POST /v1/systemone`` of the gateway."""
    with gateway(case) as http:
        http.headers[f"x-mildroute-{case.target.kind}"] = str(case.target.value)
        answered = [ask_for_expert(http, text, case.names) for text in case.texts]
    made = logged(case)
    assert [each.choice for each in made] == answered
    return made


def service(case: Case) -> list[Made]:
    """Decide with the service that doors share."""
    config = ServiceConfig(case.target, log=DecisionLogConfig(case.log, log_prompts=True))
    with DecisionService.load(case.folder, config) as inner:
        for text in case.texts:
            inner.decide(DecisionRequest(text))
        assert inner.ignores_answers == (case.kind == "cascade")
    return logged(case)


def system_one(case: Case) -> list[Made]:
    """Decide with ``POST /v1/systemone`` of ``mildroute decide``."""
    config = ServiceConfig(
        case.target, encoder=PATIENT, log=DecisionLogConfig(case.log, log_prompts=True)
    )
    inner = DecisionService.load(case.folder, config)
    with Served(create_decision_app(inner)) as server, client_of(server) as http:
        answered = [ask_for_expert(http, text, case.names) for text in case.texts]
    made = logged(case)
    assert [each.choice for each in made] == answered
    return made


def litellm_door(
    case: Case, choose: Callable[[DecisionService, str], Awaitable[str]]
) -> list[Made]:
    """Decide as LiteLLM calls our objects, and check the choices against the log."""
    config = ServiceConfig(
        case.target, encoder=PATIENT, log=DecisionLogConfig(case.log, log_prompts=True)
    )

    async def choose_all() -> list[str]:
        return [await choose(inner, text) for text in case.texts]

    with DecisionService.load(case.folder, config) as inner:
        chosen = asyncio.run(choose_all())
    made = logged(case)
    assert [each.choice for each in made] == chosen
    return made


def context_of(text: str, models: Sequence[str] = ()) -> Any:
    """Return what LiteLLM shows of a request."""
    messages = [{"role": "user", "content": text}]
    return SimpleNamespace(
        structured_messages=messages, candidate_models=list(models), metadata={}, signals={}
    )


def litellm_plugin(case: Case) -> list[Made]:
    """Decide with the routing plug-in of LiteLLM."""

    async def choose(inner: DecisionService, text: str) -> str:
        context = await MildroutePlugin(inner).run(context_of(text, case.names))
        (model,) = context.candidate_models
        return str(model)

    return litellm_door(case, choose)


def litellm_classifier(case: Case) -> list[Made]:
    """Decide with the classifier of LiteLLM's Auto Router."""

    async def choose(inner: DecisionService, text: str) -> str:
        return str(await MildrouteClassifier(inner).classify(context_of(text)))

    return litellm_door(case, choose)


def langchain(case: Case) -> list[Made]:
    """Decide with the decision model of LangChain, in the environment that has it."""
    if not CLIENTS:
        pytest.skip("MILDROUTE_DECISION_CLIENTS names no Python with langchain-core")
    script = Path(__file__).with_name("decide_in_langchain.py")
    result = subprocess.run(
        [CLIENTS, str(script), str(case.folder), str(case.log)],
        input=json.dumps([case.texts, case.names, case.target.kind, case.target.value]),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    made = logged(case)
    assert [each.choice for each in made] == json.loads(result.stdout)
    return made


def ext_proc(case: Case) -> list[Made]:
    """Decide for a real Envoy, which sends each request to the expert of its decision."""
    folder = case.log.with_name("envoy")
    folder.mkdir()
    log = DecisionLogConfig(case.log, log_prompts=True)
    config = ServiceConfig(case.target, encoder=PATIENT, log=log)
    with (
        DecisionService.load(case.folder, config) as inner,
        HostileServer([says("4")]) as expert,
        processor(inner) as server,
        Envoy(folder, _clusters(expert.port, server.port), be_patient) as envoy,
        httpx.Client(base_url=envoy.url, trust_env=False, verify=TRUST, timeout=60) as http,
    ):
        for text in case.texts:
            body = {"model": "mildroute", "messages": [{"role": "user", "content": text}]}
            assert http.post("/chat/completions", json=body).status_code == 200
    made = logged(case)
    assert [call.json["model"] for call in expert.calls] == [each.choice for each in made]
    return made


def _clusters(expert: int, decider: int) -> dict[str, list[int]]:
    """Return the ports of Envoy's clusters if one server plays all experts."""
    return {"small": [expert], "large": [expert], "deciders": [decider]}


@dataclass(frozen=True)
class Door:
    """A way to get decisions.

    Args:
        decide: Decides on all texts of a case.
        reads_answers: Whether a cascade can look at answers behind it.
    """

    decide: Callable[[Case], list[Made]]
    reads_answers: bool = False


DOORS = {
    "python": Door(decider, reads_answers=True),
    "command line": Door(command_line, reads_answers=True),
    "/v1/route": Door(gateway_route, reads_answers=True),
    "service": Door(service),
    "/v1/systemone": Door(system_one),
    "/v1/systemone of the gateway": Door(gateway_system_one),
    "LiteLLM's plug-in": Door(litellm_plugin),
    "LiteLLM's classifier": Door(litellm_classifier),
    "LangChain": Door(langchain),
    "Envoy": Door(ext_proc),
}


def client_of(server: Served) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=TRUST, timeout=60
    )


def ask_for_expert(http: httpx.Client, text: str, names: tuple[str, ...]) -> str:
    """Ask a decision model which expert should answer, and check the form of its answer."""
    question = {"type": "choice", "instructions": "Who answers?", "criteria": dict.fromkeys(names)}
    body = {"model": "mildroute", "state": text, "questions": {"expert": question}}
    response = http.post("/v1/systemone", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()["answers"]["expert"]
    odds = answer["probabilities"]
    assert sum(odds.values()) == pytest.approx(1.0)
    assert odds[answer["choice"]] == max(odds.values())
    return str(answer["choice"])


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def artifact(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_artifact(kind, tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def case(kind: str, artifact: Path, tmp_path: Path) -> Case:
    predictor = Predictor.load(artifact)
    rows = int(os.environ.get("MILDROUTE_DOOR_TEXTS", "500"))
    return Case(
        kind,
        artifact,
        experts_file(kind, tmp_path),
        tmp_path / "log",
        texts_for(kind, rows),
        TARGET,
        predictor.experts[: predictor.n_experts],
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_the_door_decides_and_draws_as_python_does(name: str, case: Case) -> None:
    door = DOORS[name]
    expected = library(case, reads_answers=door.reads_answers)
    made = door.decide(case)
    assert [each.choice for each in made] == [each.choice for each in expected]
    for one, other in zip(made, expected, strict=True):
        assert one.propensities == pytest.approx(other.propensities, abs=1e-6)
    # The cases are worth comparing: several experts are chosen, and a coin decides many texts.
    assert len({each.choice for each in made}) > 1
    assert any(len(each.propensities) > 1 for each in made)
