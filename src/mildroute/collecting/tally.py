"""How far the questioning of one expert is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Tally"]


@dataclass
class Tally:
    """Counts of one expert.

    Args:
        expert: Its name.
        total: Cells to fill.
        known: Cells that were filled before.
        done: Cells filled now.
        errors: Cells of now that have no answer, or whose judge could not tell.
        score: Sum of the scores of now.
        dollars: Spent now, with what may have been charged besides.
        calls: Calls that were made, repeated ones too.
        failures: Calls without an answer, one after the other, up to now.
        state: ``"waiting"``, ``"asking"``, ``"done"``, ``"stopped by the cap"`` or ``"gives no answers"``.

    Example:
        >>> tally = Tally("small", total=10, known=4, done=2)
        >>> tally.left
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
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    started: float = 0.0
    latest: float = 0.0

    @property
    def left(self) -> int:
        """Cells that are still empty."""
        return max(0, self.total - self.known - self.done)

    @property
    def rate(self) -> float:
        """Cells a second so far."""
        spent = self.latest - self.started
        return self.done / spent if spent > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate, or none if nothing is known yet."""
        return self.left / self.rate if self.rate else None

    def begin(self) -> None:
        """Asking begins."""
        self.state, self.started = "asking", self.clock()
        self.latest = self.started

    def count(self, *, dollars: float, attempts: int, score: float | None, is_answered: bool = True) -> None:
        """One more cell is filled."""
        self.done += 1
        self.failures = 0 if is_answered else self.failures + 1
        self.errors += score is None
        self.score += score or 0.0
        self.dollars += dollars
        self.calls += attempts
        self.latest = self.clock()
