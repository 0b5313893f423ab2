"""Time that passes only when someone sleeps."""

from __future__ import annotations

import asyncio

from mildroute.experts.clock import Clock


class InstantTime:
    """Sleeping takes no time, moves the clock and is written down."""

    def __init__(self, chance: float = 1.0, now: float = 0.0) -> None:
        self.time = 100.0
        self.slept: list[float] = []
        self.clock = Clock(
            monotonic=lambda: self.time, sleep=self._sleep, random=lambda: chance, time=lambda: now
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


class VirtualTime:
    """Many sleepers at once.

    When nobody else can go on, the clock jumps to the one who wakes first.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self._waking: list[float] = []
        self.clock = Clock(
            monotonic=lambda: self.time, sleep=self._sleep, random=lambda: 1.0, time=lambda: 0.0
        )

    async def _sleep(self, seconds: float) -> None:
        wake = self.time + seconds
        self._waking.append(wake)
        while self.time < wake:
            for _ in range(20):
                await asyncio.sleep(0)
            if self.time < wake == min(self._waking):
                self.time = wake
        self._waking.remove(wake)
