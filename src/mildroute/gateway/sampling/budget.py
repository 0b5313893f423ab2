"""The daily budget of sampling, in a file that several gateways share.

The maximum cost is reserved before a call is made, and replaced by the bill afterwards. If the
gateway is killed in between, the reservation counts as spent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mildroute._files import atomic_write, file_lock
from mildroute.decision.days import ROUNDING, start_of_day
from mildroute.exceptions import TableError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.gateway.observability.logs import log_event

__all__ = ["FileBudget", "MeteredExpert", "Reserved"]

_LOG = logging.getLogger(__name__)

_LOCK_SECONDS = 10.0


class Reserved(NamedTuple):
    """Held dollars, and the day whose budget they count against."""

    dollars: float
    day: float


class FileBudget:
    """A daily budget in a file, shared by all gateways with the same log folder.

    Args:
        path: Path of the file.
        limit: Dollars per day.
        now: Returns seconds since 1970.

    Attributes:
        left: Remaining dollars of today at the latest update; NaN before the first.
    """

    def __init__(self, path: Path, limit: float, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._limit = limit
        self._now = now
        self.left = math.nan

    async def reserve(self, dollars: float) -> Reserved | None:
        """Hold dollars before a call; return ``None`` if too few remain or the file is unusable."""
        try:
            day = await asyncio.to_thread(self._add, dollars, None)
        except (OSError, TableError, ValueError, TypeError, KeyError) as error:
            log_event(_LOG, logging.WARNING, "sampling budget failed", error=str(error))
            return None
        return None if day is None else Reserved(dollars, day)

    async def settle(self, held: Reserved, dollars: float) -> None:
        """Replace the dollars held by the actual cost."""
        try:
            await asyncio.to_thread(self._add, dollars - held.dollars, held.day)
        except (OSError, TableError, ValueError, TypeError, KeyError) as error:
            # The reservation stays counted.
            log_event(_LOG, logging.WARNING, "sampling budget failed", error=str(error))

    def _add(self, dollars: float, held_on: float | None) -> float | None:
        """Add dollars to the current day and return that day.

        Returns ``None`` if new dollars exceed the remaining budget. A change to dollars held on an
        earlier day is ignored.
        """
        lock = self._path.with_name(f".{self._path.name}.lock")
        with file_lock(lock, _LOCK_SECONDS, create=True):
            day, spent = self._read()
            today = start_of_day(self._now())
            if today > day:  # a clock that was set back does not start a new day
                day, spent = today, 0.0
            self.left = self._limit - spent
            if held_on is None and dollars > self.left + ROUNDING:
                return None
            if held_on is None or held_on == day:
                with atomic_write(self._path) as replacement:
                    document = {"day": day, "dollars": spent + dollars}
                    replacement.write_text(json.dumps(document), encoding="utf-8")
                self.left -= dollars
            return day

    def _read(self) -> tuple[float, float]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return -math.inf, 0.0
        day, dollars = float(document["day"]), float(document["dollars"])
        if not (math.isfinite(day) and 0 <= dollars < math.inf):
            raise ValueError(f"{self._path.name} must have a day and dollars of 0 or more")
        return day, dollars


class MeteredExpert(Expert):
    """A judge's expert, limited by the daily budget."""

    def __init__(self, expert: Expert, budget: FileBudget) -> None:
        self._expert = expert
        self._budget = budget
        self.name = expert.name
        self.version = expert.version
        self.price = expert.price
        self.batch_size = expert.batch_size
        self.concurrency = expert.concurrency

    def max_cost(self, query: Query) -> float:
        """Return an upper bound on the expert's charge."""
        return self._expert.max_cost(query)

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """Call the expert if the budget covers its maximum charge."""
        held = await self._budget.reserve(sum(map(self.max_cost, batch)))
        if held is None:
            return [Answer(None, error="the daily budget for sampling is spent") for _ in batch]
        answers = await self._expert.answer(batch)
        spent = sum(answer.dollars + answer.unconfirmed_cost for answer in answers)
        await self._budget.settle(held, spent)
        return answers

    async def close(self) -> None:
        """Close the expert."""
        await self._expert.close()
