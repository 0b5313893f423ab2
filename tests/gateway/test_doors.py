"""Keys, readiness, administration and figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from mildroute.decision.feedback import FeedbackLog, read_feedback
from mildroute.gateway.config import (
    CircuitBreakerConfig,
    DecisionLogConfig,
    GatewayConfig,
    RequestLimits,
    RoutingConfig,
)
from mildroute.gateway.key_changes import add_client
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.limits.local import LocalLimits
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.upstream.failover import Failover
from tests.experts.hostile_server import HostileServer, says
from tests.gateway.fakes import FakeManager, write_experts
from tests.gateway.running import Running, running, until
from tests.gateway.ticking import Clock

ERROR_KEYS = {"message", "type", "param", "code"}


@pytest.fixture
def expert() -> Iterator[HostileServer]:
    with HostileServer([says("4")]) as server:
        yield server


@pytest.fixture
def gateway(expert: HostileServer) -> Iterator[Running]:
    with running(
        GatewayConfig(routing=RoutingConfig(routes={"fast": 7.0})),
        small=expert.url,
        crowd={"kind": "people", "field": "x"},
    ) as gateway:
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
        ring = KeyStore(
            [(hash_key(key), APIClient("team-a", requests_per_minute=60.0, dollars_per_day=100.0))]
        )
        services = {
            "key_store": ring,
            "limits": LocalLimits(),
            "feedback": FeedbackLog(DecisionLogConfig(tmp_path)),
        }
        with running(
            services=services,
            small={"base_url": expert.url, "price": {"input": 0, "output": 1_000_000}},
        ) as gateway:
            yield gateway

    def test_without_a_key_only_open_paths_answer(self, keyed: Running, key: str) -> None:
        for headers in (
            {},
            {"authorization": "Bearer mr-wrong"},
            {"authorization": f"Basic {key}"},
            {"authorization": key},
        ):
            for method, path in (
                ("POST", "/v1/chat/completions"),
                ("POST", "/v1/route"),
                ("POST", "/v1/feedback"),
                ("GET", "/v1/models"),
            ):
                answer = keyed.http.request(method, path, headers=headers)
                assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert [
            keyed.http.get(path).status_code
            for path in ("/healthz", "/readyz", "/metrics", "/openapi.json")
        ] == [200] * 4

    def test_an_answer_is_charged_once_to_its_key(self, keyed: Running, key: str) -> None:
        answer = keyed.chat(headers={"authorization": f"Bearer {key}"})
        record = keyed.records()[0]
        assert answer.status_code == 200
        assert (record.key, record.cost_usd) == ("team-a", 2.0)
        until(lambda: keyed.services.limits.spent("team-a") == 2.0)

    def test_too_many_requests_are_refused_with_the_time_to_wait(
        self, keyed: Running, key: str
    ) -> None:
        answers = [
            keyed.http.post(
                "/v1/route", json={"input": "x"}, headers={"authorization": f"Bearer {key}"}
            )
            for _ in range(14)
        ]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert error_of(refused)["code"] == "rate_limit_exceeded"
        assert refused.headers["retry-after"] == "1"

    def test_a_request_that_fails_gives_back_what_was_held_for_it(
        self, keyed: Running, key: str
    ) -> None:
        for _ in range(5):
            keyed.http.post(
                "/v1/chat/completions", content=b"{", headers={"authorization": f"Bearer {key}"}
            )
        assert list(keyed.services.limits.budgets()) in ([], [("team-a", 100.0, 0)])

    def test_feedback_is_kept_with_the_name_of_the_key(
        self, keyed: Running, key: str, tmp_path: Path
    ) -> None:
        headers = {"authorization": f"Bearer {key}"}
        answer = keyed.http.post(
            "/v1/feedback",
            json={"decision_id": "d1", "score": 0.5, "detail": "so so"},
            headers=headers,
        )
        assert answer.json() == {
            "object": "mildroute.feedback",
            "decision_id": "d1",
            "known": False,
        }
        assert read_feedback(tmp_path) == {"d1": 0.5}
        decision = keyed.chat(headers=headers).headers["x-mildroute-decision-id"]
        told = keyed.http.post(
            "/v1/feedback", json={"decision_id": decision, "score": 1}, headers=headers
        )
        assert told.json()["known"] is True
        for bad in (
            {"decision_id": "d1", "score": 2},
            {"score": 1},
            {"decision_id": "d1"},
            {"decision_id": "d1", "score": "1"},
        ):
            answer = keyed.http.post("/v1/feedback", json=bad, headers=headers)
            assert answer.status_code == 400
            error_of(answer)


def test_feedback_without_a_log_is_refused(gateway: Running) -> None:
    assert (
        gateway.http.post("/v1/feedback", json={"decision_id": "d1", "score": 1}).status_code == 501
    )


class TestReadiness:
    def test_it_is_ready_with_a_router_and_an_expert(self, gateway: Running) -> None:
        assert gateway.http.get("/readyz").json() == {"status": "ready", "router": "fake"}

    def test_without_a_router_it_is_ready_and_passes_requests_through(
        self, expert: HostileServer
    ) -> None:
        with running(services={"manager": FakeManager(None)}, small=expert.url) as gateway:
            assert gateway.http.get("/readyz").json() == {"status": "ready", "router": None}
            passed, named = gateway.chat(), gateway.chat(model="small")
            assert (passed.status_code, named.status_code) == (200, 200)
            assert passed.headers["x-mildroute-reason"] == "passthrough"

    def test_it_is_not_ready_while_it_drains_but_answers(self, gateway: Running) -> None:
        gateway.app.begin_drain()
        answer = gateway.http.get("/readyz")
        assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
        assert gateway.http.get("/healthz").status_code == 200
        assert gateway.chat().status_code == 200

    def test_it_is_not_ready_while_every_circuit_is_open(self) -> None:
        settings = GatewayConfig(
            breaker=CircuitBreakerConfig(consecutive_failures=1, cooldown=60.0)
        )
        with running(settings, small="http://127.0.0.1:1/v1") as gateway:
            assert [gateway.chat().status_code for _ in range(2)] == [502] * 2
            assert gateway.http.get("/readyz").json()["reason"] == "every expert is down"


class TestAdmin:
    KEY = "a-long-key-of-the-operator"

    @pytest.fixture
    def kept(
        self, expert: HostileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Running]:
        monkeypatch.setenv("ADMIN_KEY", self.KEY)
        monkeypatch.chdir(tmp_path)
        write_experts(tmp_path / "experts.yaml", small=expert.url)
        with running(GatewayConfig(admin_key_env="ADMIN_KEY"), small=expert.url) as gateway:
            yield gateway

    def test_the_router_is_replaced_with_the_admin_key_alone(self, kept: Running) -> None:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": self.KEY}):
            assert kept.http.post("/admin/reload", headers=headers).status_code == 401
        answer = kept.http.post("/admin/reload", headers={"authorization": f"Bearer {self.KEY}"})
        assert answer.json() == {"object": "mildroute.router", "router": "fresh", "experts": 1}

    def test_a_bad_artifact_is_refused_with_the_reason_and_the_old_one_stays(
        self, kept: Running
    ) -> None:
        kept.services.manager.next_digest = ""  # type: ignore[attr-defined]
        answer = kept.http.post("/admin/reload", headers={"authorization": f"Bearer {self.KEY}"})
        assert (answer.status_code, error_of(answer)["code"]) == (422, "bad_artifact")
        assert kept.chat().status_code == 200


class TestKeysAnew:
    OPERATOR: ClassVar = {"authorization": "Bearer a-long-key-of-the-operator"}

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "keys.yaml"

    @pytest.fixture
    def keys(self, file: Path) -> list[str]:
        return [add_client(file, name, dollars_per_day=5.0) for name in ("team-a", "team-b")]

    @pytest.fixture
    def kept(
        self, expert: HostileServer, file: Path, keys: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Running]:
        monkeypatch.setenv("ADMIN_KEY", "a-long-key-of-the-operator")
        services = {"key_store": KeyStore.read(file), "limits": LocalLimits()}
        expert_of_two_dollars = {"base_url": expert.url, "price": {"input": 0, "output": 1_000_000}}
        monkeypatch.chdir(file.parent)
        write_experts(file.parent / "experts.yaml", small=expert_of_two_dollars)
        with running(
            GatewayConfig(keys=file, admin_key_env="ADMIN_KEY"),
            services=services,
            small=expert_of_two_dollars,
        ) as gateway:
            assert len(keys) == 2
            yield gateway

    def statuses(self, gateway: Running, keys: list[str]) -> list[int]:
        return [
            gateway.http.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code
            for key in keys
        ]

    def test_a_revoked_key_is_shut_out_by_a_reload_and_a_new_one_is_let_in(
        self, kept: Running, file: Path, keys: list[str]
    ) -> None:
        assert self.statuses(kept, keys) == [200, 200]
        file.write_text(
            "\n".join(line for line in file.read_text().splitlines() if "team-b" not in line) + "\n"
        )
        new = add_client(file, "team-c")
        assert self.statuses(kept, [*keys, new]) == [200, 200, 401]
        answer = kept.http.post("/admin/reload", headers=self.OPERATOR)
        reloaded = {"router": "fresh", "experts": 1, "clients": 2}
        assert answer.json() == {"object": "mildroute.router", **reloaded}
        assert self.statuses(kept, [*keys, new]) == [200, 401, 200]

    def test_a_broken_file_is_refused_with_the_reason_and_the_old_keys_stay(
        self, kept: Running, file: Path, keys: list[str]
    ) -> None:
        file.write_text("team-a: {hash: 7}\n")
        answer = kept.http.post("/admin/reload", headers=self.OPERATOR)
        assert (answer.status_code, error_of(answer)["code"]) == (422, "bad_keys")
        assert (
            "the router was replaced, but the keys stay as they were: keys.yaml:1"
            in error_of(answer)["message"]
        )
        assert self.statuses(kept, keys) == [200, 200]
        kept.services.manager.next_digest = ""  # type: ignore[attr-defined]
        message = error_of(kept.http.post("/admin/reload", headers=self.OPERATOR))["message"]
        assert message.startswith("the router was not replaced: router.json")
        assert "The keys stay as they were: keys.yaml:1" in message

    def test_a_bad_router_does_not_keep_a_revoked_key_alive(
        self, kept: Running, file: Path, keys: list[str]
    ) -> None:
        file.write_text("")
        kept.services.manager.next_digest = ""  # type: ignore[attr-defined]
        assert kept.http.post("/admin/reload", headers=self.OPERATOR).status_code == 422
        assert self.statuses(kept, keys) == [401, 401]

    def test_what_a_key_that_stays_has_spent_is_not_forgotten(
        self, kept: Running, file: Path, keys: list[str]
    ) -> None:
        mine = {"authorization": f"Bearer {keys[0]}"}
        assert kept.chat(headers=mine).status_code == 200
        kept.records()
        until(lambda: kept.services.limits.spent("team-a") == 2.0)
        file.write_text(file.read_text().replace("5.0", "2.0"))
        assert kept.http.post("/admin/reload", headers=self.OPERATOR).status_code == 200
        answer = kept.chat(headers=mine)
        assert (answer.status_code, error_of(answer)["code"]) == (429, "insufficient_quota")


def test_metrics_are_told(expert: HostileServer) -> None:
    with running(services={"metrics": GatewayMetrics()}, small=expert.url) as gateway:
        gateway.chat()
        gateway.records()
        until(
            lambda: (
                'mildroute_requests_total{path="chat/completions",status="200"} 1.0'
                in gateway.http.get("/metrics").text
            )
        )
        assert 'mildroute_breaker_state{expert="small"} 0.0' in gateway.http.get("/metrics").text


class TestGuardedMetrics:
    def test_they_are_told_with_their_key_alone(
        self, expert: HostileServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SCRAPER_KEY", "a-key-of-the-scraper")
        with running(
            GatewayConfig(metrics_key_env="SCRAPER_KEY"),
            services={"metrics": GatewayMetrics()},
            small=expert.url,
        ) as gateway:
            for headers in (
                {},
                {"authorization": "Bearer wrong"},
                {"authorization": "a-key-of-the-scraper"},
            ):
                answer = gateway.http.get("/metrics", headers=headers)
                assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
            answer = gateway.http.get(
                "/metrics", headers={"authorization": "Bearer a-key-of-the-scraper"}
            )
            assert "mildroute_router_info" in answer.text
            assert gateway.http.get("/healthz").status_code == 200
            assert gateway.http.get("/openapi.json").json()["paths"]["/metrics"]["get"][
                "security"
            ] == [{"operator": []}]


def refusals(metrics: GatewayMetrics) -> dict[tuple[str, str], float]:
    samples = [
        sample
        for metric in metrics.registry.collect()
        if metric.name == "mildroute_rejected"
        for sample in metric.samples
    ]
    return {
        (sample.labels["status"], sample.labels["code"]): sample.value
        for sample in samples
        if sample.value
    }


class TestRefusals:
    def test_what_is_refused_before_a_decision_is_counted_by_status_and_code(
        self, expert: HostileServer
    ) -> None:
        metrics, key = GatewayMetrics(), new_key()
        ring = KeyStore([(hash_key(key), APIClient("team-a", requests_per_minute=12.0))])
        services = {"metrics": metrics, "key_store": ring, "limits": LocalLimits()}
        with running(
            GatewayConfig(limits=RequestLimits(max_body_mb=0.0001)),
            services=services,
            small=expert.url,
        ) as gateway:
            gateway.http.headers["authorization"] = f"Bearer {key}"
            assert [
                gateway.chat("x" * 100).status_code,
                gateway.chat(model="gpt-99").status_code,
            ] == [413, 404]
            codes = [
                gateway.http.post("/v1/route", json={"input": "x"}).status_code for _ in range(3)
            ]
            assert codes == [200, 200, 429]
            assert gateway.chat(headers={"authorization": "Bearer x"}).status_code == 401
            assert [
                gateway.http.get("/x").status_code,
                gateway.http.get("/v1/route").status_code,
            ] == [404, 405]
        assert refusals(metrics) == {
            ("413", "request_too_large"): 1,
            ("404", "model_not_found"): 1,
            ("429", "rate_limit_exceeded"): 1,
            ("401", "invalid_api_key"): 1,
            ("404", "not_found"): 1,
            ("405", "method_not_allowed"): 1,
        }

    def test_a_full_gateway_and_bodies_that_cannot_be_read_are_counted(
        self, expert: HostileServer
    ) -> None:
        metrics = GatewayMetrics()
        with running(
            GatewayConfig(limits=RequestLimits(max_in_flight=1)),
            services={"metrics": metrics},
            small=expert.url,
        ) as gateway:
            assert gateway.http.post("/v1/chat/completions", content=b"{").status_code == 400
            gateway.app.limiter.in_flight = 1
            assert gateway.chat().status_code == 503
            gateway.app.limiter.in_flight = 0
        assert refusals(metrics) == {("400", "none"): 1, ("503", "overloaded"): 1}

    def test_a_request_that_was_decided_is_counted_among_those_and_not_twice(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(*_: Any) -> None:
            raise RuntimeError

        monkeypatch.setattr(Failover, "call", fail)
        metrics = GatewayMetrics()
        with running(services={"metrics": metrics}, small="http://127.0.0.1:1/v1") as gateway:
            assert gateway.chat().status_code == 500
        assert (
            metrics.registry.get_sample_value(
                "mildroute_requests_total", {"path": "chat/completions", "status": "500"}
            )
            == 1
        )
        assert refusals(metrics) == {}


def test_an_idle_expert_does_not_seem_down_for_ever_nor_keep_the_gateway_from_requests() -> None:
    metrics, clock = GatewayMetrics(), Clock()
    settings = GatewayConfig(breaker=CircuitBreakerConfig(consecutive_failures=1, cooldown=60.0))
    with running(
        settings, services={"metrics": metrics, "clock": clock}, small="http://127.0.0.1:1/v1"
    ) as gateway:
        assert [gateway.chat().status_code for _ in range(2)] == [502] * 2
        assert (
            metrics.registry.get_sample_value("mildroute_breaker_state", {"expert": "small"}) == 2
        )
        assert gateway.http.get("/readyz").status_code == 503
        clock.now += 60.0
        assert (
            metrics.registry.get_sample_value("mildroute_breaker_state", {"expert": "small"}) == 1
        )
        assert gateway.http.get("/readyz").status_code == 200


def test_models_are_routes_and_experts(gateway: Running) -> None:
    models = gateway.http.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["mildroute", "fast", "small", "crowd"]
    assert [gateway.http.get(f"/v1/models/{model['id']}").json() for model in models] == models
    answer = gateway.http.get("/v1/models/gpt-99")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")


def test_a_name_with_a_slash_is_found_among_the_models(expert: HostileServer) -> None:
    with running(**{"meta/llama": expert.url}) as gateway:
        for path in ("meta/llama", "meta%2Fllama"):
            assert gateway.http.get(f"/v1/models/{path}").json()["id"] == "meta/llama"
