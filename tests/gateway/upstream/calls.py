"""Calls of an upstream, as failover makes them."""

from __future__ import annotations

import asyncio

from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.upstream.base import (
    Deadlines,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)

HI = {"model": "mildroute", "messages": [{"role": "user", "content": "Hi"}]}


def request(*, is_stream: bool = False) -> UpstreamRequest:
    parsed = ParsedRequest("chat/completions", "mildroute", "Hi", HI, is_stream=is_stream)
    return UpstreamRequest(parsed, [(b"content-type", b"application/json")])


def patience(
    first: float = 5.0, idle: float = 5.0, whole: float = 5.0, limit: int = 1 << 20
) -> Deadlines:
    now = asyncio.get_running_loop().time()
    return Deadlines(now + first, idle, now + whole, limit)


async def send(
    upstream: Upstream, deadlines: Deadlines, *, is_stream: bool = False
) -> UpstreamResponse:
    return await upstream.send(request(is_stream=is_stream), deadlines)


async def ask(
    upstream: Upstream, deadlines: Deadlines | None = None, *, is_stream: bool = False
) -> tuple[int, bytes]:
    """Return the status and the whole body."""
    response = await send(upstream, deadlines or patience(), is_stream=is_stream)
    try:
        if not response.has_events:
            return response.status, response.body
        body = b""
        while events := await response.read():
            body += b"".join([event.raw for event in events])
        return response.status, body
    finally:
        response.close()
