"""A judge for tables whose rows need different judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mildroute.experts.base import Expert, Query
from mildroute.judges.base import Judge, Verdict, VersionedJudge

__all__ = ["ColumnJudge"]


@dataclass(frozen=True)
class ColumnJudge(VersionedJudge):
    """A judge that uses the judge named in a column of each query.

    Args:
        judges: Judges by the names in the column.
        column: Name of the column.
        name: Name of this judge in tables.

    Example:
        >>> from mildroute.judges.registry import get_judge
        >>> mixed = get_judge("numeric,exact")
        >>> mixed.missing_fields(Query("q1", "2 + 2?", "4", {"judge": "numeric"}))
        ''
        >>> mixed.missing_fields(Query("q1", "2 + 2?", "4", {"judge": "vibes"}))
        "the column 'judge' must be one of numeric, exact, got 'vibes'"
    """

    judges: Mapping[str, Judge]
    column: str = "judge"
    name: str = "column"

    async def judge(self, query: Query, text: str) -> Verdict:
        """Score an expert's answer to a query."""
        judge = self._judge_of(query)
        if judge is None:
            return Verdict(None, self.missing_fields(query))
        return await judge.judge(query, text)

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        judge = self._judge_of(query)
        if judge is not None:
            return judge.missing_fields(query)
        value = query.fields.get(self.column)
        return (
            f"the column {self.column!r} must be one of {', '.join(self.judges)}, got"
            f" {'nothing' if value is None else repr(value)[:40]}"
        )

    def max_cost(self, query: Query, text: str) -> float:
        """Return an upper bound, in dollars, on judging an answer, including all attempts."""
        judge = self._judge_of(query)
        return 0.0 if judge is None else judge.max_cost(query, text)

    def max_attempt_cost(self, query: Query, text: str) -> float:
        """Return an upper bound, in dollars, on one attempt at judging an answer."""
        judge = self._judge_of(query)
        return 0.0 if judge is None else judge.max_attempt_cost(query, text)

    def experts(self) -> Sequence[Expert]:
        """Return the experts that the judges call."""
        return [expert for judge in self.judges.values() for expert in judge.experts()]

    def _judge_of(self, query: Query) -> Judge | None:
        return self.judges.get(str(query.fields.get(self.column)))
