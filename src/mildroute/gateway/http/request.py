"""Requests of clients over ASGI, with bounded bodies and a watch for disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mildroute.exceptions import MissingExtraError
from mildroute.gateway.config import RequestLimits
from mildroute.gateway.http.body import read_object
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.headers import Header
from mildroute.gateway.http.in_flight import Slot

try:
    import starlette.requests
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, Response
    from starlette.types import Receive, Scope, Send
except ImportError:
    raise MissingExtraError.for_package(
        "starlette", extra="serve", user="mildroute.gateway"
    ) from None

__all__ = ["ClientDisconnect", "Receive", "Request", "Scope", "Send"]

# Seconds before a request's client is watched for a disconnect. Most responses are sent by then
# and need no task.
_UNWATCHED = 0.01


class Request(starlette.requests.Request):
    """One request over ASGI, with a bounded body and a watch for disconnects.

    Starlette's StreamingResponse is not used for an expert's response, because it cancels the
    response when the client disconnects, although that client must pay for the tokens that are
    still generated.

    Attributes:
        has_left: Whether the client disconnected while it was watched, or stopped reading.
        is_decided: Whether the request has a decision and is counted among the decided ones.
        has_response: Whether the response has begun.
        slot: Counts the request as in flight, or ``None``.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.has_left = False
        self.has_response = False
        self.is_decided = False
        self.slot: Slot | None = None
        self._is_ending = False
        self._linger = 0.0
        self._on_disconnect: Callable[[], None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def error_path(self) -> str:
        """Return the path that selects the format of errors, which differs between APIs."""
        path = self.scope["path"]
        return next((name for name in ("messages", "systemone") if f"/v1/{name}" in path), "")

    async def read_body(self, limits: RequestLimits) -> bytes | bytearray:
        """Return the complete body; raise an APIError if it is too large or too slow."""
        max_bytes = int(limits.max_body_mb * (1 << 20))
        length = self.headers.get("content-length", "")
        self._count(int(length[:20]) if length.isdigit() else 0, max_bytes)
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_timeout):
                async for chunk in self.stream():
                    body += chunk
                    self._count(len(body), max_bytes)
        except TimeoutError:
            message = (
                f"a request must be sent within {limits.body_timeout:g} seconds; send it again."
            )
            raise APIError(408, message) from None
        return body

    def _count(self, size: int, max_bytes: int) -> None:
        """Count the bytes of a body; raise an APIError if they are too many."""
        if size > max_bytes:
            message = f"a request must have at most {max_bytes:,} bytes; send a smaller one."
            raise APIError(413, message)
        if self.slot is not None:
            self.slot.hold_bytes(size)

    async def read_object(self, limits: RequestLimits) -> dict[str, Any]:
        """Return the JSON object in a short body; raise an APIError if there is none."""
        return read_object(await self.read_body(limits))

    def watch_disconnect(self) -> None:
        """Cancel the task of the request if its client disconnects before :meth:`unwatch`."""
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED, self._start_watcher)

    def linger(self, seconds: float, on_disconnect: Callable[[], None]) -> None:
        """Delay the cancellation of the task after a disconnect by this many seconds."""
        self._linger = seconds
        self._on_disconnect = on_disconnect

    def disconnect(self) -> None:
        """Record that the client has disconnected, and cancel the task."""
        self.has_left = True
        if self._on_disconnect is not None:
            self._on_disconnect()
        if self._task is None:
            return
        if self._linger:
            self._timer = asyncio.get_running_loop().call_later(self._linger, self._task.cancel)
        else:
            self._task.cancel()

    def unwatch(self) -> None:
        """Stop watching for a disconnect."""
        self._is_ending = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _start_watcher(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # Servers send the same message after a complete response.
        if not self._is_ending and not self.has_left:
            self.disconnect()

    async def send(self, response: Response) -> None:
        """Send a complete response."""
        self.has_response = True
        self._is_ending = True
        await response(self.scope, self._receive, self._send)

    async def send_response(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a complete response with raw headers, whose names may repeat."""
        response = Response(body, status)
        response.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.send(response)

    async def send_json(self, document: Any, status: int = 200) -> None:
        """Send a document as JSON."""
        await self.send(JSONResponse(document, status))

    async def send_error(self, error: APIError, headers: Sequence[Header] = ()) -> None:
        """Send an error."""
        body = error.body(self.error_path)
        await self.send_response(error.status, [*error.headers(), *headers], body)

    async def start_stream(self, status: int, headers: Sequence[Header]) -> None:
        """Begin a streamed response."""
        self.has_response = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def send_chunk(self, data: bytes, timeout: float, *, is_last: bool = False) -> None:
        """Send a chunk; a client that does not read before the timeout counts as disconnected."""
        self._is_ending = self._is_ending or is_last
        try:
            async with asyncio.timeout(timeout):
                await self._send(
                    {"type": "http.response.body", "body": data, "more_body": not is_last}
                )
        except TimeoutError:
            raise ClientDisconnect from None
