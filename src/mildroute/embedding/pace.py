"""How far a job is, and how fast it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Pace"]


@dataclass
class Pace:
    """Counts rows and tells somebody.

    Args:
        total: Rows in all.
        tell: Called with the rows done, the rows in all and the rows encoded per second so far; or none.

    Attributes:
        done: Rows that have their vectors.
        encoded: Rows of them that were encoded now.

    Example:
        >>> pace = Pace(10)
        >>> pace.found(4); pace.encode(1)
        >>> pace.done, pace.encoded
        (5, 1)
    """

    total: int
    tell: Callable[[int, int, float], None] | None = None
    done: int = 0
    encoded: int = 0
    _begin: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.perf_counter() - self._begin

    @property
    def rate(self) -> float:
        """Rows encoded per second."""
        return self.encoded / max(self.seconds, 1e-9)

    def found(self, rows: int) -> None:
        """Count rows whose vectors were there already."""
        self.done += rows
        self._tell()

    def encode(self, rows: int) -> None:
        """Count rows that were encoded."""
        self.encoded += rows
        self.found(rows)

    def _tell(self) -> None:
        if self.tell is not None:
            self.tell(self.done, self.total, self.rate)
