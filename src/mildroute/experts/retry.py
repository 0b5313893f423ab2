"""Retries with backoff, and a rate limiter that adapts to rejections."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from mildroute._checks import validate_amount, validate_count
from mildroute.experts.base import Clock

__all__ = ["AdaptiveRateLimiter", "Backoff", "retry_after"]


# When a failed call is tried again: waits with full jitter, and what a server's Retry-After
# means.


_MOST_DOUBLINGS = 30


@dataclass(frozen=True)
class Backoff:
    """How often and after what delay a call is retried.

    Args:
        retries: Additional attempts after failures (lost connections, timeouts, 5xx, broken
            answers); such an attempt may cost money.
        first: Longest wait before the first of them, in seconds; each further one doubles it.
        longest: Longest wait of all, in seconds; also caps a Retry-After.
        patience: Seconds for which a rate-limited call (429) is retried; such rejections cost
            nothing and are not failures.

    Example:
        >>> Backoff(first=1.0).wait(3, jitter=0.5)
        2.0
    """

    retries: int = 4
    first: float = 0.5
    longest: float = 60.0
    patience: float = 600.0

    def __post_init__(self) -> None:
        """Check all four values."""
        validate_count("retries", self.retries, minimum=0)
        for name in ("first", "longest", "patience"):
            validate_amount(f"seconds of {name}", getattr(self, name))

    def wait(self, failures: int, *, jitter: float) -> float:
        """Seconds before the next attempt.

        Uniformly distributed between zero and the longest, so that callers do not return together.
        """
        return jitter * min(self.longest, self.first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def retry_after(header: str | None, now: float) -> float | None:
    """Return the seconds that a Retry-After header demands, given as seconds or as a date.

    None if it cannot be read.

    Args:
        header: Its value.
        now: Seconds since 1970.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        seconds = _until(header, now)
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _until(header: str, now: float) -> float:
    try:
        return parsedate_to_datetime(header).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return math.nan


# One pace for all callers of an endpoint: as fast as they like until it refuses, then slower,
# then carefully faster again.


_CUT = 0.7
# Seconds after which the rate is again what it was before a cut.
_BACK = 5.0
_FORGOTTEN = 60.0
_SLOWEST = 0.5
_LATELY, _JUST_NOW = 10.0, 2.0
# Calls a second that an endpoint is taken to stand before it has answered any.
_UNKNOWN = 4.0
# Of the last 20 outcomes since a cut, three refusals tell of a limit; of fewer than five, one does.
_OUTCOMES, _TELLING, _FEW = 20, 3, 5


class AdaptiveRateLimiter:
    """The rate at which calls may start.

    The rate is unlimited before the first rejections. An occasional rejection, for whatever reason,
    does not slow an endpoint down. If an endpoint rejects several of its last calls, it gets a
    limit: the rate is cut to seven tenths of its recent rate of answers and then follows a cubic,
    as in TCP CUBIC and the adaptive retries of AWS. It recovers in five seconds, stays near the
    rejected rate for a while, then grows faster and faster until the next cut, or until the limit
    is forgotten after a minute. Rejections of calls that started before the last cut have the same
    cause and cut nothing. A rate also bounds concurrent calls, so this works for endpoints that
    reject for either reason.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._successes: deque[float] = deque()
        self._rejections: deque[bool] = deque(maxlen=_OUTCOMES)
        self._peak = math.inf
        self._cut = self._resume = self._next = -math.inf
        self._changes = 0

    def rate(self) -> float:
        """Calls per second that may start now; infinite without a limit."""
        if self._peak == math.inf:
            return math.inf
        age = max(self._clock.monotonic() - max(self._cut, self._resume), 0.0)
        if age > _FORGOTTEN:
            self._peak = math.inf
            return math.inf
        return max(_SLOWEST, self._peak * (1 + (1 - _CUT) * (age / _BACK - 1) ** 3))

    async def acquire(self) -> float:
        """Wait until a call may start and return that moment."""
        while self._peak < math.inf or self._resume > self._clock.monotonic():
            changes, now = self._changes, self._clock.monotonic()
            begin = max(now, self._next)
            self._next = begin + 1.0 / self.rate()
            if begin > now:
                await self._clock.sleep(begin - now)
            # After a change of the rate, a caller that slept got its slot at the old pace.
            if changes == self._changes:
                break
        return self._clock.monotonic()

    def record_success(self) -> None:
        """Record that a call was answered now."""
        self._successes.append(self._clock.monotonic())
        self._rejections.append(False)
        self._forget_old()

    def record_rejection(self, started: float, wait: float = 0.0) -> None:
        """Record that a call that started then was rate limited.

        No call starts for the number of seconds that the endpoint demands.
        """
        now = self._clock.monotonic()
        self._rejections.append(True)
        is_telling = sum(self._rejections) >= _TELLING or len(self._rejections) < _FEW
        is_fresh = is_telling and (started > self._cut or self._peak == math.inf)
        if is_fresh:
            self._peak = max(_SLOWEST, min(self.rate(), self._lately(now)))
            self._cut = now
            self._rejections.clear()
        if is_fresh or (wait > 0 and now + wait > self._resume):
            self._changes += 1
            self._resume = max(self._resume, now + wait)
            self._next = max(self._resume, now + 1.0 / self.rate() if is_fresh else self._next)

    def _lately(self, now: float) -> float:
        """Return answers per second, with the last two seconds counted separately.

        A rate that has just risen must not be mistaken for its mean.
        """
        self._forget_old()
        if not self._successes:
            return _UNKNOWN
        just_now = sum(moment > now - _JUST_NOW for moment in self._successes)
        return max(len(self._successes) / max(now - self._successes[0], 1.0), just_now / _JUST_NOW)

    def _forget_old(self) -> None:
        while self._successes and self._successes[0] < self._clock.monotonic() - _LATELY:
            self._successes.popleft()
