"""Clock, sleep and chance, in one place so that tests of waiting need not wait."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Timing"]


@dataclass(frozen=True)
class Timing:
    """Where time and chance come from.

    Args:
        clock: Seconds that only grow.
        sleep: Waits for so many seconds.
        chance: A number from 0 to 1, evenly spread.
        now: Seconds since 1970, for dates that servers send.

    Example:
        >>> Timing(clock=lambda: 7.0).clock()
        7.0
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    now: Callable[[], float] = time.time
