"""Interface of a judge, and its verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from mildroute._fingerprint import version_of
from mildroute.experts.base import Expert, Query

__all__ = [
    "NO_REFERENCE",
    "Judge",
    "ReadingJudge",
    "Verdict",
    "VersionedJudge",
    "read_aside",
    "reference_of",
]

T = TypeVar("T")

# Reading takes milliseconds; the slowest of 828 degenerate answers of 100,000 characters took 0.3 s
# of computing (tests/judges/test_degenerate.py).
_READ_SECONDS = 20.0


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one answer.

    Args:
        score: From 0, useless, to 1, perfect; none if the judge could not decide, which is a
            failure of the judge and not a wrong answer.
        reason: Brief reason: what was read from the answer, or what went wrong.
        dollars: What judging cost.
        unconfirmed_cost: Upper bound on the additional cost of attempts without a reply.

    Example:
        >>> Verdict(1.0, "read C").dollars
        0.0
    """

    score: float | None
    reason: str = ""
    dollars: float = 0.0
    unconfirmed_cost: float = field(default=0.0, repr=False)


# What a query lacks for a judge that has nothing to compare with.
NO_REFERENCE = "the query has no reference"


def reference_of(query: Query) -> str:
    """Return the reference of a query unchanged; empty if it is missing or blank."""
    return query.reference if query.reference is not None and query.reference.strip() else ""


@runtime_checkable
class Judge(Protocol):
    """Anything that scores answers.

    Subclass it: everything but ``name``, ``version`` and ``judge`` has a default.

    Example:
        >>> class Generous(Judge):
        ...     name, version = "generous", "1"
        ...     async def judge(self, query, text):
        ...         return Verdict(1.0)
        >>> Generous().missing_fields(Query("q1", "2 + 2?"))
        ''
    """

    # read-only for its users, so that a frozen dataclass is a judge
    @property
    def name(self) -> str:
        """Its name in tables."""
        ...

    @property
    def version(self) -> str:
        """Changes with everything that changes verdicts, and with nothing else."""
        ...

    async def judge(self, query: Query, text: str) -> Verdict:
        """Score the text that an expert gave to a query."""
        ...

    def missing_fields(self, query: Query) -> str:  # noqa: ARG002 - nothing by default
        """Return what a query lacks for its answers to be scored; empty if nothing.

        A collection checks it before it pays for any answer.
        """
        return ""

    def max_cost(self, query: Query, text: str) -> float:  # noqa: ARG002 - free by default
        """Return an upper bound, in dollars, on judging an answer, including all attempts."""
        return 0.0

    def max_attempt_cost(self, query: Query, text: str) -> float:
        """Upper bound in dollars of one attempt at judging an answer; by default of all attempts.

        A budget reserves it before the call. See ``Expert.max_attempt_cost``.
        """
        return self.max_cost(query, text)

    def experts(self) -> Sequence[Expert]:
        """Experts that the judge calls; a collection closes them."""
        return ()


class VersionedJudge(Judge):
    """A judge that is a dataclass: its settings determine its version.

    Attributes:
        reading: Version of the code that reads answers; increased with every change that may change
            verdicts.
    """

    reading: ClassVar[int] = 1

    @property
    def version(self) -> str:
        """Changes with everything that changes verdicts."""
        return version_of(self, self.reading)

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        return "" if reference_of(query) else NO_REFERENCE


class ReadingJudge(VersionedJudge):
    """A judge that reads the answer itself, outside the event loop and with a time limit."""

    async def judge(self, query: Query, text: str) -> Verdict:
        """Score the text that an expert gave to a query."""
        return await read_aside(self.score, query, text)

    def score(self, query: Query, text: str) -> Verdict:
        """Score the text synchronously."""
        raise NotImplementedError


async def read_aside(read: Callable[..., T], *arguments: Any) -> T | Verdict:
    """Call a function in a thread, so that one long answer does not block the event loop.

    Returns:
        What it returns, or no score if it takes too long.
    """
    try:
        return await asyncio.wait_for(asyncio.to_thread(read, *arguments), _READ_SECONDS)
    except TimeoutError:
        return Verdict(None, f"the answer could not be read within {_READ_SECONDS:g} s")
