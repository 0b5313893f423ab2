"""A gRPC server that answers Envoy's external processing calls."""

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
# Replies of the standard health service.
_SERVING = b"\x08\x01"
_NOT_SERVING = b"\x08\x02"
# Larger than any body that Envoy is set to buffer.
_MAX_MESSAGE = 64 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE),
    ("grpc.max_send_message_length", _MAX_MESSAGE),
    # A second process on the same port is a mistake: Envoy balances between addresses.
    ("grpc.so_reuseport", 0),
)


class ProcessorServer:
    """A server of Envoy's external processing service and of gRPC's health service.

    Args:
        service: Decides, and logs decisions and bills.
        models: The ``model`` of each expert, if it is not the expert's name.
        address: Host and port to listen on; port 0 picks a free one.

    Attributes:
        port: The port, once the server has started.

    Raises:
        ArgumentError: The address cannot be listened on.
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
                grpc.method_handlers_generic_handler(_PROCESSOR, {"Process": self._processing()}),
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
        """Listen."""
        await self._server.start()

    def begin_drain(self) -> None:
        """Tell health checks that the server stops, so that Envoy turns to other processors."""
        self._is_serving = False

    async def stop(self, grace: float) -> None:
        """Finish the requests in flight within some seconds, and close the port."""
        await self._server.stop(grace)

    def _processing(self) -> Any:
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
        service: Decides, and logs decisions and bills.
        address: Host and port to listen on.
        announce: Called with the port once the server listens.
        models: The ``model`` of each expert, if it is not the expert's name.
        grace: Seconds that requests in flight have to finish.
        delay: Seconds for which the server still takes requests after it told health checks that
            it stops; a second signal skips them.
    """
    server = ProcessorServer(service, models, address)
    # A full collection of everything loaded so far would stop all requests for about 100 ms.
    gc.collect()
    gc.freeze()
    await server.start()
    announce(server.port)
    stopping = asyncio.Event()
    hurrying = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        (hurrying if stopping.is_set() else stopping).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stop)
    await stopping.wait()
    server.begin_drain()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(hurrying.wait(), delay)
    await server.stop(0.0 if hurrying.is_set() else grace)


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Run a server on the fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(serving)
    else:
        uvloop.run(serving)
