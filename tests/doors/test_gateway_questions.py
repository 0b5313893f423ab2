"""Questions of decision models to the gateway, with its keys, routes and limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute.decision.log import read_log
from mildroute.decision.settings import DecisionLogConfig, RoutingConfig
from mildroute.gateway.app import create_app
from mildroute.gateway.config import GatewayConfig, RequestLimits
from mildroute.gateway.factory import load_gateway
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from tests.doors.artifacts import SONG, SUM, experts_file, make_artifact
from tests.gateway.running import TRUST, Served

WHO = {"type": "choice", "criteria": {"small": None, "large": None}}
BODY = {"model": "jev-latest", "state": SONG.format(1, 2, "new"), "questions": {"who": WHO}}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_artifact("regression", tmp_path_factory.mktemp("artifacts"))


@contextmanager
def gateway(artifact: Path, folder: Path, **services: Any) -> Iterator[httpx.Client]:
    config = GatewayConfig(
        routing=RoutingConfig(routes={"thrifty": {"budget": 1.5}}),
        log=DecisionLogConfig(folder / "log", log_prompts=True),
        limits=RequestLimits(max_body_mb=0.05),
    )
    made = load_gateway(artifact, experts_file("regression", folder), config)
    with (
        Served(create_app(replace(made, **services))) as server,
        httpx.Client(
            base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=TRUST, timeout=30
        ) as http,
    ):
        yield http


def test_decisions_are_recorded_for_their_client_at_the_target_of_the_route(
    artifact: Path, tmp_path: Path
) -> None:
    key = new_key()
    keys = KeyStore([(hash_key(key), APIClient("team-a"))])
    with gateway(artifact, tmp_path, key_store=keys) as http:
        refused = http.post("/v1/systemone", json=BODY)
        assert (refused.status_code, set(refused.json())) == (401, {"detail"})
        http.headers["authorization"] = f"Bearer {key}"
        answer = http.post("/v1/systemone", json=BODY).json()["answers"]["who"]
        routed = http.post("/v1/systemone", json=BODY | {"model": "thrifty"})
        assert routed.status_code == 200
        feedback = {"decision_id": answer["x_mildroute"]["decision_id"], "score": 1}
        assert http.post("/v1/feedback", json=feedback).json()["known"] is True
    first, second = read_log(tmp_path / "log")
    assert (first.key, first.path, first.text) == ("team-a", "systemone", BODY["state"])
    assert first.decision_id == feedback["decision_id"]
    assert first.selected == answer["choice"]
    assert (first.target, second.target) == ("", "budget 1.5")


def test_other_questions_need_no_decision(artifact: Path, tmp_path: Path) -> None:
    questions = {
        "small": {"type": "noul", "instructions": "Will it do?"},
        "grade": {"type": "score", "instructions": "small", "criteria": ["wrong", "right"]},
    }
    body = BODY | {"state": SUM.format(1, 2, "new"), "questions": questions}
    with gateway(artifact, tmp_path) as http:
        answers = http.post("/v1/systemone", json=body).json()["answers"]
    assert answers["grade"]["score"] == pytest.approx(answers["small"]["noul"])
    assert answers["small"]["noul"] > 0.7
    assert not list(read_log(tmp_path / "log"))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("systemone", {}, 422),
        (
            "systemone",
            BODY | {"questions": {"who": {"type": "choice", "criteria": {"x": None}}}},
            422,
        ),
        ("systemone", BODY | {"state": "x" * 60_000}, 413),
        ("systemone", [], 400),
        ("decisions", {}, 400),
        ("decisions", {"model": "m", "input": "x", "questions": [{"type": "box"}]}, 400),
        ("decisions", BODY | {"state": 7}, 400),
    ],
)
def test_errors_have_the_form_of_the_path(
    artifact: Path, tmp_path: Path, path: str, body: Any, status: int
) -> None:
    with gateway(artifact, tmp_path) as http:
        response = http.post(f"/v1/{path}", json=body)
        assert response.status_code == status, response.text
        assert set(response.json()) == {"detail" if path == "systemone" else "error"}
        target = http.post(
            f"/v1/{path}", json=BODY, headers={"x-mildroute-quality": "not a number"}
        )
        assert target.status_code == 400
        assert set(target.json()) == {"detail" if path == "systemone" else "error"}
