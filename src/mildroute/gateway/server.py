"""The server: uvicorn with limits on connections and headers, signals and draining."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

from mildroute.exceptions import MissingExtraError
from mildroute.gateway.app import Gateway, GatewayServices, create_app
from mildroute.gateway.config import GatewayConfig, RequestLimits
from mildroute.gateway.limits import RedisLimits
from mildroute.gateway.observability.logs import LogThrottle

__all__ = ["LimitedHttpProtocol", "protocol_with_limits", "serve"]


# Where connections of clients arrive: uvicorn's own protocol, with bounds on what a client may
# take its time for.


try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    raise MissingExtraError.for_package(
        "uvicorn", extra="serve", user="mildroute.gateway"
    ) from None


_RESPONSE = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
# Seconds between two lines about requests that are no HTTP: each would write one, and a client
# without a key can send any number of them.
_WARNINGS = LogThrottle(10.0)


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection of a client.

    Attributes:
        idle: Connections of the same class without a request in flight, the longest idle first.
    """

    limits = RequestLimits()
    idle: ClassVar[dict[LimitedHttpProtocol, None]] = {}
    _timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    _in_headers = True
    _between_requests = False
    _header_bytes = 0
    _unread = 0

    def connection_made(self, transport: Any) -> None:
        """A client is there; its request must follow."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections and not self._close_idle():
            self._reject(b"503 Service Unavailable")
            return
        self.idle[self] = None
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.idle.pop(self, None)
        self._stop_timer()
        self._stop_reader_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        was_in_head = self._in_headers
        left = self.limits.max_header_bytes - self._header_bytes
        if was_in_head and len(data) > left:
            # The parser takes headers of any length, also in one read.
            super().data_received(data[:left])
            if self._in_headers:
                self._reject(b"431 Request Header Fields Too Large")
            if self.transport.is_closing():
                return
            data = data[left:]
        super().data_received(data)
        if was_in_head and self._in_headers:
            self._header_bytes += len(data)
        elif (
            not self._in_headers
            and self._timer is None
            and (self.cycle is None or self.cycle.response_complete)
        ):
            # Empty lines, or the rest of a body that is not read: at the first byte of it uvicorn
            # has stopped its own clock.
            self._between_requests = True
            self._timer = self.loop.call_later(self.limits.header_timeout, self._close)

    def on_message_begin(self) -> None:
        """A request has begun; where it is not the first, its time begins with it."""
        self._in_headers = True
        if self._between_requests:
            self._stop_timer()
        if self._timer is None:
            self._expect_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers are there."""
        self._in_headers = False
        self._header_bytes = 0
        self.idle.pop(self, None)
        self._stop_timer()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """An answer has been written, which does not mean that it has been read."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.idle[self] = None
        if self._reader_timer is None and self.transport.get_write_buffer_size():
            self._expect_reader()

    def pause_writing(self) -> None:
        """The client is slow to read."""
        super().pause_writing()
        if self._reader_timer is None:
            self._expect_reader()

    def resume_writing(self) -> None:
        """The client reads."""
        self._stop_reader_timer()
        super().resume_writing()

    def _close_idle(self) -> bool:
        """Close the connection that has been idle for longest; false if there is none."""
        for connection in self.idle:
            del self.idle[connection]
            connection.transport.abort()
            return True
        return False

    def _expect_headers(self) -> None:
        self._timer = self.loop.call_later(
            self.limits.header_timeout, self._reject, b"408 Request Timeout"
        )

    def _stop_timer(self) -> None:
        self._between_requests = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _expect_reader(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(self.limits.body_timeout, self._check_reader)

    def _check_reader(self) -> None:
        """To close a connection is to wait until all has been read.

        Who reads nothing would keep it, and its answer, forever.
        """
        left = self.transport.get_write_buffer_size()
        self._reader_timer = None
        if left >= self._unread:
            self.transport.abort()
        elif left:
            self._expect_reader()

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _reject(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_RESPONSE % status)
            self.transport.close()


def protocol_with_limits(limits: RequestLimits) -> type[LimitedHttpProtocol]:
    """A protocol for uvicorn that bounds connections and ends those that hang.

    Those are connections whose headers are too long or too long in coming, or whose client reads
    nothing. uvicorn bounds neither: a client that sends or reads a byte now and then would keep its
    connection forever. If there are more connections than allowed, the one that has been idle for
    longest is closed; if all have requests in flight, the new one is refused.

    Returns:
        A class for ``uvicorn.Config(http=...)``.
    """
    return type("GatewayProtocol", (LimitedHttpProtocol,), {"limits": limits, "idle": {}})


def limit_warnings(record: logging.LogRecord) -> bool:
    """Filter for uvicorn's log: at most one line of each warning in ten seconds.

    The next line tells how many were left out.
    """
    if record.levelno != logging.WARNING:
        return True
    suppressed = _WARNINGS.admit(record.getMessage())
    if suppressed:
        record.fields = {"suppressed": suppressed}
    return suppressed is not None


# A gateway on a port, until it is told to stop.


try:
    import uvicorn
except ImportError:
    raise MissingExtraError.for_package(
        "uvicorn", extra="serve", user="mildroute.gateway"
    ) from None

try:
    import uvloop
except ImportError:  # it is faster, and not for every system
    uvloop = None  # type: ignore[assignment]


# Seconds that an idle connection is kept; longer than most load balancers keep theirs, so that they
# are the ones to end it.
_KEEP_ALIVE = 75
_POLL_INTERVAL = 0.02
_SWITCH_INTERVAL = 0.0005
_ADMIN_CONNECTIONS = 64
# Seconds that requests of operators get when all of the clients' have ended.
_ADMIN_DRAIN = 10.0


def serve(
    services: GatewayServices,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    sockets: list[socket.socket] | None = None,
    admin_sockets: list[socket.socket] | None = None,
    attach: Callable[[Gateway], Awaitable[None]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; then requests in flight are given their time.

    SIGHUP reads the artifact, the experts and the keys again.

    Args:
        services: The gateway; its managers are closed in the end.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        announce: Called with the base URL once the gateway listens.
        sockets: Bound ones to listen on instead, or none.
        admin_sockets: Bound ones of the admin port, or none to bind it here.
        attach: Awaited with the gateway before it listens, or none.
    """
    # What was loaded stays. Without this a collection walks through all of it and stops the gateway
    # for about 100 ms, which one large body of nested lists can cause at will.
    gc.collect()
    gc.freeze()
    # Threads that encode or parse hand over after this, and not after 5 ms for each turn of the
    # event loop: with one large body after the other, the median of another client's requests to
    # an expert of 30 ms went from 37 to 59 ms, and goes to 45 so.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    runner = asyncio if uvloop is None else uvloop
    runner.run(_serve(services, host, port, announce, sockets, admin_sockets, attach))


class _AdminServer(uvicorn.Server):
    """Serves the admin port beside the port of clients, and ends after it."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket] | None) -> None:
        super().__init__(config)
        self._sockets = sockets

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for the server of clients, which stops this one when it has drained."""
        yield

    async def start(self) -> None:
        self._task = asyncio.create_task(self.serve(self._sockets))
        while not self.started:
            await asyncio.sleep(_POLL_INTERVAL)

    async def stop(self) -> None:
        self.should_exit = True
        await self._task


class _Server(uvicorn.Server):
    """Tells load balancers before it stops, and its address once it listens."""

    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        announce: Callable[[str], None],
        shutdown_delay: float = 0.0,
        on_stopped: Callable[[], None] = lambda: None,
        admin: _AdminServer | None = None,
    ) -> None:
        super().__init__(config)
        self._admin = admin
        self._on_stopped = on_stopped
        self._gateway = gateway
        self._announce = announce
        self._shutdown_delay = shutdown_delay
        self._is_hurried = False

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            if self._admin is not None:
                await self._admin.start()
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            self._announce(f"http://{host}:{self.servers[0].sockets[0].getsockname()[1]}/v1")

    async def shutdown(self, sockets: Any = None) -> None:
        """Continue listening for a while.

        Readiness probes must be able to see that the gateway is not ready any more.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._shutdown_delay
        while loop.time() < until and not self._is_hurried:
            await asyncio.sleep(_POLL_INTERVAL)
        await super().shutdown(sockets)
        if self._admin is not None:
            # Last: probes and scrapes must see a gateway that drains.
            await self._admin.stop()
        # uvicorn raises SIGTERM again at once when this has ended, and nothing runs after that.
        self._on_stopped()

    def handle_exit(self, sig: int, frame: Any) -> None:
        # Who says it twice does not want to wait.
        self._is_hurried = self.should_exit
        self._gateway.begin_drain()
        super().handle_exit(sig, frame)


def _within_descriptors(limits: RequestLimits) -> RequestLimits:
    """The limits with no more connections than half of the descriptors of the process.

    The other half is for experts, the log and the reader of metrics: a server that has no
    descriptor left cannot even refuse a connection.
    """
    try:
        import resource
    except ImportError:  # Windows
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * limits.max_connections
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return dataclasses.replace(limits, max_connections=min(limits.max_connections, soft // 2))


def _uvicorn_config(
    app: Any, limits: RequestLimits, host: str, port: int, drain_timeout: float, **options: Any
) -> Any:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol_with_limits(limits),
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        # Any caller on this machine could forge its address, and none needs to.
        proxy_headers=False,
        log_level="warning",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(drain_timeout)),
        **options,
    )


def _client_config(gateway: Gateway, config: GatewayConfig, host: str, port: int) -> Any:
    limits = _within_descriptors(config.limits)
    drain_timeout = config.failover.drain_timeout
    return _uvicorn_config(gateway, limits, host, port, drain_timeout, lifespan="on")


def _admin_server(
    gateway: Gateway, config: GatewayConfig, sockets: list[socket.socket] | None
) -> _AdminServer | None:
    if gateway.admin is None or config.admin_port is None:
        return None
    # However many connections clients hold, operators have some of their own.
    limits = dataclasses.replace(config.limits, max_connections=_ADMIN_CONNECTIONS)
    host, port = config.admin_host, config.admin_port
    settings = _uvicorn_config(gateway.admin, limits, host, port, _ADMIN_DRAIN, lifespan="off")
    return _AdminServer(settings, sockets)


def _reload_on_hangup(gateway: Gateway, loop: asyncio.AbstractEventLoop) -> None:
    # A task that is not held may be collected before it ends.
    reloads: set[asyncio.Task[Any]] = set()

    def reload() -> None:
        task: asyncio.Task[Any] = loop.create_task(gateway.reloader.try_reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    # Not every system has the signal.
    with contextlib.suppress(NotImplementedError, AttributeError):
        loop.add_signal_handler(signal.SIGHUP, reload)


async def _serve(
    services: GatewayServices,
    host: str,
    port: int,
    announce: Callable[[str], None],
    sockets: list[socket.socket] | None,
    admin_sockets: list[socket.socket] | None,
    attach: Callable[[Gateway], Awaitable[None]] | None,
) -> None:
    gateway = create_app(services)
    if attach is not None:
        await attach(gateway)
    config = services.config
    if isinstance(services.limits, RedisLimits):
        await services.limits.check_access()
    loop = asyncio.get_running_loop()
    logging.getLogger("uvicorn.error").addFilter(limit_warnings)
    _reload_on_hangup(gateway, loop)
    watching = loop.create_task(services.manager.watch(config.reload_interval))

    def close() -> None:
        watching.cancel()
        services.tracing.close()
        for manager in (services.manager, services.shadow):
            if manager is not None:
                manager.close()

    server = _Server(
        _client_config(gateway, config, host, port),
        gateway,
        announce,
        config.failover.shutdown_delay,
        close,
        _admin_server(gateway, config, admin_sockets),
    )
    connections = server.server_state.connections
    services.metrics.watch(connections=lambda: len(connections))
    try:
        await server.serve(sockets)
    finally:
        close()
