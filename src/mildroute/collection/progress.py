"""Progress of the calls to each expert."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["HOPELESS", "STOPPED", "ExpertProgress", "Progress"]

# States in which an expert is no longer called.
STOPPED = "stopped by the cap"
HOPELESS = "gives no answers"


@dataclass
class ExpertProgress:
    """The progress of the calls to one expert.

    Args:
        expert: Name of the expert.
        total: Number of cells to fill.
        known: Number of cells that earlier runs filled.
        done: Number of cells that this run filled.
        errors: Number of cells of this run without a score.
        score: Sum of the scores of this run.
        dollars: Dollars paid in this run.
        calls: Number of calls made in this run, including repeated ones.
        failures: Number of consecutive calls without an answer up to now.
        state: ``"waiting"``, ``"calling"``, ``"done"``, ``"stopped by the cap"`` or ``"gives no
            answers"``.
        reserved: Upper bound on the dollars of attempts in this run that got no answer but may have
            been charged.
        clock: Function that returns seconds.
        started: Moment at which the calls began.
        latest: Moment at which the last cell was filled.

    Example:
        >>> tally = ExpertProgress("small", total=10, known=4, done=2)
        >>> tally.remaining
        4
    """

    expert: str
    total: int = 0
    known: int = 0
    done: int = 0
    errors: int = 0
    score: float = 0.0
    dollars: float = 0.0
    calls: int = 0
    failures: int = 0
    state: str = "waiting"
    reserved: float = 0.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    started: float = 0.0
    latest: float = 0.0

    @property
    def remaining(self) -> int:
        """The number of cells that are still empty."""
        return max(0, self.total - self.known - self.done)

    @property
    def rate(self) -> float:
        """The number of cells filled per second."""
        seconds = self.latest - self.started
        return self.done / seconds if seconds > 0 else 0.0

    @property
    def seconds_remaining(self) -> float | None:
        """The seconds to fill the remaining cells at this rate; ``None`` before the first one."""
        return self.remaining / self.rate if self.rate else None

    def begin(self) -> None:
        """Start the clock."""
        self.state = "calling"
        self.started = self.latest = self.clock()

    def count(
        self,
        *,
        dollars: float,
        attempts: int,
        score: float | None,
        is_answered: bool = True,
        reserved: float = 0.0,
    ) -> None:
        """Count a cell that was filled."""
        self.done += 1
        self.failures = 0 if is_answered else self.failures + 1
        self.errors += score is None
        self.score += score or 0.0
        self.dollars += dollars
        self.reserved += reserved
        self.calls += attempts
        self.latest = self.clock()


# A function that is called after each batch, with the counts of all experts.
Progress: TypeAlias = Callable[[Sequence[ExpertProgress]], None]
