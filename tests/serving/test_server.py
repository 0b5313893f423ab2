"""A gateway on a port is told to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from mildroute.serving.app import create_app
from mildroute.serving.config import FailoverConfig, GatewayConfig, RequestLimits
from mildroute.serving.server import _Server, protocol_with_limits
from mildroute.serving.services import GatewayServices
from tests.experts.hostile_server import HostileServer, says
from tests.serving.fakes import FakeManager, FakePredictor, experts_at
from tests.serving.running import TRUST, until


@contextmanager
def serving(expert: str, notice: float) -> Iterator[tuple[_Server, httpx.Client]]:
    """In a thread, where uvicorn takes no signals of its own."""
    settings = GatewayConfig(failover=FailoverConfig(drain=1.0, notice=notice))
    app = create_app(GatewayServices(settings, experts_at(small=expert), FakeManager(FakePredictor("small"))))
    config = uvicorn.Config(
        app, port=0, http=protocol_with_limits(RequestLimits()), lifespan="on", log_level="critical", timeout_graceful_shutdown=1
    )
    addresses: list[str] = []
    server = _Server(config, app, addresses.append, settings.failover.notice)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        until(lambda: bool(addresses))
        with httpx.Client(base_url=addresses[0].removesuffix("/v1"), trust_env=False, verify=TRUST) as http:
            yield server, http
    finally:
        server.should_exit = server._is_hurried = True
        thread.join(5)
        assert not thread.is_alive()


def chat(http: httpx.Client) -> int:
    return http.post("/v1/chat/completions", json={"model": "mildroute", "messages": [{"role": "user", "content": "x"}]}).status_code


def test_during_the_notice_it_says_that_it_drains_and_still_takes_requests() -> None:
    with HostileServer([says("4")]) as expert, serving(expert.url, notice=60.0) as (server, http):
        assert http.get("/readyz").status_code == 200
        server.handle_exit(signal.SIGTERM, None)
        for _ in range(2):
            # A connection of its own: the door is open, and not only what came through it before.
            answer = httpx.get(f"{http.base_url}/readyz", trust_env=False, verify=TRUST)
            assert (answer.status_code, answer.json()["why"]) == (503, "draining")
        assert chat(http) == 200
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: not server.servers[0].is_serving())


def test_without_a_notice_the_door_closes_at_once() -> None:
    with HostileServer([says("4")]) as expert, serving(expert.url, notice=0.0) as (server, http):
        assert chat(http) == 200
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: not server.servers[0].is_serving(), seconds=1.0)
