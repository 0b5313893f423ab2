"""What was repaired while a table was read, counted over all of its parts and then said in words."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["RepairLog"]

_SENTENCES = {
    "numbered": "no query_id column: rows are numbered from 0",
    "wrong": "{} missing scores count as 0 (missing='wrong')",
    "unpaid": "{} missing costs, latencies or counts of missing answers count as 0 (missing='wrong')",
    "dropped": "{} rows with missing scores are dropped (missing='drop')",
    "repeated": "{} rows that repeat an earlier row in every column are dropped",
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
        ("2 missing scores count as 0 (missing='wrong')",)
    """

    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int = 1) -> None:
        """Count one kind of repair."""
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count

    def sentences(self) -> tuple[str, ...]:
        """All repairs in words."""
        counted = (text.format(f"{self.counts[kind]:,}") for kind, text in _SENTENCES.items() if kind in self.counts)
        return (*self.notes, *counted)
