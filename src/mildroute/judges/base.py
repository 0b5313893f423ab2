"""The interface of judges and their verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, ParamSpec, Protocol, TypeVar, runtime_checkable

from mildroute._fingerprint import version_of
from mildroute.experts.base import Expert, Query

__all__ = [
    "NO_REFERENCE",
    "Judge",
    "ReadingJudge",
    "Verdict",
    "VersionedJudge",
    "read_in_thread",
    "reference_of",
]

P = ParamSpec("P")
T = TypeVar("T")

# The reason for no verdict if a judge has nothing to compare an answer with.
NO_REFERENCE = "the query has no reference"

# Reading takes milliseconds; the slowest of 828 degenerate answers of 100,000 characters took 0.3 s
# of CPU time (tests/judges/test_degenerate_answers.py).
_READ_SECONDS = 20.0


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one answer.

    Args:
        score: Score from 0 (useless) to 1 (perfect); ``None`` if the judge could not decide, which
            is a failure of the judge and not a wrong answer.
        reason: Brief reason, with the part of the answer that was read or the problem.
        dollars: Cost of the verdict.
        unconfirmed_cost: Upper bound on the additional cost of attempts without a reply.

    Example:
        >>> Verdict(1.0, "read C").dollars
        0.0
    """

    score: float | None
    reason: str = ""
    dollars: float = 0.0
    unconfirmed_cost: float = field(default=0.0, repr=False)


def reference_of(query: Query) -> str:
    """Return the reference of a query unchanged; empty if it is missing or blank."""
    return query.reference if query.reference is not None and query.reference.strip() else ""


@runtime_checkable
class Judge(Protocol):
    """Anything that scores answers.

    Subclass it and define ``name``, ``version`` and ``judge``; everything else has a default.

    Example:
        >>> class Generous(Judge):
        ...     name, version = "generous", "1"
        ...     async def judge(self, query, text):
        ...         return Verdict(1.0)
        >>> Generous().missing_fields(Query("q1", "2 + 2?"))
        ''
    """

    # These are properties so that a frozen dataclass can be a judge.
    @property
    def name(self) -> str:
        """The judge's name in tables."""
        ...

    @property
    def version(self) -> str:
        """A text that changes if and only if something changes that affects verdicts."""
        ...

    async def judge(self, query: Query, text: str) -> Verdict:
        """Score an expert's answer to a query."""
        ...

    def missing_fields(self, query: Query) -> str:  # noqa: ARG002 - nothing by default
        """Return the reason why a query's answers cannot be scored, or an empty text.

        A collection calls this method before it pays for any answer.
        """
        return ""

    def max_cost(self, query: Query, text: str) -> float:  # noqa: ARG002 - free by default
        """Return an upper bound, in dollars, on judging an answer, including all attempts."""
        return 0.0

    def max_attempt_cost(self, query: Query, text: str) -> float:
        """Return an upper bound, in dollars, on one attempt at judging an answer.

        Defaults to the bound on all attempts. A budget reserves the amount before the call; see
        ``Expert.max_attempt_cost``.
        """
        return self.max_cost(query, text)

    def experts(self) -> Sequence[Expert]:
        """Return the experts that the judge calls; a collection closes them."""
        return ()


class VersionedJudge(Judge):
    """A judge that is a dataclass and whose settings determine its version.

    Attributes:
        reading: Version of the code that reads answers; increased with every change that may change
            verdicts.
    """

    reading: ClassVar[int] = 1

    @property
    def version(self) -> str:
        """A text that changes if something changes that affects verdicts."""
        return version_of(self, self.reading)

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        return "" if reference_of(query) else NO_REFERENCE


class ReadingJudge(VersionedJudge):
    """A judge that reads the answer in a thread and makes no calls."""

    async def judge(self, query: Query, text: str) -> Verdict:
        """Score an expert's answer to a query, within a time limit."""
        return await read_in_thread(self.score, query, text)

    def score(self, query: Query, text: str) -> Verdict:
        """Score an answer synchronously."""
        raise NotImplementedError


async def read_in_thread(
    read: Callable[P, T], *arguments: P.args, **keywords: P.kwargs
) -> T | Verdict:
    """Call a function in a thread, so that one long answer does not block the event loop.

    Returns:
        The function's result, or a verdict without a score if the function takes too long.
    """
    call = asyncio.to_thread(read, *arguments, **keywords)
    try:
        return await asyncio.wait_for(call, _READ_SECONDS)
    except TimeoutError:
        return Verdict(None, f"the answer could not be read within {_READ_SECONDS:g} s")
