"""Decoding of request bodies, so that large ones delay only their senders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar
from weakref import WeakValueDictionary

__all__ = ["BodyDecoder"]

_T = TypeVar("_T")
# Maximum bytes of a body that is decoded on the event loop; larger ones are decoded in a thread.
_LARGE = 256 << 10
# Decoding holds the interpreter lock, so other requests wait. After a large body, no other large
# body is decoded for this many times its decoding time, and at least for as long as its bytes take
# at this rate, because receiving and sending them takes time as well.
_REST = 3.0
_BYTES_PER_SECOND = 16 << 20


class BodyDecoder:
    """A decoder of bodies that decodes large ones one at a time, with pauses in between.

    Clients take turns: a client with many large bodies delays only itself.
    """

    def __init__(self) -> None:
        self._lane = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def decode(self, client: str, size: int, decode: Callable[[], _T]) -> _T:
        """Return the result of ``decode``, which decodes a client's body of ``size`` bytes."""
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
