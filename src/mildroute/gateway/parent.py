"""A watch on the process that started a worker."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal

__all__ = ["stop_with_parent"]

# Seconds between two checks that the parent is alive.
_INTERVAL = 1.0


async def stop_with_parent() -> None:
    """Stop this worker with SIGTERM once the process that started it has died.

    uvicorn stops its workers only if a signal that it can handle stops uvicorn itself.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    while os.getppid() == parent.pid:
        await asyncio.sleep(_INTERVAL)
    signal.raise_signal(signal.SIGTERM)
