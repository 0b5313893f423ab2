"""Experts that answer in pieces, as they are told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence

from tests.experts.hostile_server import Behavior, Call, Writer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(text: str) -> bytes:
    """One piece of a chat completion."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    document = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def usage(tokens_in: int, tokens_out: int) -> bytes:
    counted = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    document = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        "usage": counted,
    }
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def framed(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def streams(
    *pieces: bytes, head: bytes = HEAD, ends: bool = True, gates: Sequence[threading.Event] = ()
) -> Behavior:
    """Send each piece by itself, the one after the gate of its number is open.

    Without an end the connection is cut.
    """

    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(head)
        for number, piece in enumerate(pieces):
            while number < len(gates) and not gates[number].is_set():
                await asyncio.sleep(0.002)
            writer.write(framed(piece))
            await writer.drain()
            await asyncio.sleep(0.002)
        if ends:
            writer.write(b"0\r\n\r\n")
        return ends

    return behave


def endless(piece: bytes, pause: float = 0.005) -> Behavior:
    """The same piece until the client is gone."""

    async def behave(call: Call, writer: Writer) -> bool:
        writer.write(HEAD)
        while not writer.is_closing():
            writer.write(framed(piece))
            await writer.drain()
            await asyncio.sleep(pause)
        return False

    return behave
