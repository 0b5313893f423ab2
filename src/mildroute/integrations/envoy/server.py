"""A gRPC server for Envoy's external processing calls."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mildroute._optional import needs_extra
from mildroute.decision.prompt import RoutingInput
from mildroute.decision.service import DecisionService
from mildroute.exceptions import ArgumentError
from mildroute.integrations.envoy.exchange import Exchange
from mildroute.integrations.envoy.messages import ProcessingRequest

with needs_extra("grpcio", extra="envoy", user="mildroute.integrations.envoy"):
    import grpc

__all__ = ["ProcessorServer", "run", "serve"]

_PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"
_HEALTH = "grpc.health.v1.Health"
# Replies from the standard health service.
_SERVING = b"\x08\x01"
_NOT_SERVING = b"\x08\x02"
# Larger than any body that Envoy is configured to buffer.
_MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # A second process on the same port is a mistake, because Envoy balances between addresses.
    ("grpc.so_reuseport", 0),
)


class ProcessorServer:
    """A server for Envoy's external processing service and gRPC's health service.

    Args:
        service: The service, which makes decisions, and logs decisions and bills.
        models: The ``model`` field for each expert whose name differs.
        address: Host and port to listen on; port 0 picks a free one.

    Attributes:
        port: The port, once the server has started.

    Raises:
        ArgumentError: The server cannot listen on the address.
    """

    def __init__(
        self,
        service: DecisionService,
        models: Mapping[str, str] | None = None,
        address: str = "127.0.0.1:0",
    ) -> None:
        routing = service.config.routing
        self._service = service
        self._routed = RoutingInput(routing.input, routing.input_characters)
        self._models = models
        self._is_serving = True
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    _PROCESSOR, {"Process": self._process_handler()}
                ),
                grpc.method_handlers_generic_handler(
                    _HEALTH, {"Check": grpc.unary_unary_rpc_method_handler(self._check)}
                ),
            )
        )
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError:
            raise ArgumentError(
                f"--ext-proc must be a free port or address, got {address!r}; choose another one."
            ) from None

    async def start(self) -> None:
        """Start listening."""
        await self._server.start()

    def begin_drain(self) -> None:
        """Fail health checks from now on, so that Envoy uses other processors."""
        self._is_serving = False

    async def stop(self, grace: float) -> None:
        """Wait up to ``grace`` seconds for requests in flight, and close the port."""
        await self._server.stop(grace)

    def _process_handler(self) -> Any:
        return grpc.stream_stream_rpc_method_handler(
            self._process, request_deserializer=ProcessingRequest.FromString
        )

    async def _process(self, _requests: Any, context: Any) -> None:
        exchange = Exchange(self._service, self._routed, self._models)
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                await context.write(await exchange.reply(message))
        finally:
            exchange.end()

    async def _check(self, _request: bytes, _context: Any) -> bytes:
        return _SERVING if self._is_serving else _NOT_SERVING


async def serve(
    service: DecisionService,
    address: str,
    announce: Callable[[int], None],
    models: Mapping[str, str] | None = None,
    *,
    grace: float = 30.0,
    delay: float = 2.0,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests in flight.

    Args:
        service: The service, which makes decisions, and logs decisions and bills.
        address: Host and port to listen on.
        announce: Called with the port once the server listens.
        models: The ``model`` field for each expert whose name differs.
        grace: Maximum seconds to wait for requests in flight.
        delay: Seconds to keep accepting requests after health checks start to fail; a second
            signal skips this delay.
    """
    server = ProcessorServer(service, models, address)
    # A full garbage collection after startup would pause all requests for about 100 ms.
    gc.collect()
    gc.freeze()
    await server.start()
    announce(server.port)
    stopping = asyncio.Event()
    second_signal = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        (second_signal if stopping.is_set() else stopping).set()

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(signal_number, stop)
    await stopping.wait()
    server.begin_drain()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(second_signal.wait(), delay)
    await server.stop(0.0 if second_signal.is_set() else grace)


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Run a server on uvloop if it is installed, else on asyncio's event loop."""
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(serving)
    else:
        uvloop.run(serving)
