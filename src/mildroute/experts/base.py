"""Interface of an expert: queries, answers, cost estimates, and the clock that tests replace."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from mildroute.costs.prices import CHARACTERS_PER_TOKEN, Price

__all__ = ["Answer", "Clock", "CostEstimate", "Expert", "Query"]


@dataclass(frozen=True)
class Query:
    """One input for experts.

    Args:
        query_id: Its name in the table.
        input: The text that experts get.
        reference: What a judge compares the answer with, or none.
        fields: Further columns of the row, for prompt templates and judges (choices, tests, a
            group).

    Example:
        >>> Query("q1", "2 + 2?", reference="4").fields
        {}
    """

    query_id: str
    input: str
    reference: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """An expert's answer, with its tokens, cost and latency.

    An answer with an error has no text and is never judged.

    Args:
        text: The answer, or a label written out; none after an error.
        tokens_in: Tokens that went in, or none if they were not counted.
        tokens_out: Tokens that came out, or none.
        dollars: What the call cost; calls that fail may cost, too.
        latency: Seconds from the request to the end of the answer, of the last attempt.
        error: Why there is no answer, in words without secrets; empty if there is one.
        attempts: Calls that were made for it.
        unconfirmed_cost: Upper bound of what attempts without an answer may have cost in addition,
            such as those that timed out; a budget counts it, a cost table does not.
        logprob: Mean log-probability of the answer's tokens, or none if it is not known.

    Example:
        >>> Answer("4", dollars=0.001).error, Answer(None, error="timeout after 30 s").text
        ('', None)
    """

    text: str | None
    tokens_in: int | None = None
    tokens_out: int | None = None
    dollars: float = 0.0
    latency: float = 0.0
    error: str = ""
    attempts: int = 1
    unconfirmed_cost: float = 0.0
    logprob: float | None = None


class CostEstimate(NamedTuple):
    """Estimate of what one query costs, before the call.

    Args:
        tokens_in: Tokens of the complete prompt.
        dollars: Of one call.
        at_most: Dollars with all the attempts that may be charged.

    Example:
        >>> CostEstimate(12.0, 0.001, 0.005).at_most
        0.005
    """

    tokens_in: float
    dollars: float
    at_most: float


@runtime_checkable
class Expert(Protocol):
    """Anything that answers queries.

    Subclass it: everything but ``name``, ``version`` and ``answer`` has a default.

    Attributes:
        name: Its name in tables; unique in a pool.
        version: Changes with all that changes answers or their price (model, prompt template,
            sampling, price), and with nothing else.
        price: Dollars per million tokens, or none for experts that are free or paid per answer.
        batch_size: Number of queries in one call of ``answer``.
        concurrency: Batches that it can work on at the same time.

    Example:
        >>> class Parrot(Expert):
        ...     name, version = "parrot", "1"
        ...     async def answer(self, batch):
        ...         return [Answer(query.input) for query in batch]
        >>> Parrot().max_cost(Query("q1", "2 + 2?"))
        0.0
    """

    name: str
    version: str
    price: Price | None = None
    batch_size: int = 1
    concurrency: int = 1

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """One answer for each query, in their order.

        Failures are answers with an error, not exceptions.
        """
        ...

    def max_cost(self, query: Query) -> float:  # noqa: ARG002 - free by default
        """Upper bound in dollars of answering a query, all attempts included.

        A budget reserves it before the call, so an expert that costs money must override it.
        """
        return 0.0

    def estimate_cost(self, query: Query) -> CostEstimate:
        """Estimate what a query costs; from the characters of its input and ``max_cost``."""
        bound = self.max_cost(query)
        return CostEstimate(len(query.input) / CHARACTERS_PER_TOKEN, bound, bound)

    async def close(self) -> None:
        """Release connections and processes."""
        await asyncio.sleep(0)  # type checkers take a method without a body for abstract


# Clock, sleep and random numbers, in one place so that tests of waiting need not wait.


@dataclass(frozen=True)
class Clock:
    """Source of time and randomness.

    Args:
        monotonic: Seconds for durations.
        sleep: Waits for so many seconds.
        random: A number from 0 to 1, evenly spread.
        time: Seconds since 1970, for dates that servers send.
    """

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    time: Callable[[], float] = time.time
