"""The plan and the result of a collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mildroute._format import pluralize
from mildroute.collection.estimate import CollectionEstimate
from mildroute.collection.progress import ExpertProgress
from mildroute.collection.store import Spending

__all__ = ["CollectionInterrupted", "CollectionPlan", "CollectionResult", "JudgeCoverage"]

# Maximum number of reasons in a message.
_MAX_REASONS = 2


@dataclass(frozen=True)
class CollectionResult:
    """The result of a collection.

    Args:
        table: The cost table's file.
        tallies: Counts of each expert.
        empty: Number of assigned cells without a score.
        spending: Dollars of this run, of earlier runs in this folder, and of lost calls.
        is_capped: Whether the cap ended the run.
        reasons: Reasons for empty cells with their counts, the most frequent first, by expert.
        unwanted: Number of cells without a score because the expert did not get the query.
        complete: Number of queries with a score for every expert that got them.
        left_out: Number of queries that the cap left incomplete and that are not in the table.
        left_out_cells: Number of empty cells of those queries.
        coverage: The queries that the judge can score.

    Example:
        >>> CollectionResult(Path("costs.parquet"), [], 0, Spending(2.0), False).spent
        2.0
    """

    table: Path
    tallies: list[ExpertProgress]
    empty: int
    spending: Spending
    is_capped: bool
    reasons: Mapping[str, list[tuple[str, int]]] = field(default_factory=dict)
    unwanted: int = 0
    complete: int = 0
    left_out: int = 0
    left_out_cells: int = 0
    coverage: JudgeCoverage | None = None

    @property
    def spent(self) -> float:
        """The dollars that count toward the cap, including possible charges for lost calls."""
        return self.spending.total


class JudgeCoverage(NamedTuple):
    """The number of queries whose answers a judge can score.

    Args:
        judge: Name of the judge.
        queries: Number of all queries.
        scorable: Number of queries whose answers the judge can score.
        reasons: Reasons why the judge cannot score the others, with their counts, the most frequent
            first.

    Example:
        >>> print(JudgeCoverage("exact", 300, 150, [("the query has no reference", 150)]))
        exact can score 150 of 300 queries; 150 queries: the query has no reference
    """

    judge: str
    queries: int
    scorable: int
    reasons: list[tuple[str, int]]

    def __str__(self) -> str:
        """Return a sentence with both numbers and the reasons."""
        summary = f"{self.judge} can score {self.scorable:,} of {pluralize(self.queries, 'query')}"
        reasons = [
            f"{pluralize(count, 'query')}: {reason}"
            for reason, count in self.reasons[:_MAX_REASONS]
        ]
        return "; ".join([summary, *reasons])


@dataclass(frozen=True)
class CollectionPlan:
    """The planned calls and costs of a collection.

    Args:
        estimates: Calls, dollars and seconds of each expert.
        spending: Dollars of earlier runs in the same folder.
        coverage: The queries that the judge can score.

    Example:
        >>> plan = CollectionPlan([], Spending(2.0), JudgeCoverage("exact", 4, 4, []))
        >>> plan.spending.paid
        2.0
    """

    estimates: list[CollectionEstimate]
    spending: Spending
    coverage: JudgeCoverage


class CollectionInterrupted(KeyboardInterrupt):
    """A collection that was stopped by Ctrl-C and can be resumed.

    Args:
        stored: Number of answers that are stored and will not be paid for again.
        total: Number of cells of the job.
        spending: Dollars spent so far.

    Example:
        >>> print(CollectionInterrupted(425, 900, Spending(2.0)))
        stopped: 425 of 900 kept, $2.00 paid; the same command resumes it
    """

    def __init__(self, stored: int, total: int, spending: Spending) -> None:
        self.stored = stored
        self.total = total
        self.spending = spending
        super().__init__(
            f"stopped: {stored:,} of {total:,} kept, {spending}; the same command resumes it"
        )
