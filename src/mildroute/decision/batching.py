"""A queue that encodes the inputs of concurrent requests in batches, within a time limit."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mildroute.decision.prompt import truncate
from mildroute.decision.settings import EncoderConfig

__all__ = ["EncoderQueue"]


_LOG = logging.getLogger(__name__)
# A function that returns a row for each text.
Encode = Callable[[list[str]], Sequence[Any]]
# Maximum characters of a background batch, unless a single input is longer. TF-IDF takes about 5 ms
# to encode them, and the input of a request may have to wait that long.
_BACKGROUND_CHARACTERS = 8_000


class _BackgroundBatch:
    """The inputs of one caller without a time limit."""

    __slots__ = ("done", "is_abandoned", "rows", "texts")

    def __init__(self, texts: list[str], done: asyncio.Future[list[Any]]) -> None:
        self.texts = texts
        self.done = done
        self.rows: list[Any] = []
        self.is_abandoned = False

    def next_texts(self, limit: int) -> list[str]:
        """Return the next inputs to encode, at least one."""
        start = len(self.rows)
        end = start + 1
        size = len(self.texts[start])
        for text in self.texts[end : start + limit]:
            size += len(text)
            if size > _BACKGROUND_CHARACTERS:
                break
            end += 1
        return self.texts[start:end]


class EncoderQueue:
    """A queue that encodes the inputs of concurrent requests.

    While one batch is encoded, further inputs collect for the next one, so batches grow with the
    load. Each distinct input is encoded once and cached.

    Args:
        encode: Function that returns a row for each text; called only on this queue's threads.
        config: Threads, batch size, cache and timeout.

    Attributes:
        waiting: Number of inputs that are waiting or being encoded.
    """

    def __init__(self, encode: Encode, config: EncoderConfig) -> None:
        self._encode = encode
        self._config = config
        self._max_running = config.threads
        self._threads = ThreadPoolExecutor(config.threads, thread_name_prefix="mildroute-encoder")
        self._cache: OrderedDict[bytes, Any] = OrderedDict()
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._callers: dict[bytes, list[asyncio.Future[Any]]] = {}
        self._background: deque[_BackgroundBatch] = deque()
        self._running = 0

    @property
    def waiting(self) -> int:
        """Number of inputs that are waiting or being encoded."""
        return len(self._callers)

    async def encode(self, text: str, seconds: float | None = None) -> Any | None:
        """Return the row of an input.

        Returns:
            The row; ``None`` if it was not ready in time, if too many inputs are already waiting,
            or if the encoder failed.
        """
        text = truncate(text, self._config.max_chars)
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        callers = self._callers.get(key)
        if callers is None:
            if len(self._callers) >= self._config.max_queue_size:
                return None
            callers = self._callers[key] = []
            self._texts[key] = text
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        callers.append(future)
        timer = loop.call_later(
            self._config.timeout if seconds is None else seconds, _expire, future
        )
        self._start(loop)
        try:
            return await future
        finally:
            timer.cancel()

    async def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        """Return the rows of many inputs, without a time limit.

        The inputs are encoded in small batches, only while no input of a request waits, and in turn
        with those of other callers. Without this rule, four calls with 1,000 long inputs kept one
        thread busy for 18 seconds, and 66 of 75 requests of another client were decided without the
        router.
        """
        loop = asyncio.get_running_loop()
        shortened = [truncate(text, self._config.max_chars) for text in texts]
        batch = _BackgroundBatch(shortened, loop.create_future())
        self._background.append(batch)
        self._start(loop)
        try:
            return await batch.done
        finally:
            batch.is_abandoned = True

    def close(self) -> None:
        """Shut down the threads; callers that are still waiting get ``None``."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for callers in self._callers.values():
            for future in callers:
                _expire(future)
        for batch in self._background:
            batch.done.cancel()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._texts and self._running < self._max_running:
            self._running += 1
            batch = [
                self._texts.popitem(last=False)
                for _ in range(min(self._config.max_batch_size, len(self._texts)))
            ]
            texts = [text for _, text in batch]
            work = loop.run_in_executor(self._threads, self._encode, texts)
            keys = [key for key, _ in batch]
            work.add_done_callback(functools.partial(self._deliver, loop, keys))
        if not self._running:
            self._start_background(loop)

    def _start_background(self, loop: asyncio.AbstractEventLoop) -> None:
        """Encode some inputs of the next background caller, if there is one."""
        while self._background:
            batch = self._background.popleft()
            if batch.is_abandoned or batch.done.done():
                continue
            self._running += 1
            texts = batch.next_texts(self._config.max_batch_size)
            work = loop.run_in_executor(self._threads, self._encode, texts)
            work.add_done_callback(functools.partial(self._deliver_background, loop, batch))
            return

    def _deliver_background(
        self, loop: asyncio.AbstractEventLoop, batch: _BackgroundBatch, done: asyncio.Future[Any]
    ) -> None:
        self._running -= 1
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or batch.done.done():
            batch.done.cancel()
        elif error is not None:
            batch.done.set_exception(error)
        else:
            batch.rows.extend(done.result())
            if len(batch.rows) == len(batch.texts):
                batch.done.set_result(batch.rows)
            else:
                self._background.append(batch)
        self._start(loop)

    def _deliver(
        self, loop: asyncio.AbstractEventLoop, keys: list[bytes], done: asyncio.Future[Any]
    ) -> None:
        self._running -= 1
        error = None if done.cancelled() else done.exception()
        if error is not None:
            # One bad input sends the whole batch to the default expert. Only the type of the error
            # is logged, because its message may quote an input.
            _LOG.error("the encoder failed on %d inputs: %s", len(keys), type(error).__name__)
        rows = [None] * len(keys) if done.cancelled() or error is not None else done.result()
        for key, row in zip(keys, rows, strict=True):
            if row is not None:
                self._remember(key, row)
            for future in self._callers.pop(key, ()):
                if not future.done():
                    future.set_result(row)
        self._start(loop)

    def _remember(self, key: bytes, row: Any) -> None:
        self._cache[key] = row
        while len(self._cache) > self._config.cache_size:
            self._cache.popitem(last=False)


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
