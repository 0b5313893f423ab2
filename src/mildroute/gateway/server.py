"""Serving of a gateway with uvicorn, in one process or with uvicorn's own workers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Literal

from mildroute.exceptions import MissingExtraError
from mildroute.gateway.app import Gateway, GatewayServices, create_app
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.limits.redis import RedisLimits
from mildroute.gateway.observability.logs import LogThrottle
from mildroute.gateway.observability.metrics import WORKERS_FOLDER

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.supervisors import Multiprocess
except ImportError:
    raise MissingExtraError.for_package(
        "uvicorn", extra="serve", user="mildroute.gateway"
    ) from None

__all__ = ["GatewayServer", "limit_warnings", "serve", "serve_workers"]

# Seconds that an idle connection is kept. Most load balancers keep theirs for a shorter time, so
# they never send a request over a connection that the gateway is closing.
_KEEP_ALIVE = 75
_POLL_INTERVAL = 0.02
# Seconds without a health response after which a worker is replaced. uvicorn's default of 5 is too
# short for the start of a worker on a busy machine.
_WORKER_TIMEOUT = 20
# Seconds that operators' requests have to finish after the last client's request.
_ADMIN_DRAIN = 10.0
# Seconds within which the head of a request must arrive.
_HEAD_TIMEOUT = 10.0
# Seconds after which Python switches threads, instead of its default of 0.005.
_SWITCH_INTERVAL = 0.001
# A client without a key can send any number of invalid requests, and uvicorn logs each of them.
_WARNINGS = LogThrottle(10.0)


def serve(services: GatewayServices, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests in flight.

    SIGHUP reloads the artifact, the experts and the client keys.

    Args:
        services: Services of the gateway, which closes them at the end.
        host: Address to listen on.
        port: Port to listen on; 0 picks a free one.
        announce: Called with the base URL once the gateway listens.
    """
    tune_interpreter()
    gateway = create_app(services)
    config = uvicorn_config(gateway, services.config, host, port)
    admin = None
    if gateway.admin is not None:
        admin = AdminServer(admin_config(gateway, services.config))
    server = GatewayServer(config, gateway, announce, admin)
    server.run()


def serve_workers(
    app: Callable[[], Gateway],
    config: GatewayConfig,
    host: str,
    port: int,
    workers: int,
    announce: Callable[[str], None],
) -> None:
    """Serve with several processes until SIGINT or SIGTERM.

    uvicorn starts the workers, replaces those that die, and replaces all of them on SIGHUP.

    Args:
        app: Creates the gateway of a worker. It must be picklable and quick to import, because a
            worker answers no health check of uvicorn before that.
        config: Configuration of the gateway.
        host: Address to listen on.
        port: Port to listen on; 0 picks a free one.
        workers: Number of processes.
        announce: Called with the base URL before the workers start.
    """
    logging.getLogger("uvicorn.error").addFilter(limit_warnings)
    settings = uvicorn_config(app, config, host, port, workers=workers)
    with settings.bind_socket() as bound, tempfile.TemporaryDirectory() as folder:
        # prometheus_client sums the metrics of all workers from files in this folder.
        os.environ[WORKERS_FOLDER] = folder
        announce(base_url(host, bound.getsockname()[1]))
        Multiprocess(settings, [bound]).run()


class HeadTimeoutProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which also closes connections on which no complete head arrives."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the head of the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Wait for the head of the next request."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Stop waiting; the gateway limits the time for the body."""
        self._stop_waiting()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(_HEAD_TIMEOUT, self._close_unless_responding)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _close_unless_responding(self) -> None:
        # A pipelined request may be incomplete while the previous response is sent.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class AdminServer(uvicorn.Server):
    """The server of the admin port, which starts and stops with the server for clients."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the server for clients."""
        yield

    async def start(self) -> None:
        """Start the server, and return once the port is open."""
        self._task = asyncio.create_task(self.serve())
        while not self.started and not self._task.done():
            await asyncio.sleep(_POLL_INTERVAL)

    async def stop(self) -> None:
        """Finish the operators' requests and close the port."""
        self.should_exit = True
        if self._task is not None:
            await self._task


class GatewayServer(uvicorn.Server):
    """A server that announces its address, and tells load balancers before it stops.

    Args:
        config: Configuration of uvicorn.
        gateway: The application that is served.
        announce: Called with the base URL once the gateway listens.
        admin: Server of the admin port, or ``None``.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        announce: Callable[[str], None],
        admin: AdminServer | None = None,
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._announce = announce
        self._admin = admin
        self._skips_delay = False

    async def startup(self, sockets: Any = None) -> None:
        """Open the ports, watch for SIGHUP and announce the address."""
        limits = self._gateway.services.limits
        if isinstance(limits, RedisLimits):
            await limits.check_access()
        logging.getLogger("uvicorn.error").addFilter(limit_warnings)
        self._reload_on_hangup()
        await super().startup(sockets)
        if not self.started:
            return
        if self._admin is not None:
            await self._admin.start()
        port = self.servers[0].sockets[0].getsockname()[1]
        self._announce(base_url(self.config.host, port))

    async def shutdown(self, sockets: Any = None) -> None:
        """Keep listening for ``failover.shutdown_delay`` seconds, then finish and stop.

        During the delay ``/readyz`` returns 503, so that load balancers send nothing more.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._gateway.services.config.failover.shutdown_delay
        while loop.time() < until and not self._skips_delay:
            await asyncio.sleep(_POLL_INTERVAL)
        await super().shutdown(sockets)
        if self._admin is not None:
            # The admin port closes last, so that probes and scrapes can see the gateway drain.
            await self._admin.stop()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to stop; a second signal skips the delay."""
        self._skips_delay = self.should_exit
        self._gateway.begin_drain()
        super().handle_exit(sig, frame)

    def _reload_on_hangup(self) -> None:
        loop = asyncio.get_running_loop()
        # A task without a reference may be collected before it ends.
        reloads: set[asyncio.Task[Any]] = set()

        def reload() -> None:
            task = loop.create_task(self._gateway.reloader.try_reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        # Windows has no SIGHUP, and only the main thread receives signals.
        with contextlib.suppress(NotImplementedError, AttributeError, ValueError, RuntimeError):
            loop.add_signal_handler(signal.SIGHUP, reload)


def base_url(host: str, port: int) -> str:
    """Return the base URL for clients."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def uvicorn_config(
    app: Any,
    config: GatewayConfig,
    host: str,
    port: int,
    *,
    lifespan: Literal["on", "off"] = "on",
    drain_timeout: float | None = None,
    workers: int | None = None,
) -> uvicorn.Config:
    """Return the configuration of uvicorn for one port.

    Args:
        app: The application, or its factory if there are workers.
        config: Configuration of the gateway.
        host: Address to listen on.
        port: Port to listen on.
        lifespan: Whether the server starts and stops the application.
        drain_timeout: Seconds that requests in flight have to finish; defaults to
            ``failover.drain_timeout``.
        workers: Number of processes; ``None`` serves in this process.
    """
    seconds = config.failover.drain_timeout if drain_timeout is None else drain_timeout
    return uvicorn.Config(
        app,
        factory=workers is not None,
        workers=workers,
        host=host,
        port=port,
        http=HeadTimeoutProtocol,
        ws="none",
        lifespan=lifespan,
        access_log=False,
        log_config=None,
        # At the info level, uvicorn reports that it replaces a worker.
        log_level="warning" if workers is None else "info",
        server_header=False,
        # Any process on this machine could forge the address of a client.
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_worker_healthcheck=_WORKER_TIMEOUT,
        timeout_graceful_shutdown=max(1, round(seconds)),
    )


def admin_config(gateway: Gateway, config: GatewayConfig) -> uvicorn.Config:
    """Return the configuration of uvicorn for the admin port."""
    return uvicorn_config(
        gateway.admin,
        config,
        config.admin_host,
        config.admin_port or 0,
        lifespan="off",
        drain_timeout=_ADMIN_DRAIN,
    )


def tune_interpreter() -> None:
    """Shorten the pauses of the event loop that Python causes.

    A full garbage collection takes about 100 ms, and one large body of nested lists can trigger it
    at any time, so objects loaded so far are excluded from it. A thread that decodes a large body
    yields to the event loop after one millisecond instead of five.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_INTERVAL)


def limit_warnings(record: logging.LogRecord) -> bool:
    """Admit each uvicorn warning once every ten seconds, with the number of suppressed ones."""
    if record.levelno != logging.WARNING:
        return True
    suppressed = _WARNINGS.admit(record.getMessage())
    if suppressed:
        record.fields = {"suppressed": suppressed}
    return suppressed is not None
