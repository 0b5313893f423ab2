"""A limit on the seconds that a block of code may wait."""

from __future__ import annotations

import asyncio
from types import TracebackType

__all__ = ["TimeLimit"]


class TimeLimit:
    """Raises a TimeoutError in a block that takes too long; cheaper than a task, and known to Python 3.10.

    Args:
        seconds: That it may take.

    Example:
        >>> async def wait():
        ...     with TimeLimit(0.001):
        ...         await asyncio.sleep(10)
        >>> asyncio.run(wait())
        Traceback (most recent call last):
        TimeoutError
    """

    __slots__ = ("_before", "_handle", "_is_over", "_seconds", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds, self._is_over = seconds, False

    def __enter__(self) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        self._before = _requests_to_cancel(self._task)
        self._handle = loop.call_later(self._seconds, self._end)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> None:
        """End; what was cancelled by the limit, and by nothing else, is a TimeoutError."""
        self._handle.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            uncancel(self._task)
            if _requests_to_cancel(self._task) <= self._before:
                raise TimeoutError from None

    def _end(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()


def uncancel(task: asyncio.Task[object] | None) -> None:
    """Take back one request to cancel a task; before Python 3.11 there is no such count."""
    take_back = getattr(task, "uncancel", None)
    if take_back is not None:
        take_back()


def _requests_to_cancel(task: asyncio.Task[object] | None) -> int:
    count = getattr(task, "cancelling", None)
    return 0 if count is None else int(count())
