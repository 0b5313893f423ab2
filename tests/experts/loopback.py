"""A server on loopback in a thread of its own, to serve blocking code and any event loop."""

from __future__ import annotations

import asyncio
import ssl
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

Server = TypeVar("Server", bound="LoopbackServer")


class LoopbackServer(ABC):
    """Serves from entering to leaving the context."""

    tls: ssl.SSLContext | None = None

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}/v1"

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""

    def __enter__(self: Server) -> Server:
        self._thread.start()
        self._ready.wait(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        # Connections that still wait are accepted before the server is closed, and all are closed
        # before the loop is.
        for _ in range(10):
            await asyncio.sleep(0)
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            await self.serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
