"""Requests, limits and ends of a gateway."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute import Target
from mildroute.gateway.app import GatewayServices, create_app
from mildroute.gateway.config import (
    DecisionLogConfig,
    FailoverConfig,
    GatewayConfig,
    RequestLimits,
    RoutingConfig,
)
from tests.experts.hostile_server import HostileServer, hangs, says
from tests.gateway.fakes import FakeManager, FakePredictor, KeptLog, experts_at
from tests.gateway.running import TRUST, Running, running, until

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


def test_paths_that_are_not_there_and_wrong_methods_are_told_in_the_usual_shape(
    gateway: Running,
) -> None:
    for path in (
        "/v1",
        "/v1/chat/completions/",
        "/v1//chat/completions",
        "/admin/reload",
        "/V1/models",
    ):
        assert error_of(gateway.http.get(path))["code"] == "not_found"
    answer = gateway.http.get("/v1/chat/completions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert error_of(answer)["code"] == "method_not_allowed"
    answer = gateway.http.post("/healthz")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_an_unknown_model_is_told_what_there_is(gateway: Running) -> None:
    answer = gateway.chat(model="gpt-99")
    assert answer.status_code == 404
    error = error_of(answer)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "fast, mildroute, small, crowd" in error["message"]
    assert gateway.services.log.records == []  # type: ignore[attr-defined]


def test_an_expert_that_cannot_be_called_is_refused_clearly(gateway: Running) -> None:
    answer = gateway.chat(model="crowd")
    assert (answer.status_code, error_of(answer)["code"]) == (400, "expert_not_callable")
    assert gateway.chat().headers["x-mildroute-expert"] == "small"


def test_embeddings_need_an_expert_by_name(gateway: Running) -> None:
    answer = gateway.http.post("/v1/embeddings", json={"model": "mildroute", "input": "x"})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "model")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"model": 3}',
        b'{"model": "mildroute"}',
        b'{"messages": []}',
        b"null",
    ],
)
def test_bodies_that_are_no_requests_are_refused(gateway: Running, body: bytes) -> None:
    answer = gateway.http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    error_of(answer)


def test_the_price_weight_comes_from_a_header_a_preset_or_the_route(expert: HostileServer) -> None:
    settings = GatewayConfig(routing=RoutingConfig(presets={"cheap": 100.0}, routes={"fast": 7.0}))
    with running(settings, small=expert.url) as gateway:
        gateway.chat(headers={"x-mildroute-price-weight": "2.5"})
        gateway.chat(headers={"x-mildroute-preset": "cheap"})
        gateway.chat(model="fast")
        gateway.chat(model="fast", headers={"x-mildroute-price-weight": "0"})
        gateway.chat()
        assert gateway.predictor.weights == [2.5, 100.0, 7.0, 0.0, None]
        for headers in (
            {"x-mildroute-price-weight": bad} for bad in ("nan", "-1", "inf", "much", "", "1e999")
        ):
            assert gateway.chat(headers=headers).status_code == 400
        assert gateway.chat(headers={"x-mildroute-preset": "dear"}).status_code == 400
        gateway.chat(headers={"x-mildroute-preset": "cheap", "x-mildroute-price-weight": "1"})
        assert gateway.predictor.weights[-1] == 1.0
        assert len(gateway.records(6)) == 6
        gateway.chat(headers={"x-mildroute-quality": "0.9"})
        gateway.chat(headers={"x-mildroute-budget": "2", "x-request-id": "req-1"})
        assert gateway.predictor.targets[-2:] == [Target("quality", 0.9), Target("budget", 2.0)]
        assert gateway.predictor.request_ids[-2:] == ["Hi", "req-1"]
        assert [(record.target, record.request_id) for record in gateway.records(8)[-2:]] == [
            ("quality 0.9", ""),
            ("budget 2", "req-1"),
        ]
        assert (
            gateway.chat(
                headers={"x-mildroute-budget": "2", "x-mildroute-quality": "0.9"}
            ).status_code
            == 400
        )


def test_a_router_that_knows_no_prices_refuses_a_price_weight(expert: HostileServer) -> None:
    with running(predictor=FakePredictor("small", has_prices=False), small=expert.url) as gateway:
        assert (
            error_of(gateway.chat(headers={"x-mildroute-price-weight": "1"}))["message"]
            == "this router knows no prices."
        )


def test_a_conversation_stays_with_the_expert_that_answered(expert: HostileServer) -> None:
    predictor = FakePredictor(
        "small",
        "large",
        rank=lambda text: ("small", "large") if "first" in text else ("large", "small"),
    )
    settings = GatewayConfig(routing=RoutingConfig(switch_threshold=0.9))
    with running(settings, predictor, small=expert.url, large=expert.url) as gateway:
        opening = [{"role": "user", "content": "first"}]
        turns = [
            *opening,
            {"role": "assistant", "content": "4"},
            {"role": "user", "content": "then"},
        ]
        answers = [
            gateway.http.post("/v1/chat/completions", json={"model": "mildroute", "messages": said})
            for said in (opening, turns)
        ]
        assert [answer.headers["x-mildroute-reason"] for answer in answers] == ["router", "sticky"]
        assert answers[1].headers["x-mildroute-expert"] == "small"


class TestLimits:
    def test_a_body_that_is_too_large_is_refused_before_it_is_read(
        self, expert: HostileServer
    ) -> None:
        with running(
            GatewayConfig(limits=RequestLimits(max_body_mb=0.0001)), small=expert.url
        ) as gateway:
            answer = gateway.chat("x" * 200)
            assert (answer.status_code, error_of(answer)["code"]) == (413, "request_too_large")
            chunks = (piece for piece in [b'{"model": "mildroute", "x": "', b"y" * 200, b'"}'])
            assert gateway.http.post("/v1/chat/completions", content=chunks).status_code == 413
        assert expert.calls == []

    def test_a_body_that_does_not_come_is_not_waited_for(self, expert: HostileServer) -> None:
        with (
            running(
                GatewayConfig(limits=RequestLimits(body_timeout=0.05)), small=expert.url
            ) as gateway,
            socket.create_connection(("127.0.0.1", gateway.port)) as slow,
        ):
            slow.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
            until(lambda: gateway.app.limiter.in_flight == 0)

    def test_a_client_that_leaves_while_it_sends_is_forgotten(self, expert: HostileServer) -> None:
        with running(small=expert.url) as gateway:
            with socket.create_connection(("127.0.0.1", gateway.port)) as slow:
                slow.sendall(
                    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Length: 100\r\n\r\n{"
                )
                until(lambda: gateway.app.limiter.in_flight == 1)
            until(lambda: gateway.app.limiter.in_flight == 0)
            assert gateway.services.log.records == []  # type: ignore[attr-defined]

    def test_more_requests_than_allowed_are_told_to_come_again(self) -> None:
        settings = GatewayConfig(
            limits=RequestLimits(max_in_flight=1),
            failover=FailoverConfig(drain_timeout=0.5, timeout=0.3),
        )
        with HostileServer([hangs()]) as silent, running(settings, small=silent.url) as gateway:
            first = threading.Thread(target=gateway.chat)
            first.start()
            until(lambda: gateway.app.limiter.in_flight == 1)
            answer = gateway.chat()
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert gateway.http.get("/healthz").status_code == 200
            first.join()


def test_a_shadow_router_is_written_down_and_delays_nothing(expert: HostileServer) -> None:
    shadow = FakePredictor("large", "small")
    shadow.seconds = 0.1
    with running(
        services={"shadow": FakeManager(shadow)}, small=expert.url, large=expert.url
    ) as gateway:
        started = time.monotonic()
        answer = gateway.chat()
        assert time.monotonic() - started < 0.1
        assert answer.headers["x-mildroute-expert"] == "small"
        assert gateway.records()[0].shadow == "large"


def test_a_request_that_no_expert_can_take_says_why(expert: HostileServer) -> None:
    limited = {"base_url": expert.url, "capabilities": [], "context": 50}
    with running(small=limited) as gateway:
        answer = gateway.chat(tools=[{"type": "function", "function": {"name": "f"}}])
        assert (answer.status_code, error_of(answer)["code"]) == (400, "no_expert")
        assert "small: tools" in answer.text
        assert gateway.chat("x" * 1000).status_code == 400
        assert [record.status for record in gateway.records(2)] == [400, 400]
    assert expert.calls == []


def test_an_error_inside_is_a_500_without_details_and_a_log_line_without_the_prompt(
    expert: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    predictor = FakePredictor("small", rank=_explode)
    with caplog.at_level(logging.DEBUG), running(predictor=predictor, small=expert.url) as gateway:
        answer = gateway.chat("my private words")
        assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
        assert gateway.chat(model="small").status_code == 200
    assert "private" not in answer.text + caplog.text
    assert "KeyError" not in answer.text
    assert re.search(
        r"POST /v1/chat/completions failed: KeyError in .*test_app.py:\d+", caplog.text
    )


def _explode(text: str) -> list[str]:
    raise KeyError(text)


def test_an_error_after_the_decision_is_written_down(
    expert: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(small=expert.url) as gateway:
        monkeypatch.setattr(
            "mildroute.gateway.upstream.failover.classify_response", lambda *_, **__: 1 / 0
        )
        assert gateway.chat().status_code == 500
        assert [(record.status, record.served_by) for record in gateway.records()] == [(500, "")]
        assert gateway.app.pool.callable["small"].upstream.slots.calls == 0  # type: ignore[union-attr]


def test_a_gateway_needs_names_that_mean_one_thing() -> None:
    def app(settings: GatewayConfig, name: str) -> Callable[[], object]:
        return lambda: create_app(
            GatewayServices(
                settings, experts_at(**{name: "http://127.0.0.1:1/v1"}), FakeManager(None)
            )
        )

    for make in (
        app(GatewayConfig(), "mildroute"),
        app(GatewayConfig(routing=RoutingConfig(routes={"fast": None})), "fast"),
    ):
        with pytest.raises(ValueError, match="must not name an expert and a route"):
            make()
    with pytest.raises(ValueError, match="baseline must be an expert"):
        app(GatewayConfig(baseline="who"), "small")()


def test_savings_are_counted_against_the_most_expensive_expert_or_the_one_that_is_named(
    expert: HostileServer,
) -> None:
    prices = {
        "small": {"base_url": expert.url, "price": 1.0},
        "large": {"base_url": expert.url, "price": 10.0},
        "free": expert.url,
    }
    for baseline, dollars in ((None, 9e-5), ("free", 0.0)):
        with running(GatewayConfig(baseline=baseline), **prices) as gateway:
            gateway.chat()
            record = gateway.records()[0]
        assert (record.cost_usd, record.baseline_cost_usd) == (
            pytest.approx(9e-6),
            pytest.approx(dollars),
        )


def test_text_is_written_down_only_where_that_is_switched_on(expert: HostileServer) -> None:
    for log_prompts in (False, True):
        with running(
            GatewayConfig(log=DecisionLogConfig(log_prompts=log_prompts)), small=expert.url
        ) as gateway:
            gateway.chat("private")
            assert gateway.records()[0].text == ("private" if log_prompts else None)


def test_the_end_of_the_lifespan_waits_for_requests_under_way(expert: HostileServer) -> None:
    with HostileServer([says("4", delay=0.15)]) as slow:
        found: list[int] = []
        with running(small=slow.url) as gateway:
            request = threading.Thread(target=lambda: found.append(_chat_alone(gateway.url)))
            request.start()
            until(lambda: gateway.app.limiter.in_flight == 1)
        request.join()
    assert found == [200]
    assert len(gateway.records()) == 1


def _chat_alone(url: str) -> int:
    """With a client that does not end before the gateway."""
    body = {"model": "mildroute", "messages": [{"role": "user", "content": "x"}]}
    return httpx.post(
        f"{url}/v1/chat/completions", json=body, trust_env=False, verify=TRUST
    ).status_code


def test_websockets_are_turned_away() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    app = create_app(
        GatewayServices(GatewayConfig(), experts_at(), FakeManager(None), log=KeptLog())
    )
    asyncio.run(
        app({"type": "websocket", "path": "/v1/chat/completions", "headers": []}, receive, send)
    )
    assert sent == [{"type": "websocket.close", "code": 1000}]


SERVER = """
import sys, uvicorn
from mildroute.gateway.app import create_app
from mildroute.gateway.app import GatewayServices
from mildroute.gateway.config import GatewayConfig
from tests.gateway.fakes import FakeManager, FakePredictor, experts_at
manager = FakeManager(FakePredictor("small"))
app = create_app(GatewayServices(GatewayConfig(), experts_at(small=sys.argv[1]), manager))
uvicorn.run(app, port=0, log_level="info", access_log=False)
"""


def test_a_process_that_is_told_to_stop_ends_its_requests_first() -> None:
    with HostileServer([says("4", delay=0.3)]) as slow:
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
        with subprocess.Popen(
            [sys.executable, "-c", SERVER, slow.url],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "running on" in line)
            url = re.search(r"http://[\d.:]+", line)
            assert url is not None
            found: list[int] = []
            call = threading.Thread(target=lambda: found.append(_chat_alone(url[0])))
            call.start()
            until(lambda: slow.at_once == 1)
            process.send_signal(signal.SIGTERM)
            call.join()
            said = process.stderr.read()
    assert found == [200]
    assert "Traceback" not in said
