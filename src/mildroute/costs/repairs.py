"""What was repaired while a table was read, counted over all of its parts and then said in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mildroute.costs.counted import counted

__all__ = ["RepairLog"]

_SENTENCES: dict[str, Callable[[int], str]] = {
    "numbered": lambda _: "no query_id column: rows are numbered from 0",
    "wrong": lambda count: f"{counted(count, 'missing score')} {_verb(count, 'count')} as 0 (missing: wrong)",
    "unpaid": lambda count: f"{counted(count, 'missing value')} of cost, latency or tokens beside them {_verb(count, 'count')} as 0, too",
    "dropped": lambda count: f"{counted(count, 'row')} with missing scores {_are(count)} dropped (missing: drop)",
    "repeated": lambda count: f"{counted(count, 'row')} that {_verb(count, 'repeat')} an earlier row in every column {_are(count)} dropped",
}


@dataclass
class RepairLog:
    """Counts of each kind of repair.

    Attributes:
        notes: Sentences that need no count.
        counts: How often each kind of repair was made.

    Example:
        >>> log = RepairLog()
        >>> log.add("wrong", 2)
        >>> log.sentences()
        ('2 missing scores count as 0 (missing: wrong)',)
    """

    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int = 1) -> None:
        """Count one kind of repair."""
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count

    def sentences(self) -> tuple[str, ...]:
        """All repairs in words."""
        return (*self.notes, *(sentence(self.counts[kind]) for kind, sentence in _SENTENCES.items() if kind in self.counts))


def _verb(count: int, verb: str) -> str:
    return f"{verb}s" if count == 1 else verb


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
