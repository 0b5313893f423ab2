"""Keys, readiness, administration and figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute.serving.feedback import Feedback, read_feedback
from mildroute.serving.gatekeeper import Gatekeeper
from mildroute.serving.keys import Client, KeyRing, hash_of, new_key
from mildroute.serving.settings import BreakerRules, LogRules, PolicyRules, Settings
from mildroute.serving.telemetry import Telemetry
from tests.experts.hostile_server import HostileServer, says
from tests.serving.fakes import FakeHolder
from tests.serving.running import Running, running, until

ERROR_KEYS = {"message", "type", "param", "code"}


@pytest.fixture
def expert() -> Iterator[HostileServer]:
    with HostileServer([says("4")]) as server:
        yield server


@pytest.fixture
def gateway(expert: HostileServer) -> Iterator[Running]:
    with running(Settings(policy=PolicyRules(routes={"fast": 7.0})), small=expert.url, crowd={"kind": "people", "field": "x"}) as gateway:
        yield gateway


def error_of(answer: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    assert set(found) == ERROR_KEYS
    assert answer.headers["content-type"] == "application/json"
    return found


class TestKeys:
    @pytest.fixture
    def key(self) -> str:
        return new_key()

    @pytest.fixture
    def keyed(self, expert: HostileServer, key: str, tmp_path: Path) -> Iterator[Running]:
        ring = KeyRing([(hash_of(key), Client("team-a", requests_per_minute=60.0, dollars_per_day=100.0))])
        parts = {"keyring": ring, "gatekeeper": Gatekeeper(), "feedback": Feedback(LogRules(tmp_path))}
        with running(parts=parts, small={"base_url": expert.url, "price": {"input": 0, "output": 1_000_000}}) as gateway:
            yield gateway

    def test_without_a_key_only_open_paths_answer(self, keyed: Running, key: str) -> None:
        for headers in ({}, {"authorization": "Bearer mr-wrong"}, {"authorization": f"Basic {key}"}, {"authorization": key}):
            for method, path in (("POST", "/v1/chat/completions"), ("POST", "/v1/route"), ("POST", "/v1/feedback"), ("GET", "/v1/models")):
                answer = keyed.http.request(method, path, headers=headers)
                assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert [keyed.http.get(path).status_code for path in ("/healthz", "/readyz", "/metrics", "/openapi.json")] == [200] * 4

    def test_an_answer_is_charged_once_to_its_key(self, keyed: Running, key: str) -> None:
        answer = keyed.chat(headers={"authorization": f"Bearer {key}"})
        record = keyed.records()[0]
        assert answer.status_code == 200
        assert (record.key, record.dollars) == ("team-a", 2.0)
        until(lambda: keyed.parts.gatekeeper.spent(keyed.parts.keyring.clients[0]) == 2.0)

    def test_too_many_requests_are_refused_with_the_time_to_wait(self, keyed: Running, key: str) -> None:
        answers = [keyed.http.post("/v1/route", json={"input": "x"}, headers={"authorization": f"Bearer {key}"}) for _ in range(14)]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert error_of(refused)["code"] == "rate_limit_exceeded"
        assert refused.headers["retry-after"] == "1"

    def test_a_request_that_fails_gives_back_what_was_held_for_it(self, keyed: Running, key: str) -> None:
        for _ in range(5):
            keyed.http.post("/v1/chat/completions", content=b"{", headers={"authorization": f"Bearer {key}"})
        account = keyed.parts.gatekeeper._accounts["team-a"]
        until(lambda: account._count == 0)

    def test_feedback_is_kept_with_the_name_of_the_key(self, keyed: Running, key: str, tmp_path: Path) -> None:
        headers = {"authorization": f"Bearer {key}"}
        answer = keyed.http.post("/v1/feedback", json={"decision_id": "d1", "score": 0.5, "detail": "so so"}, headers=headers)
        assert answer.json() == {"object": "mildroute.feedback", "decision_id": "d1"}
        assert read_feedback(tmp_path) == {"d1": 0.5}
        for bad in ({"decision_id": "d1", "score": 2}, {"score": 1}, {"decision_id": "d1"}, {"decision_id": "d1", "score": "1"}):
            answer = keyed.http.post("/v1/feedback", json=bad, headers=headers)
            assert answer.status_code == 400
            error_of(answer)


def test_feedback_without_a_log_is_refused(gateway: Running) -> None:
    assert gateway.http.post("/v1/feedback", json={"decision_id": "d1", "score": 1}).status_code == 501


class TestReadiness:
    def test_it_is_ready_with_a_router_and_an_expert(self, gateway: Running) -> None:
        assert gateway.http.get("/readyz").json() == {"status": "ready", "router": "fake"}

    def test_it_is_not_ready_without_a_router_and_says_so_to_clients(self, expert: HostileServer) -> None:
        with running(parts={"holder": FakeHolder(None)}, small=expert.url) as gateway:
            assert gateway.http.get("/readyz").json() == {"status": "not ready", "why": "no router"}
            assert gateway.chat().status_code == 503
            assert gateway.chat(model="small").status_code == 200

    def test_it_is_not_ready_while_it_drains_but_answers(self, gateway: Running) -> None:
        gateway.app.begin_drain()
        answer = gateway.http.get("/readyz")
        assert (answer.status_code, answer.json()["why"]) == (503, "draining")
        assert gateway.http.get("/healthz").status_code == 200
        assert gateway.chat().status_code == 200

    def test_it_is_not_ready_while_every_circuit_is_open(self) -> None:
        settings = Settings(breaker=BreakerRules(failures=1, rest=60.0))
        with running(settings, small="http://127.0.0.1:1/v1") as gateway:
            assert gateway.chat().status_code == 502
            assert gateway.http.get("/readyz").json()["why"] == "every expert is down"


class TestAdmin:
    KEY = "a-long-key-of-the-operator"

    @pytest.fixture
    def kept(self, expert: HostileServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
        monkeypatch.setenv("ADMIN_KEY", self.KEY)
        with running(Settings(admin_key_env="ADMIN_KEY"), small=expert.url) as gateway:
            yield gateway

    def test_the_router_is_replaced_with_the_operators_key_alone(self, kept: Running) -> None:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": self.KEY}):
            assert kept.http.post("/admin/reload", headers=headers).status_code == 401
        answer = kept.http.post("/admin/reload", headers={"authorization": f"Bearer {self.KEY}"})
        assert answer.json() == {"object": "mildroute.router", "router": "fresh"}

    def test_a_bad_artifact_is_refused_with_the_reason_and_the_old_one_stays(self, kept: Running) -> None:
        kept.parts.holder.next_digest = ""  # type: ignore[attr-defined]
        answer = kept.http.post("/admin/reload", headers={"authorization": f"Bearer {self.KEY}"})
        assert (answer.status_code, error_of(answer)["code"]) == (422, "bad_artifact")
        assert kept.chat().status_code == 200


def test_metrics_are_told(expert: HostileServer) -> None:
    with running(parts={"telemetry": Telemetry()}, small=expert.url) as gateway:
        gateway.chat()
        gateway.records()
        until(lambda: 'mildroute_requests_total{path="chat/completions",status="200"} 1.0' in gateway.http.get("/metrics").text)
        assert 'mildroute_breaker_state{expert="small"} 0.0' in gateway.http.get("/metrics").text


def test_models_are_routes_and_experts(gateway: Running) -> None:
    assert [model["id"] for model in gateway.http.get("/v1/models").json()["data"]] == ["mildroute", "fast", "small", "crowd"]
