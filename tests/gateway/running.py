"""A gateway in a real server, in a thread of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from uvicorn.server import ServerState

from mildroute.decision.log import DecisionRecord
from mildroute.gateway.app import Gateway, GatewayServices, create_app
from mildroute.gateway.config import FailoverConfig, GatewayConfig
from tests.experts.loopback import LoopbackServer
from tests.gateway.fakes import FakeManager, FakePredictor, KeptLog, experts_at

# Nobody: making one that trusts somebody takes a tenth of a second, and all here is on loopback.
TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclasses.dataclass
class Running:
    """A gateway that runs."""

    app: Gateway
    port: int
    services: GatewayServices
    http: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def predictor(self) -> FakePredictor:
        return self.services.manager.predictor  # type: ignore[return-value]

    def records(self, wanted: int = 1) -> list[DecisionRecord]:
        """What was written down, as soon as it is so much.

        An answer is with its client before its record is written.
        """
        log: KeptLog = self.services.log  # type: ignore[assignment]
        until(lambda: len(log.records) >= wanted)
        return log.records

    def chat(
        self,
        text: str = "Hi",
        *,
        model: str = "mildroute",
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
        return self.http.post("/v1/chat/completions", json=body, headers=headers)


def until(is_so: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for what happens in another thread."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


class Served(LoopbackServer):
    """An ASGI application behind uvicorn's own protocol, without the tenths of a second that its
    server takes to start and to stop.
    """

    def __init__(self, app: Gateway) -> None:
        super().__init__()
        self._config = uvicorn.Config(app, log_level="critical", lifespan="on", proxy_headers=False)
        self._config.load()
        self._lifespan = self._config.lifespan_class(self._config)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._lifespan.startup()
        state = ServerState()
        make = functools.partial(
            self._config.http_protocol_class,
            config=self._config,
            server_state=state,
            app_state=self._lifespan.state,
        )
        server = await self._loop.create_server(make, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(state.connections):
            connection.shutdown()
        await self._lifespan.shutdown()
        await asyncio.sleep(0.001)


@contextmanager
def running(
    settings: GatewayConfig | None = None,
    predictor: FakePredictor | None = None,
    services: dict[str, Any] | None = None,
    **urls: Any,
) -> Iterator[Running]:
    """Serve these experts, ranked in their order, while the context lasts."""
    given = {
        "manager": FakeManager(predictor or FakePredictor(*urls)),
        "log": KeptLog(),
        **(services or {}),
    }
    made = GatewayServices(
        settings or GatewayConfig(failover=FailoverConfig(drain_timeout=1.0)),
        experts_at(**urls),
        **given,
    )
    app = create_app(made)
    with (
        Served(app) as server,
        httpx.Client(
            base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=TRUST, timeout=20
        ) as http,
    ):
        yield Running(app, server.port, made, http)
