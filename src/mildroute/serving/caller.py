"""The client's side of one request: what it sent, whether it is still there, and what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from mildroute.errors import MildrouteError
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.passing import Header
from mildroute.serving.time_limit import TimeLimit

__all__ = ["Caller", "GoneError", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_UNWATCHED = 0.01
"""Seconds that a request takes before anyone looks whether its client is still there; most of what is answered by then needs no task."""


class GoneError(MildrouteError):
    """The client went away, or does not read what it is sent.

    Example:
        >>> issubclass(GoneError, MildrouteError)
        True
    """


class Caller:
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
        >>> caller = Caller({"headers": [(b"accept", b"*/*")]}, receive, None)
        >>> caller.header(b"accept"), asyncio.run(caller.body(10, 1.0))
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
            most: Bytes that it may have; a ComplaintError otherwise.
            seconds: In which it must be there; a ComplaintError otherwise.
        """
        length = self.header(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        try:
            with TimeLimit(seconds):
                return await self._whole_body(most)
        except TimeoutError:
            raise ComplaintError(408, f"a request must be sent within {seconds:g} seconds; send it again.") from None

    async def _whole_body(self, most: int) -> bytes:
        chunks, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise GoneError("the client went away while it sent its request.")
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
            with TimeLimit(seconds):
                await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
        except TimeoutError:
            raise GoneError("the client does not read its answer.") from None

    async def complain(self, complaint: ComplaintError, headers: Sequence[Header] = ()) -> None:
        """Send an error."""
        await self.answer(complaint.status, [*complaint.headers(), *headers], complaint.body())


def _too_large(most: int) -> ComplaintError:
    return ComplaintError(413, f"a request must have at most {most:,} bytes; send a smaller one.")
