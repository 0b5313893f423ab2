"""Decoding of request bodies, so that large ones delay nobody but their senders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar
from weakref import WeakValueDictionary

__all__ = ["BodyDecoder"]

_T = TypeVar("_T")
# Bytes from which on a body is decoded in a thread.
_LARGE = 256 << 10
# Decoding holds the interpreter, so that other requests wait. After a large body no other large
# body is decoded for this many times as long, and at least for as long as its bytes take at this
# rate, because receiving and sending them takes time as well.
_REST = 3.0
_BYTES_PER_SECOND = 16 << 20


class BodyDecoder:
    """A decoder of bodies that decodes large ones one at a time, with pauses in between.

    Clients take turns: a client with many large bodies waits for itself, and not others for it.
    """

    def __init__(self) -> None:
        self._lane = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def decode(self, client: str, size: int, decode: Callable[[], _T]) -> _T:
        """Call a function that decodes a body of this many bytes for a client."""
        if size <= _LARGE:
            return decode()
        turn = self._turns.get(client)
        if turn is None:
            turn = self._turns[client] = asyncio.Lock()
        async with turn:
            await self._lane.acquire()
            started = perf_counter()
            try:
                return await asyncio.to_thread(decode)
            finally:
                seconds = max(_REST * (perf_counter() - started), size / _BYTES_PER_SECOND)
                asyncio.get_running_loop().call_later(seconds, self._lane.release)
