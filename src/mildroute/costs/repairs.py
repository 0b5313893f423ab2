"""Repairs made while a table is read, counted over all of its parts and reported as sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mildroute._format import pluralize

__all__ = ["RepairLog"]


_SENTENCES: dict[str, Callable[[int], str]] = {
    "numbered": lambda _: "no query_id column: rows are numbered from 0",
    "zero": lambda count: (
        f"{pluralize(count, 'missing score')} {_verb(count, 'count')} as 0 (missing: zero)"
    ),
    "unpaid": lambda count: (
        f"{pluralize(count, 'missing value')} of cost, latency or tokens beside them"
        f" {_verb(count, 'count')} as 0, too"
    ),
    "dropped": lambda count: (
        f"{pluralize(count, 'row')} with missing scores {'is' if count == 1 else 'are'} dropped"
        " (missing: drop)"
    ),
    "repeated": lambda count: (
        f"{pluralize(count, 'row')} that {_verb(count, 'repeat')} an earlier row in every column"
        f" {'is' if count == 1 else 'are'} dropped"
    ),
}


@dataclass
class RepairLog:
    """The counts of each kind of repair."""

    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int = 1) -> None:
        """Count one kind of repair."""
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count

    def sentences(self) -> tuple[str, ...]:
        """Return all repairs in words."""
        return (
            *self.notes,
            *(
                sentence(self.counts[kind])
                for kind, sentence in _SENTENCES.items()
                if kind in self.counts
            ),
        )


def _verb(count: int, verb: str) -> str:
    return f"{verb}s" if count == 1 else verb
