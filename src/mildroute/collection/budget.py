"""A cap on dollars that holds while many calls are under way.

What a call may cost at most is set aside before it is made.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from mildroute.exceptions import ArgumentError

__all__ = ["Budget", "BudgetProtocol"]


class BudgetProtocol(Protocol):
    """Where money for calls comes from.

    A budget of this process, or a part of one that many processes share.
    """

    async def reserve(self, worst: float) -> bool:
        """Set dollars aside; false if they can never be had."""
        ...

    def settle(self, worst: float, dollars: float) -> None:
        """Give back what was set aside, and count what was spent."""
        ...


class Budget:
    """Dollars that may be spent.

    Args:
        cap: At most, or none for no cap.
    """

    def __init__(self, cap: float | None = None, spent: float = 0.0) -> None:
        if cap is not None and not (math.isfinite(cap) and cap > 0):
            raise ArgumentError(
                f"a cap must be a positive number of dollars, got {cap!r}; leave it out for none."
            )
        self.cap, self.spent, self.reserved, self.is_exhausted = cap, spent, 0.0, False
        self._settled: asyncio.Event | None = None

    async def reserve(self, worst: float) -> bool:
        """Set dollars aside, and wait for calls under way if they may free enough.

        False if it can never fit.
        """
        while self.cap is not None and worst > 0 and self.spent + self.reserved + worst > self.cap:
            if self.reserved <= 0:
                self.is_exhausted = True
                return False
            self._settled = self._settled or asyncio.Event()
            self._settled.clear()
            await self._settled.wait()
        self.reserved += worst
        return True

    def settle(self, worst: float, dollars: float) -> None:
        """Give back what was set aside, and count what was spent."""
        # Sums of many small numbers: what is left of none is none.
        self.reserved = max(0.0, self.reserved - worst) if self.reserved - worst > 1e-12 else 0.0
        self.spent += dollars
        if self._settled is not None:
            self._settled.set()
