"""A bucket that fills at a steady rate: for requests, which are refused when it is empty, and for money, which is counted afterwards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from mildroute.errors import ArgumentError

__all__ = ["Bucket"]

_GRACE = 1e-6


class Bucket:
    """How much may be taken now.

    It is full at first. What is had is never more than ``burst`` plus what has flowed in since, up to one microsecond of it, which
    covers the rounding of clocks: whoever waits for :meth:`seconds_until` gets what was waited for. For use in one thread.

    Args:
        rate_per_second: What flows in; 0 for a bucket that is emptied once.
        burst: What it can hold.
        clock: Seconds that only grow.

    Raises:
        ArgumentError: The rate is not finite or below 0, or the burst is not finite and positive.

    Example:
        >>> bucket = Bucket(2.0, 1.0, clock=lambda: 5.0)
        >>> bucket.take(), bucket.take(), bucket.seconds_until()
        (True, False, 0.5)
    """

    __slots__ = ("_at", "_burst", "_clock", "_grace", "_level", "_rate")

    def __init__(self, rate_per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not (math.isfinite(rate_per_second) and rate_per_second >= 0):
            raise ArgumentError(f"a rate must be a finite number of at least 0 a second, got {rate_per_second!r}; use 0 for no refill.")
        if not (math.isfinite(burst) and burst > 0):
            raise ArgumentError(f"a burst must be a finite number above 0, got {burst!r}; use 1 to allow one call at a time.")
        self._rate, self._burst, self._clock = rate_per_second, burst, clock
        self._grace = rate_per_second * _GRACE
        self._level, self._at = burst, clock()

    def level(self) -> float:
        """What is in it now; below zero if more was spent than there was."""
        now = self._clock()
        if now > self._at:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
            self._at = now
        return self._level

    def has(self, amount: float = 1.0) -> bool:
        """Whether so much could be taken now."""
        return self.level() + self._grace >= amount

    def take(self, amount: float = 1.0) -> bool:
        """Take so much, or nothing if there is less."""
        if not self.has(amount):
            return False
        self.spend(amount)
        return True

    def spend(self, amount: float) -> None:
        """Take so much in any case: for costs that are known only when they have arisen.

        Raises:
            ArgumentError: The amount is below 0 or not a finite number.
        """
        if not 0 <= amount < math.inf:
            raise ArgumentError(f"an amount must be a finite number of at least 0, got {amount!r}; leave out what is not known.")
        self._level = self.level() - amount

    def seconds_until(self, amount: float = 1.0) -> float:
        """Seconds until so much can be taken; infinite if it never can."""
        if self.has(amount):
            return 0.0
        if amount > self._burst or self._rate == 0:
            return math.inf
        return (amount - self._level) / self._rate
