"""A clock that tests can replace, so that they need not wait."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Clock"]


@dataclass(frozen=True)
class Clock:
    """A source of time and randomness.

    Args:
        monotonic: Function that returns seconds, for durations.
        sleep: Coroutine function that waits for a number of seconds.
        random: Function that returns a uniform number between 0 and 1.
        time: Function that returns seconds since 1970, for dates that servers send.
    """

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    time: Callable[[], float] = time.time
