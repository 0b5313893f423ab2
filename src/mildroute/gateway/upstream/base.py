"""Calls to an expert: a request in, a response or a stream of events out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import orjson

from mildroute.experts.events import (
    Event,
    EventSplitter,
    EventTooLargeError,
    StreamState,
    parse_event,
)
from mildroute.experts.secrets import SecretSet
from mildroute.experts.usage import TokenUsage, tokens_of_usage, usage_of_document
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.http.headers import Header, forward_response_headers
from mildroute.gateway.observability.tracing import CallTarget
from mildroute.gateway.upstream.errors import (
    IncompleteStream,
    ResponseTooLarge,
    StreamError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamTimeout,
)

__all__ = [
    "CallSlots",
    "Chunks",
    "Deadlines",
    "Upstream",
    "UpstreamRequest",
    "UpstreamResponse",
    "are_events",
    "read_whole",
]

_EVENT_STREAM = b"text/event-stream"
# Bytes of a stream within which its first event must end.
_MAX_BEFORE_EVENT = 1 << 16


class UpstreamRequest(NamedTuple):
    """A request for an expert.

    Args:
        parsed: The client's request.
        headers: Headers of the client that are forwarded to the expert.
        logprobs: Whether a cascade needs the log-probabilities of the answer.
    """

    parsed: ParsedRequest
    headers: Sequence[Header]
    logprobs: bool = False


class Deadlines(NamedTuple):
    """Limits on the time and the size of a response.

    Args:
        first_byte_at: Time by which the first byte of a stream must arrive and a call must have a
            slot, on the loop's clock. A response that is not streamed arrives after the expert has
            generated all of it, so it has until ``complete_at``.
        idle_timeout: Maximum seconds without a byte after that.
        complete_at: Time by which a response that is not streamed must be complete.
        max_bytes: Maximum bytes of a response that is not streamed.
    """

    first_byte_at: float
    idle_timeout: float
    complete_at: float
    max_bytes: int = 64 << 20


class Chunks(Protocol):
    """The body of a response as it arrives."""

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end; raise UpstreamError if the body breaks."""
        ...

    def close(self) -> None:
        """Close the body, even if it has not been read to its end."""
        ...


class Upstream(Protocol):
    """A client that calls one expert.

    Attributes:
        includes_usage: Whether to request usage for a stream when the client did not.
        has_logprobs: Whether log-probabilities may be requested from the expert.
        paths: Paths below ``/v1`` that the expert serves.
        slots: Bounds the concurrent calls.
    """

    includes_usage: bool
    has_logprobs: bool
    paths: frozenset[str]
    slots: CallSlots

    async def send(self, request: UpstreamRequest, deadlines: Deadlines) -> UpstreamResponse:
        """Send a request once.

        Returns:
            The response. It is complete, or begins with its first bytes if the request wants a
            stream. The caller must close it.

        Raises:
            UpstreamError: There is no response.
        """
        ...

    def target(self, operation: str) -> CallTarget:
        """Return the target of an operation's calls, for metrics and traces."""
        ...

    def close(self) -> None:
        """Close the connections as soon as no call is in flight."""
        ...

    async def wait_closed(self) -> None:
        """Close all connections, even those in use."""
        ...


class CallSlots:
    """A bound on the concurrent calls to one expert; further calls wait for a slot.

    Args:
        limit: Maximum number of concurrent calls.

    Attributes:
        calls: Number of calls in flight.
        waiting: Number of calls that wait for a slot.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self.calls = 0
        self.waiting = 0

    @property
    def has_capacity(self) -> bool:
        """Return whether a call would be made soon, that is, at most one call per slot waits."""
        return self.waiting < self._limit

    @property
    def is_free(self) -> bool:
        """Return whether a call would be made at once, without overtaking a waiting one."""
        return not self.waiting and self.calls < self._limit

    async def acquire(self, until: float) -> None:
        """Wait for a slot; raise an UpstreamOverloaded if none becomes free in time."""
        if self._slots.locked():
            await self._wait(until)
        else:
            await self._slots.acquire()
        self.calls += 1

    async def _wait(self, until: float) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self._slots.acquire()
        except TimeoutError:
            raise UpstreamOverloaded from None
        finally:
            self.waiting -= 1

    def release(self) -> None:
        """Release the slot of a call that has ended."""
        self.calls -= 1
        self._slots.release()


class UpstreamResponse:
    """An expert's response, either complete or a stream of events.

    Args:
        status: Status of the response.
        headers: Headers of the response, names in lower case.
        secrets: Keys to remove, in case the expert echoes them in an error.
        body: The complete body, if it is not a stream.
        chunks: The body of a stream of events, or ``None``.
        idle_timeout: Maximum seconds without a byte of a stream.
        on_close: Called once when the response is closed.

    Attributes:
        has_events: Whether the body is a stream of events.
        pending: Events that have arrived and were not returned by :meth:`read`.
        size: Bytes of the body that have arrived.
    """

    def __init__(
        self,
        status: int,
        headers: list[Header],
        secrets: SecretSet,
        body: bytes = b"",
        chunks: Chunks | None = None,
        idle_timeout: float = 60.0,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.has_events = chunks is not None
        self.pending: list[Event] = []
        self.size = len(body)
        self._secrets = secrets
        self._body = _scrubbed(body, secrets) if status >= 400 else body
        self._chunks = chunks
        self._idle_timeout = idle_timeout
        self._on_close = on_close
        self._is_closed = False
        self._splitter = EventSplitter()
        self._state = StreamState()
        self._has_arrived = chunks is None

    @property
    def body(self) -> bytes:
        """Return the complete body, or the pending events of a stream."""
        return b"".join([event.raw for event in self.pending]) if self.has_events else self._body

    @property
    def is_complete(self) -> bool:
        """Return whether the whole body has arrived and, if it is a stream, has ended properly."""
        return self._has_arrived and self.flaw is None

    @property
    def flaw(self) -> type[UpstreamError] | None:
        """Return the error that makes a stream of events unusable so far, or ``None``."""
        if not self.has_events:
            return None
        if self._state.has_failed:
            return StreamError
        return IncompleteStream if self._has_arrived and not self._state.has_ended else None

    @cached_property
    def document(self) -> Any:
        """Return the decoded body of a complete response, or ``None`` if it is not JSON."""
        try:
            return orjson.loads(self._body)
        except orjson.JSONDecodeError:
            return None

    @property
    def usage(self) -> TokenUsage:
        """Return the reported tokens of the request and of the response."""
        if self.has_events:
            return self._state.usage
        return tokens_of_usage(usage_of_document(self.document)) or TokenUsage()

    async def read(self) -> list[Event]:
        """Return the next events of a stream; empty at its end.

        Raises:
            UpstreamError: The stream breaks, or has ended with an error or without its last event.
        """
        while not self.pending and not self._has_arrived:
            await self._receive()
        events = self.pending
        self.pending = []
        if not events and (flaw := self.flaw) is not None:
            raise flaw
        return events

    async def read_first_event(self, deadline: float) -> None:
        """Read until a stream has its first event, which may be an error.

        Comments that keep a connection alive may precede it.
        """
        try:
            async with asyncio.timeout_at(deadline):
                while not self._has_arrived and self.size <= _MAX_BEFORE_EVENT:
                    if any(event.has_data for event in self.pending):
                        break
                    await self._receive()
        except TimeoutError:
            raise UpstreamTimeout from None

    async def read_all(self, deadline: float, max_bytes: int) -> None:
        """Read a stream to its end, and keep its events for :meth:`read`.

        Raises:
            UpstreamError: As for :meth:`read`, or the stream is late or too long.
        """
        try:
            async with asyncio.timeout_at(deadline):
                while not self._has_arrived:
                    await self._receive()
                    if self.size > max_bytes:
                        raise ResponseTooLarge
        except TimeoutError:
            raise UpstreamTimeout from None
        if (flaw := self.flaw) is not None:
            raise flaw

    def forwarded_headers(self) -> list[Header]:
        """Return the headers for the client, without the expert's key."""
        headers = forward_response_headers(self.headers)
        if not self._secrets.has_secrets:
            return headers
        scrub = self._secrets.scrub_answer
        return [(name, scrub(value.decode("latin-1")).encode("latin-1")) for name, value in headers]

    def close(self) -> None:
        """Close the response, even if it has not been read to its end."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._chunks is not None:
            self._chunks.close()
        self._on_close()

    async def _receive(self) -> None:
        """Read more bytes and add the events that they complete to the pending ones."""
        if self._chunks is None:
            return
        try:
            async with asyncio.timeout(self._idle_timeout):
                chunk = await self._chunks.read()
        except TimeoutError:
            self._break(UpstreamTimeout())
            return
        except UpstreamError as error:
            self._break(error)
            return
        self.size += len(chunk)
        self._has_arrived = not chunk
        try:
            events = self._splitter.feed(chunk) if chunk else self._splitter.flush()
        except EventTooLargeError:
            raise ResponseTooLarge from None
        for raw in events:
            event = parse_event(_scrubbed(raw, self._secrets) if b"error" in raw else raw)
            self._state.see(event)
            self.pending.append(event)

    def _break(self, error: UpstreamError) -> None:
        """End a broken stream; raise the error unless the last event has arrived."""
        if self._state.has_failed or not self._state.has_ended:
            raise error
        self._has_arrived = True


def _scrubbed(data: bytes, secrets: SecretSet) -> bytes:
    """Return an expert's error without the keys that it may echo."""
    if not secrets.has_secrets:
        return data
    return secrets.scrub(data.decode("latin-1")).encode("latin-1")


def are_events(headers: Sequence[Header]) -> bool:
    """Return whether a body is a stream of events without content encoding."""
    is_stream = False
    for name, value in headers:
        if name == b"content-encoding" and value != b"identity":
            return False
        if name == b"content-type":
            is_stream = value[:17].lower() == _EVENT_STREAM
    return is_stream


async def read_whole(chunks: Chunks, deadlines: Deadlines) -> bytes:
    """Read a body that is not streamed to its end."""
    parts: list[bytes] = []
    size = 0
    try:
        while True:
            async with (
                asyncio.timeout_at(deadlines.complete_at),
                asyncio.timeout(deadlines.idle_timeout),
            ):
                part = await chunks.read()
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > deadlines.max_bytes:
                raise ResponseTooLarge
    except TimeoutError:
        raise UpstreamTimeout from None
