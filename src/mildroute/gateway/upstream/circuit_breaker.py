"""The circuit breaker of an expert."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Literal

from mildroute.gateway.config import CircuitBreakerConfig
from mildroute.gateway.upstream.window import CallWindow

__all__ = ["CircuitBreaker", "State"]


# "closed" lets all calls through, "open" lets none through, and "half-open" lets one through, the
# probe.
State = Literal["closed", "open", "half-open"]


class CircuitBreaker:
    """A circuit breaker for one expert.

    It opens after some consecutive failures, or if too large a share of the calls in a sliding
    window failed. After a cooldown it lets one call through, the probe: if the probe succeeds, the
    circuit closes; if it fails, the cooldown is doubled. A cooldown is shortened at random by up to
    a half, so that many gateways do not probe at the same moment.

    Every call that was let through must end in one of :meth:`record_success`,
    :meth:`record_failure` and :meth:`release`. Record the success at the first byte of the
    response, not at the end of a long one. A probe that is never reported expires after the longest
    cooldown. All three take the time at which the call started: a call that started before the
    circuit opened is not counted, because it says nothing new. The class is not thread-safe.

    Args:
        config: Thresholds and durations.
        clock: Returns monotonic seconds.
        random: Returns a uniform number in [0, 1).
        on_change: Called with the new state after each change, or ``None``.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_consecutive_failures",
        "_cooldown",
        "_last_failed",
        "_on_change",
        "_opened_at",
        "_probe_at",
        "_probe_expires_at",
        "_random",
        "_state",
        "_window",
    )

    def __init__(
        self,
        config: CircuitBreakerConfig,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
        on_change: Callable[[State], None] | None = None,
    ) -> None:
        self._config = config
        self._on_change = on_change
        self._clock = clock
        self._random = random
        self._state: State = "closed"
        self._consecutive_failures = 0
        # The request whose failure was counted most recently.
        self._last_failed: int | None = None
        self._cooldown = config.cooldown
        self._opened_at = -math.inf
        self._probe_at = -math.inf
        self._probe_expires_at = -math.inf
        self._window = CallWindow(config.window)

    @property
    def state(self) -> State:
        """Return the state that a call would meet now: closed, open or half-open.

        An open circuit becomes half-open once a probe is due, even if no call is made.
        """
        return (
            "half-open"
            if self._state == "open" and self._clock() >= self._probe_at
            else self._state
        )

    @property
    def retry_after(self) -> float:
        """Return the seconds until the next probe; 1 while a probe is in flight."""
        if self._state == "closed":
            return 0.0
        return max(self._probe_at - self._clock(), 0.0) if self._state == "open" else 1.0

    def allows_call(self) -> bool:
        """Return whether a call would be let through now; do not change the state."""
        if self._state == "closed":
            return True
        now = self._clock()
        return now >= self._probe_at if self._state == "open" else now >= self._probe_expires_at

    def try_acquire(self) -> bool:
        """Let a call through, as the probe if one is due; return ``False`` if it is refused."""
        if self._state == "closed":
            return True
        if not self.allows_call():
            return False
        self._change("half-open")
        self._probe_expires_at = self._clock() + self._config.max_cooldown
        return True

    def record_success(self, started: float | None = None) -> None:
        """Record that the expert responded, which closes the circuit.

        This includes a call that was made although the circuit was open.
        """
        if self._is_stale(started):
            return
        self._consecutive_failures = 0
        if self._state == "closed":
            self._window.count(self._clock(), failures=0)
        else:
            self._cooldown = self._config.cooldown
            self._window = CallWindow(self._config.window)
            self._change("closed")

    def record_failure(self, started: float | None = None, request: int | None = None) -> None:
        """Record that the expert did not respond, or responded with an error of its own.

        Args:
            started: Time at which the call began.
            request: Number of the request. Its consecutive attempts count once, so that a single
                bad request cannot make the expert unavailable to all others.
        """
        config = self._config
        if self._is_stale(started) or self._state == "open":
            return
        if self._state == "half-open":
            self._open(min(self._cooldown * 2.0, config.max_cooldown))
            return
        if request is not None and request == self._last_failed:
            return
        is_first = self._consecutive_failures == 0
        self._last_failed = request
        self._consecutive_failures += 1
        self._window.count(self._clock(), failures=1)
        if is_first and request is not None:
            return
        if self._consecutive_failures >= config.consecutive_failures or self._window.exceeds(
            config.failure_rate, config.min_calls
        ):
            self._open(min(config.cooldown, config.max_cooldown))

    def release(self, started: float | None = None) -> None:
        """Release a cancelled call, so that another call can be the probe."""
        if self._state == "half-open" and not self._is_stale(started):
            self._probe_expires_at = self._clock()

    def _open(self, cooldown: float) -> None:
        self._cooldown = cooldown
        self._consecutive_failures = 0
        self._opened_at = self._clock()
        self._probe_at = self._opened_at + cooldown * (1.0 - self._random() / 2.0)
        self._change("open")

    def _change(self, state: State) -> None:
        is_new = state != self._state
        self._state = state
        if is_new and self._on_change is not None:
            self._on_change(state)

    def _is_stale(self, started: float | None) -> bool:
        return started is not None and started < self._opened_at
