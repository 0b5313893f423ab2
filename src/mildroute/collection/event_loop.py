"""Running a coroutine from code that may itself run in an event loop, as in a notebook."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["run_coroutine"]

T = TypeVar("T")
_POLL_INTERVAL_S = 0.2


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on a separate thread if this thread has a running event loop.

    An interrupt cancels the coroutine and is raised again after the coroutine has ended.
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

    # If an interrupt arrived while the pool starts its thread, the pool would not register the
    # thread, and nothing would wait for it. Therefore the coroutine starts only after is_ready is
    # set, when an interrupt is handled.
    is_ready = threading.Event()

    def work() -> T:
        is_ready.wait()
        return asyncio.run(main())

    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            result = pool.submit(work)
            is_ready.set()
            # An interrupt just before a wait without a timeout would not end the wait.
            while not wait([result], timeout=_POLL_INTERVAL_S).done:
                pass
            return result.result()
        except KeyboardInterrupt:
            is_ready.set()
            loop, task = running.result()
            with suppress(RuntimeError):  # The loop may have just ended.
                loop.call_soon_threadsafe(task.cancel)
            raise
