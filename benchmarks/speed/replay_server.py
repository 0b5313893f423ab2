"""A server of canned chats and messages, as fast as plain asyncio allows, in a process of its own.

    with replay_server() as server:
        ...  # ask server.url; the answer to a prompt with "#123" in it is that of the number 123
    server.served()

Run by itself, it prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LETTERS = "ABCD"
_NUMBER = re.compile(rb"#(\d+)")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def letter_of(number: int) -> str:
    """The answer to a query."""
    return LETTERS[number % len(LETTERS)]


def _framed(document: object) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


def _completion(text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 57, "completion_tokens": 1, "total_tokens": 58}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def _message(text: str) -> dict[str, object]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 57, "output_tokens": 1},
    }


_CANNED = [_framed(_completion(letter)) for letter in LETTERS]
_CANNED_MESSAGES = [_framed(_message(letter)) for letter in LETTERS]


class _Replay(asyncio.Protocol):
    """One connection."""

    served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport, self.held = transport, b""

    def data_received(self, data: bytes) -> None:
        held = self.held + data if self.held else data
        while (end := held.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(held, 0, end)
            stop = end + 4 + (int(found[1]) if found else 0)
            if len(held) < stop:
                break
            self.answer(held[:stop])
            held = held[stop:]
        self.held = held

    def answer(self, request: bytes) -> None:
        if request.startswith(b"GET"):
            self.transport.write(_framed(_Replay.served))
            return
        _Replay.served += 1
        number = _NUMBER.search(request)
        canned = _CANNED_MESSAGES if request.startswith(b"POST /v1/messages") else _CANNED
        self.transport.write(canned[int(number[1]) % len(canned) if number else 0])


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Replay, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@dataclass(frozen=True)
class Replay:
    """A server that runs."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def served(self) -> int:
        """Answers so far."""
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            self.url, timeout=30
        ) as answer:
            return int(answer.read())


@contextmanager
def replay_server() -> Iterator[Replay]:
    """Serve while the context lasts."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Replay(int(process.stdout.readline()), process.pid)
        finally:
            process.stdin.close()


if __name__ == "__main__":
    asyncio.run(_serve())
