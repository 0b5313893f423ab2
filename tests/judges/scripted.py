"""An expert that gives prepared answers and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mildroute.experts.base import Answer, Expert, Query


class Scripted(Expert):
    def __init__(self, answers: Sequence[Answer], concurrency: int = 1) -> None:
        self.name, self.version, self.concurrency = "scripted", "1", concurrency
        self.answers = list(answers)
        self.asked: list[Query] = []
        self.busy = self.busiest = 0

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        self.asked += batch
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        await asyncio.sleep(0)
        self.busy -= 1
        given, self.answers = self.answers[: len(batch)], self.answers[len(batch) :]
        return given
