"""A server announces its address, finishes requests and stops."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from mildroute.gateway.app import GatewayServices, create_app
from mildroute.gateway.config import FailoverConfig, GatewayConfig
from mildroute.gateway.observability.logs import LogThrottle
from mildroute.gateway.server import GatewayServer, limit_warnings, uvicorn_config
from tests.experts.hostile_server import HostileServer, hangs, says
from tests.gateway.fakes import FakeManager, FakePredictor, experts_at
from tests.gateway.running import TRUST, until
from tests.gateway.streams import endless, event


@contextmanager
def serving(expert: str, notice: float) -> Iterator[tuple[GatewayServer, httpx.Client]]:
    """In a thread, where uvicorn takes no signals of its own."""
    settings = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, shutdown_delay=notice))
    app = create_app(
        GatewayServices(settings, experts_at(small=expert), FakeManager(FakePredictor("small")))
    )
    config = uvicorn_config(app, settings, "127.0.0.1", 0)
    addresses: list[str] = []
    server = GatewayServer(config, app, addresses.append)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        until(lambda: bool(addresses))
        with httpx.Client(
            base_url=addresses[0].removesuffix("/v1"), trust_env=False, verify=TRUST
        ) as http:
            yield server, http
    finally:
        server.should_exit = server._skips_delay = True
        thread.join(5)
        assert not thread.is_alive()


def chat(http: httpx.Client) -> int:
    return http.post(
        "/v1/chat/completions",
        json={"model": "mildroute", "messages": [{"role": "user", "content": "x"}]},
    ).status_code


def test_during_the_notice_it_says_that_it_drains_and_still_takes_requests() -> None:
    with HostileServer([says("4")]) as expert, serving(expert.url, notice=60.0) as (server, http):
        assert http.get("/readyz").status_code == 200
        server.handle_exit(signal.SIGTERM, None)
        for _ in range(2):
            # A connection of its own: the door is open, and not only what came through it before.
            answer = httpx.get(f"{http.base_url}/readyz", trust_env=False, verify=TRUST)
            assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
        assert chat(http) == 200
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: not server.servers[0].is_serving())


def test_without_a_notice_the_door_closes_at_once() -> None:
    with HostileServer([says("4")]) as expert, serving(expert.url, notice=0.0) as (server, http):
        assert chat(http) == 200
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: not server.servers[0].is_serving(), seconds=1.0)


def test_a_stream_that_is_longer_than_the_drain_ends_with_an_error_event(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Audit T9: 10 of 10 streams of 15 s were cut without a word after a drain of 8 s."""
    with (
        HostileServer([endless(event("a"))]) as expert,
        serving(expert.url, notice=0.0) as (server, http),
    ):
        body = {
            "model": "mildroute",
            "stream": True,
            "messages": [{"role": "user", "content": "x"}],
        }
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            pieces = answer.iter_raw()
            got = next(pieces)
            server.handle_exit(signal.SIGTERM, None)
            for piece in pieces:
                got += piece
    assert got.endswith(b"}}\n\n")
    last = json.loads(got[got.rindex(b"data: ") + 6 :])
    assert last["error"]["message"] == "the gateway is shutting down; send the request again."
    assert last["error"]["code"] == "unavailable"
    assert "Exception in ASGI application" not in capsys.readouterr().err


def test_a_request_that_is_longer_than_the_drain_is_told_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was a 500 and a traceback of uvicorn."""
    with (
        HostileServer([hangs()]) as expert,
        serving(expert.url, notice=0.0) as (server, http),
        ThreadPoolExecutor(1) as thread,
    ):
        body = {"model": "mildroute", "messages": [{"role": "user", "content": "x"}]}
        sent = thread.submit(http.post, "/v1/chat/completions", json=body)
        until(lambda: len(expert.calls) == 1)
        server.handle_exit(signal.SIGTERM, None)
        answer = sent.result()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "unavailable"
    assert "Exception in ASGI application" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "head", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"]
)
def test_a_connection_without_a_complete_head_is_closed(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mildroute.gateway.server._HEAD_TIMEOUT", 0.3)
    with (
        HostileServer([says("4", delay=0.6)]) as expert,
        serving(expert.url, notice=0.0) as (_, http),
    ):
        address = ("127.0.0.1", http.base_url.port)
        with socket.create_connection(address, timeout=10) as connection:
            connection.sendall(head)
            assert connection.recv(1) == b""
        # A slow answer is not affected.
        assert chat(http) == 200


def test_warnings_about_bad_requests_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit B3: each bad request wrote a line to stderr."""
    now = 100.0
    throttle = LogThrottle(10.0, lambda: now)
    monkeypatch.setattr("mildroute.gateway.server._WARNINGS", throttle)

    def record(level: int = logging.WARNING) -> logging.LogRecord:
        return logging.LogRecord("uvicorn.error", level, "", 0, "Invalid %s", ("request",), None)

    assert [limit_warnings(record()) for _ in range(1000)] == [True] + [False] * 999
    assert limit_warnings(record(logging.ERROR))
    now = 111.0
    later = record()
    assert limit_warnings(later)
    assert later.fields == {"suppressed": 999}  # type: ignore[attr-defined]
