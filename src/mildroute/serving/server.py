"""A gateway on a port, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any

from mildroute.errors import MissingExtraError
from mildroute.serving.app import Gateway, create_app
from mildroute.serving.front import front_of
from mildroute.serving.parts import Parts

try:
    import uvicorn
except ImportError:
    raise MissingExtraError.for_package("uvicorn", extra="serve", user="mildroute.serving") from None

try:
    import uvloop
except ImportError:  # it is faster, and not for every system
    uvloop = None  # type: ignore[assignment]

__all__ = ["serve"]

_KEEP_ALIVE = 75
"""Seconds that an idle connection is kept; longer than most load balancers keep theirs, so that they are the ones to end it."""
_LOOK = 0.02


def serve(parts: Parts, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then requests under way are given their time. SIGHUP reads the artifact and the keys anew.

    Args:
        parts: The gateway; its holders are closed in the end.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        announce: Called with the base URL once the gateway listens.

    Example:
        >>> serve.__name__
        'serve'
    """
    runner = asyncio if uvloop is None else uvloop
    runner.run(_serve(parts, host, port, announce))


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


async def _serve(parts: Parts, host: str, port: int, announce: Callable[[str], None]) -> None:
    gateway, settings, loop = create_app(parts), parts.settings, asyncio.get_running_loop()
    config = uvicorn.Config(
        gateway,
        host=host,
        port=port,
        http=front_of(settings.limits),
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
    watching = None if settings.watch is None else loop.create_task(parts.holder.watch(settings.watch))
    try:
        await _Server(config, gateway, announce, settings.failover.notice).serve()
    finally:
        if watching is not None:
            watching.cancel()
        for holder in (parts.holder, parts.shadow):
            if holder is not None:
                holder.close()
        parts.spans.close()
