"""One HTTP/1.1 connection to an expert, with one response at a time on it.

A proxy spends most of its time in its HTTP client, so this one does no more than a proxy needs: it
writes a request, lets the parser of httptools (that of Node.js) find the bounds of the response,
and hands on the bytes. It is written by hand because of its cost. Microseconds of processor time
for a call, measured at 64 connections with bodies of 200 bytes to 64 KiB on the same machine: 19 to
35 by this module, 29 to 62 by pyreqwest, 92 to 170 by aiohttp, about 480 by a bare connection of
httpcore and 2,150 by a client of httpx. Nothing but ``upstream.client`` uses it, through ``send``,
``read`` and ``release``; another client can take its place there.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from mildroute.exceptions import MildrouteError, MissingExtraError

try:
    import httptools
except ImportError:
    raise MissingExtraError.for_package(
        "httptools", extra="serve", user="mildroute.gateway"
    ) from None


try:
    import termios
    from fcntl import ioctl

    _UNSENT = termios.TIOCOUTQ
except ImportError:  # without it no request is ever sent a second time
    _UNSENT = 0


# Bytes of headers, and of all else that is no body: chunk extensions and trailers.
_MAX_HEADER_BYTES = 1 << 16
_MAX_UNREAD_BYTES = 1 << 20
# A timer may fire this much too early, on some event loops.
TIMER_TOLERANCE = 0.002
_WITHOUT_BODY = {204, 304}


class UpstreamError(MildrouteError):
    """A response that did not come, or not to its end.

    UpstreamError > UpstreamConnectError, UpstreamOverloaded, UpstreamTimeout,
    UpstreamConnectionLost (> StaleConnection), UpstreamProtocolError, ResponseTooLarge,
    IncompleteStream, StreamError, UnsupportedRequest.

    Attributes:
        reason: As metrics and traces show it.
        detail: Why the request cannot be served, for its client, or empty.
    """

    reason: ClassVar[str] = "failed"
    detail: str = ""

    def __init__(self) -> None:
        super().__init__(self.reason)


class UpstreamConnectError(UpstreamError):
    """The expert could not be reached."""

    reason = "connect"


class UpstreamOverloaded(UpstreamError):  # noqa: N818 - as httpx names its PoolTimeout
    """As many calls as the expert may get are in flight, for too long."""

    reason = "overloaded"


class UpstreamTimeout(UpstreamError):  # noqa: N818 - as httpx names its ReadTimeout
    """The expert took too long."""

    reason = "timeout"


class UpstreamConnectionLost(UpstreamError):  # noqa: N818
    """The connection ended before the response did."""

    reason = "connection_lost"


class StaleConnection(UpstreamConnectionLost):
    """The expert had closed a kept connection before the request reached it."""

    reason = "stale_connection"


class IncompleteStream(UpstreamError):  # noqa: N818
    """A stream of events ended without its last event."""

    reason = "incomplete_stream"


class StreamError(UpstreamError):
    """An event of a stream told of an error."""

    reason = "error_event"


class UpstreamProtocolError(UpstreamError):
    """What the expert sent is not HTTP."""

    reason = "invalid_response"


class ResponseTooLarge(UpstreamError):  # noqa: N818
    """The response has more bytes than the gateway takes."""

    reason = "response_too_large"


class UnsupportedRequest(UpstreamError):  # noqa: N818
    """The API of the expert cannot express the request, so it was not sent.

    Args:
        detail: The rule, what broke it and the way out; of the request, only names of fields.
    """

    reason = "unsupported"

    def __init__(self, detail: str = "") -> None:
        super().__init__()
        self.detail = detail


class Deadlines(NamedTuple):
    """How long to wait for a response, and how many bytes of it to take.

    Args:
        first_byte_at: When the first byte of a stream must be there, on the clock of the loop, and
            when a call must have its turn. A response that is not streamed comes in one piece after
            the expert has generated all of it, so it has until ``complete_at``.
        idle_timeout: Seconds without a byte after that.
        complete_at: When a response that is not streamed must be complete.
        max_bytes: Of a response that is not streamed.
    """

    first_byte_at: float
    idle_timeout: float
    complete_at: float = math.inf
    max_bytes: int = 64 << 20


class Connection(asyncio.Protocol):
    """A connection.

    Attributes:
        status: Of the response; 0 before it is known.
        is_complete: Whether the response has ended; some of it may still have to be read.
        has_received: Whether any byte of the response has come.
        was_unread: Whether the connection ended before the expert's machine had received any byte
            of the request.
        opened_at: When it was opened, on the clock of the loop.
        idle_since: When the last response ended, on the clock of the loop.
    """

    __slots__ = (
        "_bytes_left",
        "_chunks",
        "_deadlines",
        "_error",
        "_has_body",
        "_has_headers",
        "_is_informational",
        "_is_paused",
        "_is_streaming",
        "_keeps_alive",
        "_last_byte_at",
        "_loop",
        "_overhead_bytes",
        "_parser",
        "_request_bytes",
        "_timer",
        "_transport",
        "_waiter",
        "_wants_stream",
        "has_received",
        "headers",
        "idle_since",
        "is_complete",
        "is_open",
        "opened_at",
        "status",
        "was_unread",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._parser: httptools.HttpResponseParser | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: type[UpstreamError] | None = None
        self._is_streaming = False
        self._is_paused = False
        self.is_open = False
        self.opened_at = 0.0
        self.idle_since = 0.0

    async def send(
        self, request: Sequence[bytes | memoryview], deadlines: Deadlines, *, stream: bool
    ) -> None:
        """Send a request and wait for its complete response.

        With ``stream``, wait for the first bytes of the body of a 200 only.

        Args:
            request: Headers and body; they are not joined here, so that no key is copied into a
                local variable.
            deadlines: How long to wait.
            stream: Whether a 200 is handed on as it comes.
        """
        self._begin(deadlines, stream)
        self._request_bytes = sum(map(len, request))
        self._transport.writelines(request)
        self._timer = self._loop.call_at(self._due(), self._check_deadlines)
        while not self.is_complete and not (self._is_streaming and self._chunks):
            await self._wait()

    @property
    def is_read(self) -> bool:
        """Whether the response is complete and all of it was read."""
        return self.is_complete and not self._chunks

    def read_available(self) -> bytes:
        """The bytes of the body that have come since the last call."""
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        if self._is_streaming:
            self._bytes_left = _MAX_UNREAD_BYTES
            if self._is_paused:
                self._is_paused = False
                self._last_byte_at = self._loop.time()
                if self.is_open:
                    self._transport.resume_reading()
        return data

    async def read(self) -> bytes:
        """The next bytes of the body; none at its end."""
        while not self._chunks and not self.is_complete:
            await self._wait()
        return self.read_available()

    def release(self) -> bool:
        """Be done with the response.

        True if the connection can serve another request, else it is closed.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        is_reusable = (
            self.is_open and self.is_complete and self._keeps_alive and self._error is None
        )
        self._parser = None
        if is_reusable:
            self.idle_since = self._loop.time()
        else:
            self.abort()
        return is_reusable

    def abort(self, error: type[UpstreamError] = UpstreamConnectionLost) -> None:
        """Close the connection at once; a task that waits for it gets the error."""
        self._error = self._error or error
        self.is_open = False
        if self._transport is not None:
            # Also if the expert has ended its side: then the loop closes ours only when all that
            # was written has been read.
            self._transport.abort()
        self._wake()

    def _begin(self, deadlines: Deadlines, stream: bool) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._deadlines = deadlines
        self._bytes_left = deadlines.max_bytes
        self._wants_stream = stream
        self._is_streaming = self._is_paused = False
        self._has_headers = self._is_informational = self._keeps_alive = self._has_body = False
        self.is_complete = self.has_received = self.was_unread = False
        self.status = self._overhead_bytes = 0
        self._last_byte_at = 0.0
        self.headers: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check_deadlines(self) -> None:
        """Abort if the time is over, else look again when it would be."""
        now = self._loop.time()
        if self.is_complete:
            return
        if self._is_paused:
            # It is the client that does not read.
            self._last_byte_at = now
        due = self._due()
        if now >= due - TIMER_TOLERANCE:
            self.abort(UpstreamTimeout)
        else:
            self._timer = self._loop.call_at(due, self._check_deadlines)

    def _due(self) -> float:
        deadlines = self._deadlines
        if self._last_byte_at:
            due = self._last_byte_at + deadlines.idle_timeout
            return due if self._is_streaming else min(due, deadlines.complete_at)
        if self._wants_stream:
            return min(deadlines.first_byte_at, deadlines.complete_at)
        return deadlines.complete_at

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = transport  # type: ignore[assignment]
        self.is_open = True
        self.opened_at = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._parser is None:
            # No request was sent: they must not be taken for the response to the next one.
            self.abort()
            return
        self.has_received = True
        was_silent = not self._last_byte_at
        self._overhead_bytes += len(data)
        if not self._has_headers and self._overhead_bytes > _MAX_HEADER_BYTES:
            # The parser takes headers of any length, also in one read.
            end = len(data) + _MAX_HEADER_BYTES - self._overhead_bytes
            if not self._parse(data[:end]):
                self.abort(UpstreamProtocolError)
                return
            data = data[end:]
        self._parse(data)
        if self._has_body:
            # Bytes of chunk extensions and trailers are no sign of life.
            self._has_body = False
            self._overhead_bytes = 0
            self._last_byte_at = self._loop.time()
            if was_silent and not self.is_complete and self._timer is not None:
                self._timer.cancel()
                self._check_deadlines()
        elif self._overhead_bytes > _MAX_HEADER_BYTES and not self.is_complete:
            self.abort(UpstreamProtocolError)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone; a response without a length ends here, any other is cut off."""
        self.is_open = False
        if self._parser is None or self.is_complete:
            return
        if (
            error is None
            and self._error is None
            and self._has_headers
            and self._ends_with_connection()
        ):
            self.is_complete = True
        if not self.has_received and self._error is None:
            self.was_unread = _unacknowledged_bytes(self._transport) >= self._request_bytes
        self._error = self._error or UpstreamConnectionLost
        self._wake()

    def eof_received(self) -> None:
        """Nothing more will come, and the loop closes the connection from this side, too.

        It must not be used again until then.
        """
        self.is_open = False

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        """A response begins."""
        if self.is_complete:
            self._keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is not needed."""
        if not self._has_headers:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The headers are known."""
        if self.is_complete or self._parser is None:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self._is_informational = True
            self.headers = []
            return
        self._has_headers = True
        self._keeps_alive = self._parser.should_keep_alive()
        if self._wants_stream and self.status == 200:
            self._is_streaming = True
            self._bytes_left = _MAX_UNREAD_BYTES

    def on_body(self, data: bytes) -> None:
        """Bytes of the body."""
        if self.is_complete:
            return
        self._chunks.append(data)
        self._bytes_left -= len(data)
        self._has_body = True
        if self._is_streaming:
            if self._bytes_left < 0 and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
            self._wake()
        elif self._bytes_left < 0:
            self.abort(ResponseTooLarge)

    def on_message_complete(self) -> None:
        """The response has ended."""
        if self._is_informational:
            self._is_informational = False
            return
        if self._error is None:
            self.is_complete = True
            self._wake()

    def _parse(self, data: bytes) -> bool:
        """Whether the headers are known by now."""
        try:
            self._parser.feed_data(data)  # type: ignore[union-attr]
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self.is_complete:
                self._keeps_alive = False
            else:
                self.abort(UpstreamProtocolError)
        return self._has_headers

    def _ends_with_connection(self) -> bool:
        return self.status not in _WITHOUT_BODY and not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self.headers
        )


def _unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """Bytes that were written and that the other machine has not acknowledged; 0 if unknown.

    A machine acknowledges with its FIN all that its program can ever read, so a request of which no
    byte was acknowledged when the connection ended has not been read. To ask the kernel is the only
    proof: an error of the socket or the time that has passed tells nothing about it.
    """
    if not _UNSENT:
        return 0
    try:
        answer = ioctl(transport.get_extra_info("socket").fileno(), _UNSENT, bytes(4))
    except (AttributeError, OSError, ValueError):
        return 0
    return int(struct.unpack("i", answer)[0])
