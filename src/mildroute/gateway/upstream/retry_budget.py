"""The budget of retries."""

from __future__ import annotations

import time
from collections.abc import Callable

from mildroute.gateway.upstream.window import CallWindow

__all__ = ["RetryBudget"]

# Finagle's figures: a fifth of the requests of the last ten seconds, and at least a few.
_RETRY_WINDOW = 10.0
_RETRY_RATE = 0.2
_MIN_RETRIES = 10


class RetryBudget:
    """A bound on retries as a fraction of recent requests, as in Finagle and Envoy.

    Without a bound, retries would multiply the load on experts that fail because of their load.
    """

    __slots__ = ("_clock", "_window")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window = CallWindow(_RETRY_WINDOW)

    def count_request(self) -> None:
        """Count a request, but not its retries."""
        self._window.count(self._clock(), failures=0)

    @property
    def has_room(self) -> bool:
        """Return whether at least one retry remains."""
        requests = self._window.calls - self._window.failures
        return self._window.failures < max(_MIN_RETRIES, _RETRY_RATE * requests)

    def try_spend(self) -> bool:
        """Spend one retry; return ``False`` if none remains."""
        if not self.has_room:
            return False
        self._window.count(self._clock(), failures=1)
        return True
