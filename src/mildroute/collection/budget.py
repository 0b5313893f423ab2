"""A cap on dollars that holds while many calls are in flight.

The upper bound of each attempt is reserved before the attempt is made.
"""

from __future__ import annotations

import asyncio
import heapq
import math

from mildroute.exceptions import ArgumentError

__all__ = ["Budget"]

# A smaller difference between sums of dollars is a rounding error.
_ROUNDING = 1e-12


class Budget:
    """The dollars that a run may spend.

    Args:
        cap: Maximum dollars; ``None`` means no cap.
        spent: Dollars that earlier runs have spent.

    Attributes:
        reserved: Dollars reserved for calls in flight.
        is_exhausted: Whether a reservation was refused because it would exceed the cap even after
            all calls in flight have ended.
    """

    def __init__(self, cap: float | None = None, spent: float = 0.0) -> None:
        if cap is not None and not (math.isfinite(cap) and cap > 0):
            raise ArgumentError(
                f"a cap must be a positive number of dollars, got {cap!r}; leave it out for no cap."
            )
        self.cap = cap
        self.spent = spent
        self.reserved = 0.0
        self.is_exhausted = False
        self._settled = asyncio.Event()
        self._waiting_ranks: list[int] = []
        self._refused_rank = math.inf

    async def reserve(self, dollars: float, *, rank: int = 0, wait: bool = True) -> bool:
        """Reserve dollars, waiting for calls in flight if they may release enough.

        Args:
            dollars: Amount to reserve.
            rank: Index of the query; if money is short, queries of a lower rank come first.
            wait: Whether to wait for calls in flight.

        Returns:
            Whether the dollars were reserved. ``False`` means that they would exceed the cap, that
            the budget already refused a query of a lower rank, or, with ``wait=False``, that
            another call is first in line.
        """
        if self.cap is not None and dollars > 0:
            heapq.heappush(self._waiting_ranks, rank)
            try:
                if not await self._wait_until_affordable(dollars, self.cap, rank, wait=wait):
                    return False
            finally:
                self._waiting_ranks.remove(rank)
                heapq.heapify(self._waiting_ranks)
                if self._waiting_ranks and self._waiting_ranks[0] > rank:
                    self._settled.set()
        self.reserved += dollars
        return True

    async def _wait_until_affordable(
        self, dollars: float, cap: float, rank: int, *, wait: bool
    ) -> bool:
        """Return whether the cap allows the dollars, now or after waiting for calls in flight."""
        while rank <= self._refused_rank:
            is_first = self._waiting_ranks[0] == rank
            if is_first and self.spent + self.reserved + dollars <= cap:
                return True
            if not wait:
                return False
            if is_first and self.reserved <= 0:
                self.is_exhausted = True
                self._refused_rank = rank
                return False
            self._settled.clear()
            await self._settled.wait()
        return False

    def settle(self, reserved: float, spent: float) -> None:
        """Release a reservation and count the dollars that were spent.

        Args:
            reserved: Dollars that were reserved.
            spent: Dollars that were spent.
        """
        remaining = self.reserved - reserved
        self.reserved = remaining if remaining > _ROUNDING else 0.0
        self.spent += spent
        self._settled.set()
