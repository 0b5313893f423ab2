"""A TCP load balancer in a process of its own: the next of its servers that takes a connection.

Run by itself: python round_robin.py PORT PORT ... prints its own port and serves until its standard
input ends.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys


class Pipe(asyncio.Protocol):
    """One side of a connection; what it reads, the other side writes."""

    def __init__(self) -> None:
        self.other: asyncio.Transport | None = None
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def join(self, other: Pipe) -> None:
        self.other, other.other = other.transport, self.transport
        self.other.write(self.early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early += data
        else:
            self.other.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


class Client(Pipe):
    """A client that is joined to the next server, or sent away if there is none."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__()
        self._ports = ports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        for port in self._ports:
            try:
                _, server = await loop.create_connection(Pipe, "127.0.0.1", port)
            except OSError:
                continue
            if self.transport.is_closing():
                server.transport.close()
            else:
                self.join(server)
            return
        self.transport.close()


async def _serve(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    orders = itertools.cycle([ports[place:] + ports[:place] for place in range(len(ports))])
    server = await loop.create_server(lambda: Client(next(orders)), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve([int(port) for port in sys.argv[1:]]))
