"""What a judge says, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mildroute.experts.base import Query

__all__ = ["NO_REFERENCE", "Judge", "Verdict", "lack_of", "reference_of"]


@dataclass(frozen=True)
class Verdict:
    """A judge's word on one answer.

    Args:
        score: From 0, useless, to 1, perfect; none if the judge could not tell, which is a failure of the judge and no wrong answer.
        reason: Why, in a few words: what was read out of the answer, or what went wrong.
        dollars: What judging cost.

    Example:
        >>> Verdict(1.0, "read C").dollars
        0.0
    """

    score: float | None
    reason: str = ""
    dollars: float = 0.0


NO_REFERENCE = "the query has no reference"
"""What a query lacks for a judge that has nothing to compare with."""


def reference_of(query: Query) -> str:
    """The reference of a query as it stands; empty if there is none or nothing in it.

    Example:
        >>> reference_of(Query("q1", "2 + 2?", " 4")), reference_of(Query("q2", "Hi", " "))
        (' 4', '')
    """
    return query.reference if query.reference is not None and query.reference.strip() else ""


@runtime_checkable
class Judge(Protocol):
    """Someone who scores answers.

    A judge may also have a method ``lacks(query) -> str``: what a query lacks so that no answer to it can be scored, or an empty text. It
    is asked before any expert is, so that nobody is paid for answers without a score.

    Attributes:
        name: Its name in tables.
        version: Changes with all that changes verdicts, and with nothing else.

    Example:
        >>> class Generous:
        ...     name, version = "generous", "1"
        ...     async def judge(self, query, text):
        ...         return Verdict(1.0)
        >>> isinstance(Generous(), Judge)
        True
    """

    # read-only for its users, so that a frozen dataclass is a judge
    @property
    def name(self) -> str:
        """Its name in tables."""
        ...

    @property
    def version(self) -> str:
        """Changes with all that changes verdicts, and with nothing else."""
        ...

    async def judge(self, query: Query, text: str) -> Verdict:
        """Score the text that an expert gave to a query."""
        ...


def lack_of(judge: Judge, query: Query) -> str:
    """What a query lacks so that the judge can score no answer to it; empty if nothing, or if the judge cannot say.

    Args:
        judge: Who scores.
        query: What was or will be asked.

    Returns:
        A few words.

    Example:
        >>> from mildroute.judges.exact_match import ExactMatchJudge
        >>> lack_of(ExactMatchJudge(), Query("q1", "2 + 2?")), lack_of(ExactMatchJudge(), Query("q1", "2 + 2?", "4"))
        ('the query has no reference', '')
    """
    lacks: Callable[[Query], str] | None = getattr(judge, "lacks", None)
    return "" if lacks is None else lacks(query)
