"""The server: uvicorn with limits on connections and headers, signals and draining."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any

from mildroute.exceptions import MissingExtraError
from mildroute.serving.app import Gateway, create_app
from mildroute.serving.config import RequestLimits
from mildroute.serving.services import GatewayServices

__all__ = ["LimitedHttpProtocol", "protocol_with_limits", "serve"]


# Where connections of clients arrive: uvicorn's own protocol, with bounds on what a client may
# take its time for.


try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    raise MissingExtraError.for_package("uvicorn", extra="serve", user="mildroute.serving") from None


_ANSWER = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection of a client.

    Example:
        >>> LimitedHttpProtocol.limits.head
        65536
    """

    limits = RequestLimits()
    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _is_in_head = True
    _is_between = False
    _head = _unread = 0

    def connection_made(self, transport: Any) -> None:
        """A client is there; its request must follow."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop()
        self._stop_reading()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        was_in_head = self._is_in_head
        super().data_received(data)
        if was_in_head and self._is_in_head:
            self._head += len(data)
            if self._head > self.limits.head:
                self._refuse(b"431 Request Header Fields Too Large")
        elif not self._is_in_head and self._timer is None and (self.cycle is None or self.cycle.response_complete):
            # Empty lines, or the rest of a body that nobody reads: at the first byte of it uvicorn has stopped its own clock.
            self._is_between = True
            self._timer = self.loop.call_later(self.limits.head_seconds, self._leave)

    def on_message_begin(self) -> None:
        """A request has begun; where it is not the first, its time begins with it."""
        self._is_in_head = True
        if self._is_between:
            self._stop()
        if self._timer is None:
            self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers are there."""
        self._is_in_head, self._head = False, 0
        self._stop()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """An answer has been written, which does not mean that it has been read."""
        super().on_response_complete()
        if self._reading is None and self.transport.get_write_buffer_size():
            self._await_reader()

    def pause_writing(self) -> None:
        """The client is slow to read."""
        super().pause_writing()
        if self._reading is None:
            self._await_reader()

    def resume_writing(self) -> None:
        """The client reads."""
        self._stop_reading()
        super().resume_writing()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.limits.head_seconds, self._refuse, b"408 Request Timeout")

    def _stop(self) -> None:
        self._is_between = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _await_reader(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.limits.body_seconds, self._look)

    def _look(self) -> None:
        """To close a connection is to wait until all has been read: who reads nothing would keep it, and its answer, for ever."""
        left, self._reading = self.transport.get_write_buffer_size(), None
        if left >= self._unread:
            self.transport.abort()
        elif left:
            self._await_reader()

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _refuse(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_ANSWER % status)
            self.transport.close()


def protocol_with_limits(limits: RequestLimits) -> type[LimitedHttpProtocol]:
    """A protocol for uvicorn that ends connections whose headers are too long or too long in coming, or whose client reads nothing.

    uvicorn bounds neither: a client that sends or reads a byte now and then would keep its connection for ever.

    Args:
        limits: What a client may send.

    Returns:
        A class for ``uvicorn.Config(http=...)``.

    Example:
        >>> protocol_with_limits(RequestLimits(head=1000)).limits.head
        1000
    """
    return type("Front", (LimitedHttpProtocol,), {"limits": limits})


# A gateway on a port, until it is told to stop.


try:
    import uvicorn
except ImportError:
    raise MissingExtraError.for_package("uvicorn", extra="serve", user="mildroute.serving") from None

try:
    import uvloop
except ImportError:  # it is faster, and not for every system
    uvloop = None  # type: ignore[assignment]


_KEEP_ALIVE = 75
"""Seconds that an idle connection is kept; longer than most load balancers keep theirs, so that they are the ones to end it."""
_LOOK = 0.02


def serve(services: GatewayServices, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then requests under way are given their time. SIGHUP reads the artifact and the keys again.

    Args:
        services: The gateway; its managers are closed in the end.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        announce: Called with the base URL once the gateway listens.
    """
    runner = asyncio if uvloop is None else uvloop
    runner.run(_serve(services, host, port, announce))


class _Server(uvicorn.Server):
    """Tells load balancers before it stops, and its address once it listens."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, announce: Callable[[str], None], notice: float = 0.0) -> None:
        super().__init__(config)
        self._gateway, self._announce, self._notice, self._is_hurried = gateway, announce, notice, False

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            self._announce(f"http://{host}:{self.servers[0].sockets[0].getsockname()[1]}/v1")

    async def shutdown(self, sockets: Any = None) -> None:
        """Go on listening for a while: whoever asks whether the gateway is ready must be able to hear that it is not."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._notice
        while loop.time() < until and not self._is_hurried:
            await asyncio.sleep(_LOOK)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        # Who says it twice does not want to wait.
        self._is_hurried = self.should_exit
        self._gateway.begin_drain()
        super().handle_exit(sig, frame)


async def _serve(services: GatewayServices, host: str, port: int, announce: Callable[[str], None]) -> None:
    gateway, settings, loop = create_app(services), services.settings, asyncio.get_running_loop()
    config = uvicorn.Config(
        gateway,
        host=host,
        port=port,
        http=protocol_with_limits(settings.limits),
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        log_level="warning",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.failover.drain)),
    )
    reloads: set[asyncio.Task[None]] = set()  # a task that nobody holds may be collected before it ends

    def reload() -> None:
        task = loop.create_task(gateway.renewal.try_both())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    with contextlib.suppress(NotImplementedError, AttributeError):  # not every system has the signal
        loop.add_signal_handler(signal.SIGHUP, reload)
    watching = None if settings.watch is None else loop.create_task(services.manager.watch(settings.watch))
    try:
        await _Server(config, gateway, announce, settings.failover.notice).serve()
    finally:
        if watching is not None:
            watching.cancel()
        for manager in (services.manager, services.shadow):
            if manager is not None:
                manager.close()
        services.tracing.close()
