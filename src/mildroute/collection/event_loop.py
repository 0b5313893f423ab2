"""Coroutines called from code that may itself run in an event loop, as in a notebook."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["run_coroutine"]

T = TypeVar("T")
_SECONDS_BETWEEN_LOOKS = 0.2


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, in a thread of its own if this thread has a running event loop.

    An interrupt cancels the coroutine and is raised again when the coroutine has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def main() -> T:
        task = asyncio.current_task()
        if task is not None:
            running.set_result((asyncio.get_running_loop(), task))
        return await coroutine

    # An interrupt while the pool starts its thread would leave the thread out of the pool, and
    # nobody would wait for it. So the coroutine starts only when an interrupt would be caught.
    is_ready = threading.Event()

    def work() -> T:
        is_ready.wait()
        return asyncio.run(main())

    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            result = pool.submit(work)
            is_ready.set()
            # An interrupt that arrives just before an endless wait begins would not end it.
            while not wait([result], timeout=_SECONDS_BETWEEN_LOOKS).done:
                pass
            return result.result()
        except KeyboardInterrupt:
            is_ready.set()
            loop, task = running.result()
            with suppress(RuntimeError):  # The loop has just ended.
                loop.call_soon_threadsafe(task.cancel)
            raise
