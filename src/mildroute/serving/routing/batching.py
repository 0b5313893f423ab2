"""Inputs to vectors while requests wait: gathered into batches, computed on threads of their own, and never waited for too long."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mildroute.serving.config import EncoderConfig

__all__ = ["EncoderQueue"]


_LOG = logging.getLogger(__name__)
Encode = Callable[[list[str]], Sequence[Any]]
"""From texts to as many rows."""


class EncoderQueue:
    """Encodes what many requests bring at the same time.

    While a batch is being computed, further inputs gather to the next one; so batches are as large as the load makes them. The same
    input is computed once, and remembered.

    Args:
        encode: From texts to as many rows; called on threads of this queue alone.
        rules: Batch, queue, threads, time and memory.

    Attributes:
        waiting: Inputs that wait or are being computed.
        batches: Called with the size of each batch, or none.

    Example:
        >>> async def two():
        ...     queue = EncoderQueue(lambda texts: [len(text) for text in texts], EncoderConfig())
        ...     found = await asyncio.gather(queue.row("ab"), queue.row("abc"))
        ...     queue.close()
        ...     return found
        >>> asyncio.run(two())
        [2, 3]
    """

    def __init__(self, encode: Encode, rules: EncoderConfig) -> None:
        self._encode, self._rules = encode, rules
        self._threads = ThreadPoolExecutor(rules.threads, thread_name_prefix="mildroute-encoder")
        self._kept: OrderedDict[bytes, Any] = OrderedDict()
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._callers: dict[bytes, list[asyncio.Future[Any]]] = {}
        self._busy = 0
        self.batches: Callable[[int], None] | None = None

    @property
    def waiting(self) -> int:
        """Inputs that wait or are being computed."""
        return len(self._callers)

    async def row(self, text: str, seconds: float | None = None) -> Any | None:
        """The row of an input; none if it could not be had in time, if too many wait already, or if the encoder failed."""
        text = self._shortened(text)
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        callers = self._callers.get(key)
        if callers is None:
            if len(self._callers) >= self._rules.queue:
                return None
            callers = self._callers[key] = []
            self._texts[key] = text
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        callers.append(future)
        timer = loop.call_later(self._rules.budget if seconds is None else seconds, _give_up, future)
        self._start(loop)
        try:
            return await future
        finally:
            timer.cancel()

    async def rows(self, texts: Sequence[str]) -> list[Any]:
        """The rows of many inputs, however long it takes; they do not queue with those of requests."""
        shortened = [self._shortened(text) for text in texts]
        return list(await asyncio.get_running_loop().run_in_executor(self._threads, self._encode, shortened))

    def close(self) -> None:
        """Let the threads end; who still waits gets nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for callers in self._callers.values():
            for future in callers:
                _give_up(future)

    def _shortened(self, text: str) -> str:
        """The beginning and the end of a long text: what is asked often stands last."""
        most = self._rules.characters
        return text if len(text) <= most else f"{text[: most // 2]}\n{text[-(most // 2) :]}"

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._texts and self._busy < self._rules.threads:
            self._busy += 1
            batch = [self._texts.popitem(last=False) for _ in range(min(self._rules.batch, len(self._texts)))]
            if self.batches is not None:
                self.batches(len(batch))
            work = loop.run_in_executor(self._threads, self._encode, [text for _, text in batch])
            work.add_done_callback(lambda done, keys=[key for key, _ in batch]: self._deliver(loop, keys, done))  # type: ignore[misc]

    def _deliver(self, loop: asyncio.AbstractEventLoop, keys: list[bytes], done: asyncio.Future[Any]) -> None:
        self._busy -= 1
        error = None if done.cancelled() else done.exception()
        if error is not None:
            # Fifteen of sixteen may be innocent: all of them are answered by the safe default. The text of the error may quote an input.
            _LOG.error("the encoder failed on %d inputs: %s", len(keys), type(error).__name__)
        rows = [None] * len(keys) if done.cancelled() or error is not None else done.result()
        for key, row in zip(keys, rows, strict=True):
            if row is not None:
                self._keep(key, row)
            for future in self._callers.pop(key, ()):
                if not future.done():
                    future.set_result(row)
        self._start(loop)

    def _keep(self, key: bytes, row: Any) -> None:
        self._kept[key] = row
        while len(self._kept) > self._rules.remembered:
            self._kept.popitem(last=False)


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
