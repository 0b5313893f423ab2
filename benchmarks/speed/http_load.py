"""Load on an HTTP/1.1 server from a process of its own.

So many connections, each with one request after the other.

    load(port, prompts, connections=64, seconds=5.0).per_second

The client is plain asyncio that looks for no more than the end of an answer, so that it does not
measure itself.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Load:
    """What a load found."""

    answers: int = 0
    failures: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.answers / self.seconds

    def wait(self, share: float) -> float:
        """Quantile of the seconds to the end of an answer."""
        return sorted(self.waits)[min(len(self.waits) - 1, int(share * len(self.waits)))]

    def first_byte(self, share: float) -> float:
        """Quantile of the seconds to the first byte of an answer."""
        return sorted(self.first_bytes)[
            min(len(self.first_bytes) - 1, int(share * len(self.first_bytes)))
        ]


class _Caller(asyncio.Protocol):
    """One connection that asks until it is told to stop."""

    def __init__(self, requests: Iterator[bytes], found: Load, stop_at: float) -> None:
        self.requests, self.found, self.stop_at, self.held = requests, found, stop_at, b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.begun, self.spoken = time.perf_counter(), 0.0
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.spoken = self.spoken or time.perf_counter()
        self.held += data
        head = self.held.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self.held, 0, head)
        is_whole = (
            len(self.held) >= head + 4 + int(length[1])
            if length
            else self.held.endswith(b"0\r\n\r\n")
        )
        if is_whole:
            self.note(self.held.startswith(b"HTTP/1.1 200"))

    def note(self, is_good: bool) -> None:
        now = time.perf_counter()
        self.held = b""
        if is_good:
            self.found.answers += 1
            self.found.waits.append(now - self.begun)
            self.found.first_bytes.append(self.spoken - self.begun)
        else:
            self.found.failures += 1
        if now < self.stop_at:
            self.ask()
        else:
            self.transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self.found.failures += time.perf_counter() < self.stop_at
        if not self.ended.done():
            self.ended.set_result(None)


def _request(prompt: str, port: int, path: str, stream: bool) -> bytes:
    document = {
        "model": "mildroute",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 16,
        "stream": stream,
    }
    body = json.dumps(document).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer"
        " sk-none\r\ncontent-type: application/json\r\n"
    )
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def _run(
    port: int, path: str, prompts: list[str], connections: int, seconds: float, unique: bool
) -> Load:
    numbers = itertools.count()
    if unique:
        requests = (
            _request(f"{prompt} {next(numbers)}", port, path, False)
            for prompt in itertools.cycle(prompts)
        )
    else:
        requests = itertools.cycle([_request(prompt, port, path, False) for prompt in prompts])
    found, loop, begun = Load(), asyncio.get_running_loop(), time.perf_counter()
    callers = []
    for _ in range(connections):
        _, caller = await loop.create_connection(
            lambda: _Caller(requests, found, begun + seconds), "127.0.0.1", port
        )
        callers.append(caller.ended)
    await asyncio.wait(callers, timeout=seconds + 30)
    found.seconds = time.perf_counter() - begun
    return found


def load(
    port: int,
    prompts: list[str],
    *,
    connections: int,
    seconds: float,
    path: str = "/v1/chat/completions",
    unique: bool = False,
) -> Load:
    """Ask for so many seconds over so many connections; ``unique`` makes every prompt a new one."""
    job = json.dumps(
        {
            "port": port,
            "path": path,
            "prompts": prompts,
            "connections": connections,
            "seconds": seconds,
            "unique": unique,
        }
    )
    done = subprocess.run(
        [sys.executable, __file__],
        input=job,
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 60,
    )
    return Load(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_run(**json.load(sys.stdin))))))
