"""A real HTTP/1.1 server on loopback that does what it is told, most of it bad.

    with HostileServer([status(429, {"Retry-After": "1"}), says("4")]) as server:
        ...  # ask server.url; the first call is refused, all later ones are answered
    server.calls[0].json, server.calls[0].headers["authorization"], server.most_at_once

A script is a list of behaviors, of which the last one repeats, or a function from a call to a
behavior. A behavior writes the answer to one call and says whether the connection stays open.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.experts.loopback import LoopbackServer

Writer = asyncio.StreamWriter


@dataclass
class Call:
    """One request as it came in."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: bytes
    reader: asyncio.StreamReader = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def prompt(self) -> str:
        """Text of the last message, or the raw prompt."""
        document = self.json
        text: str = (
            document["prompt"] if "prompt" in document else document["messages"][-1]["content"]
        )
        return text


Behavior = Callable[[Call, Writer], Awaitable[bool]]
Script = Sequence[Behavior] | Callable[[Call], Behavior]


class HostileServer(LoopbackServer):
    """Follows its script, counts calls at the same time and keeps what it received."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self.calls: list[Call] = []
        self.at_once = 0
        self.most_at_once = 0

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        stays = True
        while stays and (call := await self._received(reader)):
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                stays = await self._behavior(call)(call, writer)
                await writer.drain()
            finally:
                self.at_once -= 1

    def _behavior(self, call: Call) -> Behavior:
        return (
            self._script(call)
            if callable(self._script)
            else self._script[min(call.number, len(self._script) - 1)]
        )

    async def _received(self, reader: asyncio.StreamReader) -> Call | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        except asyncio.IncompleteReadError:
            return None
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.calls.append(Call(len(self.calls), head[0].split()[1], headers, body, reader))
        return self.calls[-1]


def completion(
    text: Any, tokens: tuple[Any, Any] | None = (7, 2), **changes: Any
) -> dict[str, Any]:
    """A sound chat completion, with keys changed as told."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "text": text,
        "finish_reason": "stop",
    }
    usage = (
        {}
        if tokens is None
        else {"usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}}
    )
    return {
        "id": "same-every-time",
        "object": "chat.completion",
        "choices": [choice],
        **usage,
        **changes,
    }


def says(
    text: Any, tokens: tuple[Any, Any] | None = (7, 2), *, delay: float = 0.0, **changes: Any
) -> Behavior:
    """A sound answer, after a while."""
    return answers(completion(text, tokens, **changes), delay=delay)


def echoes() -> Behavior:
    """Answers with the prompt."""

    async def behave(call: Call, writer: Writer) -> bool:
        return await says(call.prompt)(call, writer)

    return behave


def answers(document: Any, *, delay: float = 0.0) -> Behavior:
    """Any document as JSON."""
    return status(200, {}, json.dumps(document), delay=delay)


def status(
    code: int,
    headers: Mapping[str, str] | None = None,
    body: str | bytes = "",
    *,
    delay: float = 0.0,
) -> Behavior:
    """A status with a body."""
    content = body.encode() if isinstance(body, str) else body

    async def behave(call: Call, writer: Writer) -> bool:
        await asyncio.sleep(delay)
        writer.write(
            _head(code, {"Content-Length": str(len(content)), **(headers or {})}) + content
        )
        return True

    return behave


def sends(raw: bytes) -> Behavior:
    """These very bytes, then the end of the connection."""

    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(raw)
        return False

    return behave


def repeats() -> Behavior:
    """A sound answer, and in the same breath one that nobody asked for."""

    async def behave(call: Call, writer: Writer) -> bool:
        contents = [
            json.dumps(completion(text)).encode() for text in (call.prompt, "an answer to nobody")
        ]
        writer.write(
            b"".join(
                _head(200, {"Content-Length": str(len(content))}) + content for content in contents
            )
        )
        return True

    return behave


def cut_off() -> Behavior:
    """Half of an answer, whose header promises all of it."""
    content = json.dumps(completion("a wrong answer")).encode()
    return sends(_head(200, {"Content-Length": str(len(content))}) + content[: len(content) // 2])


def half_json() -> Behavior:
    """Half of an answer, sent as if it were all of it."""
    content = json.dumps(completion("a wrong answer"))
    return status(200, {}, content[: len(content) // 2])


def chunked(text: str, *, whole: bool = True) -> Behavior:
    """A sound answer in chunks of seven bytes, or only the first of them."""
    content = json.dumps(completion(text)).encode()
    pieces = [content[start : start + 7] for start in range(0, len(content), 7)]
    sent = b"".join(
        b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (pieces if whole else pieces[:9])
    )

    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(
            _head(200, {"Transfer-Encoding": "chunked"}) + sent + (b"0\r\n\r\n" if whole else b"")
        )
        return whole

    return behave


def huge(size: int, *, code: int = 200) -> Behavior:
    """A sound answer of so many bytes."""
    return status(code, {}, json.dumps(completion("x" * size)))


def drips(pause: float, text: str = "slow") -> Behavior:
    """One byte of a sound answer at a time, so that no wait for a byte is long."""

    async def behave(call: Call, writer: Writer) -> bool:
        content = json.dumps(completion(text)).encode()
        writer.write(_head(200, {"Content-Length": str(len(content))}))
        for byte in content:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(pause)
        return True

    return behave


def hangs() -> Behavior:
    """Nothing, until the client is gone."""

    async def behave(call: Call, writer: Writer) -> bool:
        await call.reader.read()
        return False

    return behave


def disconnects() -> Behavior:
    """The end of the connection instead of an answer."""
    return sends(b"")


def resets() -> Behavior:
    """A TCP reset instead of an answer."""

    async def behave(call: Call, writer: Writer) -> bool:
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()
        return False

    return behave


def redirects(url: str) -> Behavior:
    """The advice to ask elsewhere."""
    return status(307, {"Location": url})


def _head(code: int, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {code} Status",
        "Content-Type: application/json",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
