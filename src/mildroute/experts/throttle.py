"""One pace for all callers of an endpoint: as fast as they like until it refuses, then slower, then slowly faster again."""

from __future__ import annotations

import math
from collections import deque

from mildroute.experts.timing import Timing

__all__ = ["Throttle"]

_DOUBLING = 30.0
_FORGOTTEN = 8 * _DOUBLING
_SLOWEST = 0.5
_REMEMBERED = 256


class Throttle:
    """The rate at which calls may start.

    There is no limit before the first refusal. A refusal sets the rate to half of what the endpoint has lately answered; it then doubles
    every 30 seconds, until the next refusal or until the limit is forgotten after four minutes. Refusals of calls that had started before
    the last cut are echoes of the same mistake and cut nothing. A rate also bounds the calls at the same time, so this serves endpoints
    that refuse for either reason.

    Args:
        timing: Clock and sleep.

    Example:
        >>> throttle = Throttle(Timing(clock=lambda: 10.0))
        >>> throttle.refused(started=9.0)
        >>> throttle.rate()
        0.5
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._answered: deque[float] = deque(maxlen=_REMEMBERED)
        self._limit = math.inf
        self._cut = self._resume = self._next = -math.inf
        self._refusals = 0

    def rate(self) -> float:
        """Calls a second that may start now; infinite without a limit."""
        if self._limit == math.inf:
            return math.inf
        age = max(self._timing.clock() - max(self._cut, self._resume), 0.0)
        if age > _FORGOTTEN:
            self._limit = math.inf
        return self._limit * math.pow(2.0, age / _DOUBLING)

    async def turn(self) -> float:
        """Wait until a call may start; the moment at which it does."""
        while self._limit < math.inf:
            refusals, now = self._refusals, self._timing.clock()
            begin = max(now, self._next)
            self._next = begin + 1.0 / self.rate()
            if begin > now:
                await self._timing.sleep(begin - now)
            # Who slept through a refusal had a turn of the old pace.
            if refusals == self._refusals:
                break
        return self._timing.clock()

    def answered(self) -> None:
        """A call was answered now."""
        self._answered.append(self._timing.clock())

    def refused(self, started: float, wait: float = 0.0) -> None:
        """A call that started then was refused for its rate; nobody calls for as many seconds as the endpoint asks for."""
        now = self._timing.clock()
        fresh = started > self._cut or self._limit == math.inf
        if fresh:
            self._limit = max(_SLOWEST, min(self.rate(), self._lately(now)) / 2.0)
            self._cut = now
        if fresh or (wait > 0 and now + wait > self._resume):
            self._refusals += 1
            self._resume = max(self._resume, now + wait)
            self._next = max(self._resume, self._cut + 1.0 / self._limit)

    def _lately(self, now: float) -> float:
        return len(self._answered) / max(now - self._answered[0], 1.0) if self._answered else 0.0
