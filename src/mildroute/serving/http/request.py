"""The request of a client over ASGI: bounded body, disconnects, JSON, forwarded headers, timeouts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, NoReturn

from mildroute.exceptions import MildrouteError
from mildroute.serving.config import RequestLimits
from mildroute.serving.http.errors import APIError

__all__ = [
    "ClientDisconnectError",
    "Header",
    "Receive",
    "Request",
    "Scope",
    "Send",
    "forward_request_headers",
    "forward_response_headers",
    "read_document",
    "read_object",
    "send_document",
]


# Which headers go through the gateway, in either direction; all others stay behind.


Header = tuple[bytes, bytes]
"""Name, in small letters, and value."""

_ON = frozenset((b"content-type", b"accept", b"openai-beta", b"x-request-id", b"traceparent", b"tracestate"))
_BACK = frozenset(
    (b"content-type", b"content-encoding", b"cache-control", b"retry-after", b"x-request-id", b"request-id", b"openai-processing-ms")
)
_LONGEST = 8192
_RATES = (b"x-ratelimit-", b"ratelimit-")
_is_unsafe = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search


def forward_request_headers(headers: Iterable[Header]) -> bytes:
    r"""What an expert is told of a client's headers; never its key, its cookies, its address or what is longer than 8 KiB.

    Args:
        headers: Of the request, names in small letters.

    Returns:
        Lines for the head of another request.

    Example:
        >>> forward_request_headers([(b"authorization", b"Bearer mr-1"), (b"accept", b"text/event-stream")])
        b'accept: text/event-stream\r\ncontent-type: application/json\r\n'
    """
    kept = [header for header in headers if header[0] in _ON and len(header[1]) <= _LONGEST and not _is_unsafe(header[1])]
    lines = b"".join([b"%b: %b\r\n" % header for header in kept])
    return lines if any(name == b"content-type" for name, _ in kept) else lines + b"content-type: application/json\r\n"


def forward_response_headers(headers: Iterable[Header]) -> list[Header]:
    """What a client is told of an expert's headers: the kind of content, its rates, and by which name to complain.

    Example:
        >>> forward_response_headers([(b"set-cookie", b"a=b"), (b"x-ratelimit-limit-requests", b"60")])
        [(b'x-ratelimit-limit-requests', b'60')]
    """
    return [header for header in headers if (header[0] in _BACK or header[0].startswith(_RATES)) and not _is_unsafe(header[1])]


# The client's side of one request: what it sent, whether it is still there, and what it is sent.


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_UNWATCHED = 0.01
"""Seconds that a request takes before anyone looks whether its client is still there; most of what is answered by then needs no task."""


class ClientDisconnectError(MildrouteError):
    """The client went away, or does not read what it is sent."""


class Request:
    """One request over ASGI.

    Args:
        scope: Of the request.
        receive: Brings the body, then the end of the connection.
        send: Takes the answer.

    Attributes:
        scope: The same.
        is_gone: Whether the client went away while it was watched.
        has_started: Whether the answer has begun.
        is_counted: Whether the request was decided, and is counted among those.

    Example:
        >>> async def receive():
        ...     return {"type": "http.request", "body": b"{}", "more_body": False}
        >>> request = Request({"headers": [(b"accept", b"*/*")]}, receive, None)
        >>> request.header(b"accept"), asyncio.run(request.body(10, 1.0))
        (b'*/*', b'{}')
    """

    __slots__ = ("_is_ending", "_receive", "_send", "_task", "_timer", "_watcher", "has_started", "is_counted", "is_gone", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.is_gone = self.has_started = self.is_counted = self._is_ending = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first header of a name, or none."""
        for found, value in self.scope["headers"]:
            if found == name:
                return value  # type: ignore[no-any-return]
        return None

    async def body(self, most: int, seconds: float) -> bytes:
        """All of the request's body.

        Args:
            most: Bytes that it may have; a APIError otherwise.
            seconds: In which it must be there; a APIError otherwise.
        """
        length = self.header(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(seconds):
                return await self._whole_body(most)
        except TimeoutError:
            raise APIError(408, f"a request must be sent within {seconds:g} seconds; send it again.") from None

    async def _whole_body(self, most: int) -> bytes:
        chunks, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectError("the client went away while it sent its request.")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def watch(self) -> None:
        """Cancel the task of the request if its client goes away before :meth:`unwatch`."""
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED, self._begin_watching)

    def unwatch(self) -> None:
        """Look no longer."""
        self._is_ending = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin_watching(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # Servers tell the same when an answer has been sent to its end.
        if not self._is_ending:
            self.is_gone = True
            if self._task is not None:
                self._task.cancel()

    async def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a whole answer."""
        self.has_started = self._is_ending = True
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        """Begin an answer in pieces."""
        self.has_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def piece(self, data: bytes, seconds: float, *, is_last: bool = False) -> None:
        """Send a piece; a client that does not read for so many seconds counts as gone."""
        self._is_ending = self._is_ending or is_last
        try:
            async with asyncio.timeout(seconds):
                await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
        except TimeoutError:
            raise ClientDisconnectError("the client does not read its answer.") from None

    async def send_error(self, error_response: APIError, headers: Sequence[Header] = ()) -> None:
        """Send an error."""
        await self.answer(error_response.status, [*error_response.headers(), *headers], error_response.body())


def _too_large(most: int) -> APIError:
    return APIError(413, f"a request must have at most {most:,} bytes; send a smaller one.")


# JSON documents of the gateway's own, in and out.


_KIND = ((b"content-type", b"application/json"),)


async def read_object(request: Request, limits: RequestLimits) -> dict[str, Any]:
    """The JSON object that a client sends; a APIError if it is none.

    Example:
        >>> import asyncio
        >>> async def receive():
        ...     return {"type": "http.request", "body": b'{"a": 1}'}
        >>> asyncio.run(read_object(Request({"headers": []}, receive, None), RequestLimits()))
        {'a': 1}
    """
    return read_document(await request.body(limits.body, limits.body_seconds))


def read_document(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; a APIError if it is none.

    Example:
        >>> read_document(b"[1]")
        Traceback (most recent call last):
        mildroute.serving.http.errors.APIError: the body must be a JSON object, got something else; see /openapi.json.
    """
    try:
        document = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise APIError(400, "the body must be JSON in UTF-8; see /openapi.json.") from None
    if not isinstance(document, dict):
        raise APIError(400, "the body must be a JSON object, got something else; see /openapi.json.")
    return document


async def send_document(request: Request, document: Any, status: int = 200) -> None:
    """Answer with JSON.

    Example:
        >>> import asyncio
        >>> async def send(message):
        ...     print(message.get("body"))
        >>> asyncio.run(send_document(Request({}, None, send), {"a": 1}))
        None
        b'{"a": 1}'
    """
    await request.answer(status, _KIND, json.dumps(document).encode())


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
