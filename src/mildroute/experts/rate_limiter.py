"""A rate limiter, shared by all callers of an endpoint, that adapts to rejections."""

from __future__ import annotations

import math
from collections import deque

from mildroute.experts.clock import Clock

__all__ = ["AdaptiveRateLimiter"]

# Factor by which a rejection reduces the rate.
_CUT = 0.7
# Seconds until the rate has recovered from a cut.
_RECOVERY_S = 5.0
# Seconds after which a limit is forgotten.
_FORGET_S = 60.0
# Minimum calls per second.
_MIN_RATE = 0.5
# Seconds over which answers are counted, and the last part of them, which is counted separately.
_WINDOW_S = 10.0
_RECENT_S = 2.0
# Calls per second that an endpoint is assumed to sustain before its first answer.
_INITIAL_RATE = 4.0
# Three rejections among the last 20 outcomes since a cut indicate a limit, or one among fewer than
# five.
_OUTCOMES = 20
_MIN_REJECTIONS = 3
_FEW_OUTCOMES = 5


class AdaptiveRateLimiter:
    """A limit on the rate at which calls may start.

    The rate is unlimited before the first rejections. An occasional rejection, for whatever reason,
    does not slow an endpoint down. If an endpoint rejects several of its last calls, it gets a
    limit: the rate is cut to seven tenths of its recent rate of answers and then follows a cubic,
    as in TCP CUBIC and the adaptive retries of AWS. The rate recovers in five seconds, stays near
    the rejected rate for a while, then grows faster and faster until the next cut, or until the
    limit is forgotten after a minute. Rejections of calls that started before the last cut have the
    same cause and cut nothing. A rate also bounds concurrent calls, so the limiter works for
    endpoints that reject for either reason.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._successes: deque[float] = deque()
        self._rejections: deque[bool] = deque(maxlen=_OUTCOMES)
        self._peak = math.inf
        self._cut_at = -math.inf
        self._resume_at = -math.inf
        self._next_start = -math.inf
        self._changes = 0

    def rate(self) -> float:
        """Return the number of calls that may start per second; infinite without a limit."""
        if self._peak == math.inf:
            return math.inf
        age = max(self._clock.monotonic() - max(self._cut_at, self._resume_at), 0.0)
        if age > _FORGET_S:
            self._peak = math.inf
            return math.inf
        return max(_MIN_RATE, self._peak * (1 + (1 - _CUT) * (age / _RECOVERY_S - 1) ** 3))

    async def acquire(self) -> float:
        """Wait until a call may start and return its start time."""
        while self._peak < math.inf or self._resume_at > self._clock.monotonic():
            changes = self._changes
            now = self._clock.monotonic()
            start = max(now, self._next_start)
            self._next_start = start + 1.0 / self.rate()
            if start > now:
                await self._clock.sleep(start - now)
            # If the rate has changed, a caller that slept got its slot at the old rate.
            if changes == self._changes:
                break
        return self._clock.monotonic()

    def record_success(self) -> None:
        """Record that a call was answered now."""
        self._successes.append(self._clock.monotonic())
        self._rejections.append(False)
        self._forget_old()

    def record_rejection(self, started: float, wait: float = 0.0) -> None:
        """Record that a call was rejected by a rate limit.

        Args:
            started: Time at which the call started.
            wait: Seconds that the endpoint requests; no call starts before they have passed.
        """
        now = self._clock.monotonic()
        self._rejections.append(True)
        indicates_limit = (
            sum(self._rejections) >= _MIN_REJECTIONS or len(self._rejections) < _FEW_OUTCOMES
        )
        is_cut = indicates_limit and (started > self._cut_at or self._peak == math.inf)
        if is_cut:
            self._peak = max(_MIN_RATE, min(self.rate(), self._answer_rate(now)))
            self._cut_at = now
            self._rejections.clear()
        if is_cut or (wait > 0 and now + wait > self._resume_at):
            self._changes += 1
            self._resume_at = max(self._resume_at, now + wait)
            next_start = now + 1.0 / self.rate() if is_cut else self._next_start
            self._next_start = max(self._resume_at, next_start)

    def _answer_rate(self, now: float) -> float:
        """Return recent answers per second.

        The last two seconds also count separately, because the mean lags behind a rate that has
        just risen.
        """
        self._forget_old()
        if not self._successes:
            return _INITIAL_RATE
        recent = sum(moment > now - _RECENT_S for moment in self._successes)
        return max(len(self._successes) / max(now - self._successes[0], 1.0), recent / _RECENT_S)

    def _forget_old(self) -> None:
        while self._successes and self._successes[0] < self._clock.monotonic() - _WINDOW_S:
            self._successes.popleft()
