"""Where connections of clients arrive: uvicorn's own protocol, with bounds on what a client may take its time for."""

from __future__ import annotations

import asyncio
from typing import Any

from mildroute.errors import MissingExtraError
from mildroute.serving.settings import Limits

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    raise MissingExtraError.for_package("uvicorn", extra="serve", user="mildroute.serving") from None

__all__ = ["Front", "front_of"]

_ANSWER = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Front(HttpToolsProtocol):
    """One connection of a client.

    Example:
        >>> Front.limits.head
        65536
    """

    limits = Limits()
    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _is_in_head = True
    _is_between = False
    _head = _unread = 0

    def connection_made(self, transport: Any) -> None:
        """A client is there; its request must follow."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop()
        self._stop_reading()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        was_in_head = self._is_in_head
        super().data_received(data)
        if was_in_head and self._is_in_head:
            self._head += len(data)
            if self._head > self.limits.head:
                self._refuse(b"431 Request Header Fields Too Large")
        elif not self._is_in_head and self._timer is None and (self.cycle is None or self.cycle.response_complete):
            # Empty lines, or the rest of a body that nobody reads: at the first byte of it uvicorn has stopped its own clock.
            self._is_between = True
            self._timer = self.loop.call_later(self.limits.head_seconds, self._leave)

    def on_message_begin(self) -> None:
        """A request has begun; where it is not the first, its time begins with it."""
        self._is_in_head = True
        if self._is_between:
            self._stop()
        if self._timer is None:
            self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers are there."""
        self._is_in_head, self._head = False, 0
        self._stop()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """An answer has been written, which does not mean that it has been read."""
        super().on_response_complete()
        if self._reading is None and self.transport.get_write_buffer_size():
            self._await_reader()

    def pause_writing(self) -> None:
        """The client is slow to read."""
        super().pause_writing()
        if self._reading is None:
            self._await_reader()

    def resume_writing(self) -> None:
        """The client reads."""
        self._stop_reading()
        super().resume_writing()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.limits.head_seconds, self._refuse, b"408 Request Timeout")

    def _stop(self) -> None:
        self._is_between = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _await_reader(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.limits.body_seconds, self._look)

    def _look(self) -> None:
        """To close a connection is to wait until all has been read: who reads nothing would keep it, and its answer, for ever."""
        left, self._reading = self.transport.get_write_buffer_size(), None
        if left >= self._unread:
            self.transport.abort()
        elif left:
            self._await_reader()

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _refuse(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_ANSWER % status)
            self.transport.close()


def front_of(limits: Limits) -> type[Front]:
    """A protocol for uvicorn that ends connections whose headers are too long or too long in coming, or whose client reads nothing.

    uvicorn bounds neither: a client that sends or reads a byte now and then would keep its connection for ever.

    Args:
        limits: What a client may send.

    Returns:
        A class for ``uvicorn.Config(http=...)``.

    Example:
        >>> front_of(Limits(head=1000)).limits.head
        1000
    """
    return type("Front", (Front,), {"limits": limits})
