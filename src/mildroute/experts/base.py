"""What an expert is: the protocol, queries, answers, cost estimates, and the clock that tests replace."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from mildroute.costs.prices import Price

__all__ = ["Answer", "Clock", "CostEstimate", "Expert", "Query"]


# What a query is, what an answer is, and what an expert must be able to do.


@dataclass(frozen=True)
class Query:
    """One input that experts are asked.

    Args:
        query_id: Its name in the table.
        input: The text that is asked.
        reference: What a judge compares the answer with, or none.
        fields: Further columns of the row, for prompt templates and judges (choices, tests, a group).

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
    """What an expert said and what it took; an answer with an error has no text and is never judged.

    Args:
        text: The answer, or a label written out; none after an error.
        tokens_in: Tokens that went in, or none if nobody counted.
        tokens_out: Tokens that came out, or none.
        dollars: What the call cost; calls that fail may cost, too.
        latency: Seconds from asking to the end of the answer, of the last attempt.
        error: Why there is no answer, in words without secrets; empty if there is one.
        attempts: Calls that were made for it.
        doubtful_dollars: At most what attempts without an answer may have cost besides, such as those that timed out; a budget counts
            them, a table of prices does not.

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
    doubtful_dollars: float = 0.0


class CostEstimate(NamedTuple):
    """What asking a query takes, as far as it can be told beforehand; an expert may tell it by a method ``outlay(query)``.

    Args:
        tokens_in: Tokens of the whole prompt.
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
    """Someone who answers.

    Attributes:
        name: Its name in tables; unique in a pool.
        version: Changes with all that changes answers or their price (model, prompt template, sampling, price), and with nothing else.
        price: Dollars per million tokens, or none for experts that are paid otherwise or not at all.
        batch_size: Queries that it likes to be asked at once.
        concurrency: Batches that it can work on at the same time.

    Example:
        >>> class Parrot:
        ...     name, version, price, batch_size, concurrency = "parrot", "1", None, 1, 1
        ...     async def answer(self, batch):
        ...         return [Answer(query.input) for query in batch]
        ...     async def close(self):
        ...         pass
        >>> isinstance(Parrot(), Expert)
        True
    """

    name: str
    version: str
    price: Price | None
    batch_size: int
    concurrency: int

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """One answer for each query, in their order; failures are answers with an error, not exceptions."""
        ...

    async def close(self) -> None:
        """Let go of connections and processes."""
        ...


# Clock, sleep and chance, in one place so that tests of waiting need not wait.


@dataclass(frozen=True)
class Clock:
    """Where time and chance come from.

    Args:
        clock: Seconds that only grow.
        sleep: Waits for so many seconds.
        chance: A number from 0 to 1, evenly spread.
        now: Seconds since 1970, for dates that servers send.

    Example:
        >>> Clock(clock=lambda: 7.0).clock()
        7.0
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    now: Callable[[], float] = time.time
