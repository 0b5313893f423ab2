"""An expert in a process of its own that does what it is told, keeps books, and can be killed.

Run by itself: python expert.py NAME BOOK [PORT] prints its port and serves until it is killed.
``POST /control`` with ``{"mode": "error", "share": 0.5}`` changes how it behaves. To a prompt with
"#123" in it the answer is "NAME:123 perhaps", and word and tokens follow from the number, so that
everyone who knows it can check the bill. The book has one line for each answer that was written to
its end, and the file beside it, ``.calls``, one for each call; they outlive the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

NUMBER = re.compile(rb"#(\d+)")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?true')
_PIECES = 6


def tokens_of(number: int) -> tuple[int, int]:
    """Tokens of request and answer."""
    return 20 + number % 30, 1 + number % 7


def text_of(name: str, number: int) -> str:
    """The answer; a cascade can learn from its last word whether it is right."""
    return f"{name}:{number} {'surely' if number % 3 else 'perhaps'}"


def _usage(path: bytes, number: int) -> dict[str, int]:
    asked, answered = tokens_of(number)
    if path == b"responses":
        return {"input_tokens": asked, "output_tokens": answered, "total_tokens": asked + answered}
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def document_of(path: bytes, name: str, number: int) -> dict[str, object]:
    """A whole answer."""
    text, usage = text_of(name, number), _usage(path, number)
    if path == b"responses":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        output = [
            {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        ]
        return {
            "id": f"resp_{number}",
            "object": "response",
            "status": "completed",
            "output": output,
            "usage": usage,
        }
    if path == b"embeddings":
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, float(number)]}]
        return {"object": "list", "data": data, "usage": usage}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "text": text,
        "finish_reason": "stop",
    }
    return {
        "id": f"c{number}",
        "object": "chat.completion",
        "created": 1,
        "model": name,
        "choices": [choice],
        "usage": usage,
    }


def events_of(name: str, number: int) -> list[bytes]:
    """The same in pieces."""
    text = text_of(name, number)
    size = max(1, -(-len(text) // _PIECES))
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    shell = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1, "model": name}
    documents: list[dict[str, object]] = [
        {**shell, "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces
    ]
    documents.append({**shell, "choices": [], "usage": _usage(b"chat/completions", number)})
    return [b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents] + [
        b"data: [DONE]\n\n"
    ]


class Expert:
    """Its name, its mood and its book."""

    def __init__(self, name: str, book: str) -> None:
        self.name, self.mode, self.share, self.pause = name, "ok", 1.0, 0.002
        self.key = os.environ.get("EXPERT_KEY", "")
        self.calls = self.strange = self.lines = 0
        self._book, self._called = (
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for path in (book, f"{book}.calls")
        )

    def call(self, number: int) -> None:
        """A call has come."""
        self.calls += 1
        os.write(self._called, b"%d\n" % number)

    def note(self, number: int) -> None:
        """An answer was written to its end."""
        os.write(self._book, b"%d\n" % number)

    def mood(self) -> str:
        """For one call."""
        return self.mode if self.share >= 1 or random.random() < self.share else "ok"  # noqa: S311

    def control(self, told: dict[str, object]) -> dict[str, object]:
        """Change its mood.

        Tells its calls, those that should not be, and its connections without this one.
        """
        self.mode, self.share = str(told.get("mode", self.mode)), float(told.get("share", 1.0))  # type: ignore[arg-type]
        self.pause = float(told.get("pause", 0.002))  # type: ignore[arg-type]
        return {"calls": self.calls, "strange": self.strange, "lines": self.lines - 1}


class Line(asyncio.Protocol):
    """One connection to it."""

    def __init__(self, expert: Expert) -> None:
        self.expert, self.held = expert, b""
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.expert.lines += 1
        self.task = asyncio.get_running_loop().create_task(self.serve())

    def connection_lost(self, _error: Exception | None) -> None:
        self.expert.lines -= 1
        self.task.cancel()

    def data_received(self, data: bytes) -> None:
        held = self.held + data if self.held else data
        while (end := held.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(held, 0, end)
            stop = end + 4 + (int(found[1]) if found else 0)
            if len(held) < stop:
                break
            self.queue.put_nowait(held[:stop])
            held = held[stop:]
        self.held = held

    async def serve(self) -> None:
        while not self.transport.is_closing():
            request = await self.queue.get()
            path = request.split(b" ", 2)[1]
            if path == b"/control":
                told = json.loads(request.partition(b"\r\n\r\n")[2] or b"{}")
                self.send(200, self.expert.control(told))
                continue
            self.expert.strange += self.is_strange(request, path)
            found = NUMBER.search(request)
            number = int(found[1]) if found else 0
            self.expert.call(number)
            await _MOODS[self.expert.mood()](
                Call(self, path.removeprefix(b"/v1/"), request, number)
            )

    def is_strange(self, request: bytes, path: bytes) -> bool:
        """Whether this is a call that the gateway must never make."""
        head = request.partition(b"\r\n\r\n")[0].lower()
        known = path in (
            b"/v1/chat/completions",
            b"/v1/completions",
            b"/v1/responses",
            b"/v1/embeddings",
        )
        wanted = (
            b"\r\nauthorization: bearer %b\r\n" % self.expert.key.lower().encode() in head + b"\r\n"
            if self.expert.key
            else True
        )
        foreign = any(
            name in head
            for name in (
                b"\r\nx-injected",
                b"\r\ncookie:",
                b"\r\nx-forwarded",
                b"\r\ntransfer-encoding:",
            )
        )
        return not known or not wanted or foreign or head.count(b"\r\nhost:") != 1

    def send(self, status: int, document: object, headers: bytes = b"") -> None:
        body = json.dumps(document).encode()
        head = (
            b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
            % (status, headers, len(body))
        )
        self.transport.write(head + body)

    async def answer(self, path: bytes, request: bytes, number: int) -> None:
        if _STREAM.search(request) and path == b"chat/completions":
            await self.stream(number, self.expert.pause)
        else:
            self.send(200, document_of(path, self.expert.name, number))
            self.expert.note(number)

    async def stream(self, number: int, pause: float, most: int = 1000) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding:"
            b" chunked\r\n\r\n"
        )
        events = events_of(self.expert.name, number)[:most]
        for place, event in enumerate(events, 1):
            self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
            if most >= 1000 and place == len(events):
                # With the last event the answer is given, be the end of the body sent or not.
                self.expert.note(number)
            await asyncio.sleep(pause)
        if most >= 1000:
            self.transport.write(b"0\r\n\r\n")

    def reset(self) -> None:
        held = self.transport.get_extra_info("socket")
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class Call(NamedTuple):
    """One request on a connection."""

    line: Line
    path: bytes
    request: bytes
    number: int

    async def answer(self) -> None:
        await self.line.answer(self.path, self.request, self.number)


Mood = Callable[[Call], Awaitable[None]]


async def _ok(call: Call) -> None:
    await call.answer()


async def _error(call: Call) -> None:
    call.line.send(500 + call.number % 4, {"error": {"message": "a burst"}})


async def _hang(_call: Call) -> None:
    await asyncio.sleep(3600)


async def _silence(call: Call) -> None:
    """Longer than the gateway waits for a first byte in chaos."""
    await asyncio.sleep(2.5)
    await call.answer()


async def _normal(call: Call) -> None:
    await asyncio.sleep(random.uniform(0.002, 0.02))  # noqa: S311
    await call.answer()


async def _flaky(call: Call) -> None:
    """Three calls in ten fail: 500, 429, a reset, a cut answer, silence."""
    ways = (_error, _refuse, _reset, _cut, _silence)
    fails = random.random() < 0.3  # noqa: S311
    await (random.choice(ways) if fails else _normal)(call)  # noqa: S311


async def _slow(call: Call) -> None:
    call.line.expert.pause = 0.08
    await call.answer()


async def _reset(call: Call) -> None:
    call.line.reset()


async def _cut(call: Call) -> None:
    """Streams break in the middle, other answers before their end."""
    if _STREAM.search(call.request):
        await call.line.stream(call.number, 0.002, most=2)
    else:
        call.line.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"
        )
    call.line.reset()


async def _refuse(call: Call) -> None:
    call.line.send(429, {"error": {"message": "slow down"}}, b"retry-after: 1\r\n")


async def _closing(call: Call) -> None:
    """A sound answer on a connection that ends without a word soon after."""
    await call.answer()
    asyncio.get_running_loop().call_later(0.005, call.line.transport.close)


async def _echo(call: Call) -> None:
    """A complaint that repeats all that it was told, in its body and in its headers."""
    head = call.request.partition(b"\r\n\r\n")[0].decode("latin-1")
    sent = next((row for row in head.split("\r\n") if row.lower().startswith("authorization:")), "")
    headers = f"x-request-id: {sent}\r\nretry-after: 1\r\nset-cookie: a={sent}\r\n".encode(
        "latin-1"
    )
    call.line.send(400, {"error": {"message": f"I do not like {head}"}}, headers)


async def _inject(call: Call) -> None:
    """Headers that try to be more than one, which parsers should not take."""
    call.line.transport.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: a\rX-Injected: 1\r\n"
        b"x-ratelimit-limit: b\x0bc\r\nX-Injected : 2\r\ncontent-length: 2\r\n\r\n{}"
    )


async def _redirect(call: Call) -> None:
    call.line.send(
        307,
        {},
        b"location: http://127.0.0.1:%b/v1/chat/completions\r\n"
        % os.environ.get("CANARY", "1").encode(),
    )


_MOODS: dict[str, Mood] = {
    "ok": _ok,
    "error": _error,
    "hang": _hang,
    "normal": _normal,
    "flaky": _flaky,
    "slow": _slow,
    "reset": _reset,
    "cut": _cut,
    "refuse": _refuse,
    "closing": _closing,
    "echo": _echo,
    "inject": _inject,
    "redirect": _redirect,
}


async def _serve(name: str, book: str, port: int) -> None:
    expert, loop = Expert(name, book), asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Line(expert), "127.0.0.1", port, backlog=1024, reuse_address=True
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    # The end of standard input is the end of whoever started it.
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0))
