"""Circuit breaker for one expert: opens after repeated failures, probes with one call after a cooldown."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Literal

from mildroute.serving.config import CircuitBreakerConfig

__all__ = ["CircuitBreaker", "State"]


State = Literal["closed", "open", "half-open"]
"""Calls go through; nobody calls; one call may find out, or is on its way to do so."""

_PIECES = 10


class CircuitBreaker:
    """Whether an expert may be called.

    It opens after some failures in a row, or when too large a share of the calls of a sliding window failed. After a rest it lets one
    call through, the probe: if that succeeds the circuit closes, if it fails the rest is doubled. A rest is shortened by up to a half
    by chance, so that many gateways do not probe at the same moment.

    Every call that was let in must end in one of :meth:`succeed`, :meth:`fail` and :meth:`cancel`; say :meth:`succeed` when the expert's
    first byte is there and not when a long answer has ended. A probe that nobody reports is given up after the longest rest. All three
    take the moment at which the call started: what had started before the circuit opened tells nothing new, and is not counted.
    For use in one thread.

    Args:
        rules: When it opens and for how long.
        clock: Seconds that only grow.
        chance: A number from 0 to 1, evenly spread.

    Example:
        >>> breaker = CircuitBreaker(CircuitBreakerConfig(failures=1, rest=1.0), clock=lambda: 5.0)
        >>> breaker.try_enter()
        True
        >>> breaker.fail()
        >>> breaker.state, breaker.is_closed_for_call()
        ('open', False)
    """

    __slots__ = ("_chance", "_clock", "_in_a_row", "_lost_at", "_opened_at", "_probe_at", "_rest", "_rules", "_state", "_window")

    def __init__(
        self, rules: CircuitBreakerConfig, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self._rules, self._clock, self._chance = rules, clock, chance
        self._state: State = "closed"
        self._in_a_row, self._rest = 0, rules.rest
        self._opened_at = self._probe_at = self._lost_at = float("-inf")
        self._window = _Window(rules.window)

    @property
    def state(self) -> State:
        """``"closed"``, ``"open"`` or ``"half-open"``: what a call would meet now, also where nobody has called for long."""
        return "half-open" if self._state == "open" and self._clock() >= self._probe_at else self._state

    def is_closed_for_call(self) -> bool:
        """Whether a call would be let in now; looks only."""
        if self._state == "closed":
            return True
        now = self._clock()
        return now >= self._probe_at if self._state == "open" else now >= self._lost_at

    def try_enter(self) -> bool:
        """Let a call in, as the probe if it is time for one; false if it has to stay out."""
        if self._state == "closed":
            return True
        if not self.is_closed_for_call():
            return False
        self._state, self._lost_at = "half-open", self._clock() + self._rules.longest_rest
        return True

    def succeed(self, started: float | None = None) -> None:
        """The expert answered; closes the circuit, also after a call that was made although it was open."""
        if self._is_old_news(started):
            return
        self._in_a_row = 0
        if self._state == "closed":
            self._window.count(self._clock(), failures=0)
        else:
            self._state, self._rest = "closed", self._rules.rest
            self._window = _Window(self._rules.window)

    def fail(self, started: float | None = None) -> None:
        """The expert did not answer, or with an error of its own."""
        if self._is_old_news(started) or self._state == "open":
            return
        if self._state == "half-open":
            self._open(min(self._rest * 2.0, self._rules.longest_rest))
            return
        self._in_a_row += 1
        self._window.count(self._clock(), failures=1)
        if self._in_a_row >= self._rules.failures or self._window.fails(self._rules.share, self._rules.least):
            self._open(min(self._rules.rest, self._rules.longest_rest))

    def cancel(self, started: float | None = None) -> None:
        """The call was given up and tells nothing; another one may be the probe."""
        if self._state == "half-open" and not self._is_old_news(started):
            self._lost_at = self._clock()

    def _open(self, rest: float) -> None:
        self._state, self._rest, self._in_a_row = "open", rest, 0
        self._opened_at = self._clock()
        self._probe_at = self._opened_at + rest * (1.0 - self._chance() / 2.0)

    def _is_old_news(self, started: float | None) -> bool:
        return started is not None and started < self._opened_at


class _Window:
    """Calls and failures of the last seconds, in a ring of pieces: old ones leave a piece at a time."""

    __slots__ = ("_calls", "_failures", "_newest", "_width", "calls", "failures")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _PIECES
        self._calls, self._failures = [0] * _PIECES, [0] * _PIECES
        self._newest, self.calls, self.failures = 0, 0, 0

    def count(self, now: float, failures: int) -> None:
        piece = int(now / self._width)
        if piece != self._newest:
            self._turn(piece)
        place = piece % _PIECES
        self._calls[place] += 1
        self._failures[place] += failures
        self.calls += 1
        self.failures += failures

    def fails(self, share: float, least: int) -> bool:
        return self.calls >= least and self.failures >= share * self.calls

    def _turn(self, piece: int) -> None:
        for old in range(max(self._newest + 1, piece - _PIECES + 1), piece + 1):
            place = old % _PIECES
            self.calls -= self._calls[place]
            self.failures -= self._failures[place]
            self._calls[place] = self._failures[place] = 0
        self._newest = piece
