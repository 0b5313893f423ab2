"""The interface of experts: queries, answers and cost estimates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from mildroute.costs.prices import CHARACTERS_PER_TOKEN, Price

__all__ = [
    "RESERVE_RETRY",
    "Answer",
    "CostEstimate",
    "Expert",
    "HTTPResult",
    "Query",
    "ReserveRetry",
    "TransportFailure",
]

# A function that reserves money for another attempt at a query after one that may have been
# charged. If it returns False, the attempt must not be made.
ReserveRetry: TypeAlias = Callable[["Query", float], Awaitable[bool]]
# The function of the budget under which an expert is called, or None without a budget.
RESERVE_RETRY: ContextVar[ReserveRetry | None] = ContextVar("reserve_retry", default=None)


@dataclass(frozen=True)
class Query:
    """One input for experts.

    Args:
        query_id: The query's id in the table.
        input: The text that experts receive.
        reference: The text that a judge compares answers with, or ``None``.
        fields: Additional columns of the row, for prompt templates and judges (choices, tests, a
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
        text: The answer, or a label as text; ``None`` after an error.
        tokens_in: Number of input tokens, or ``None`` if they were not counted.
        tokens_out: Number of output tokens, or ``None`` if they were not counted.
        dollars: Cost of the call; failed calls may cost money as well.
        latency: Seconds from the request to the end of the answer, for the last attempt.
        error: Reason why there is no answer, without secrets; empty if there is an answer.
        attempts: Number of calls made for the answer.
        unconfirmed_cost: Upper bound on the additional cost of attempts without an answer, such as
            those that timed out; a budget counts it, a cost table does not.
        logprob: Mean log-probability of the answer's tokens, or ``None`` if unknown.

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
    """An estimate of the cost of one query, before the call.

    Args:
        tokens_in: Tokens of the complete prompt.
        dollars: Dollars of one call.
        at_most: Upper bound on the dollars of all attempts that may be charged.

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

    Subclass it and define ``name``, ``version`` and ``answer``; everything else has a default.

    Attributes:
        name: The expert's name in tables; unique in a pool.
        version: A text that changes if and only if something changes that affects answers or their
            price (model, prompt template, sampling, price).
        price: Dollars per million tokens, or ``None`` for experts that are free or paid per answer.
        batch_size: Number of queries in one call of ``answer``.
        concurrency: Number of batches that the expert can process at the same time.

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
        """Return one answer for each query, in their order.

        Failures are answers with an error, not exceptions.
        """
        ...

    def max_cost(self, query: Query) -> float:  # noqa: ARG002 - free by default
        """Return an upper bound, in dollars, on answering a query, including all attempts.

        A budget reserves the amount before the call, so an expert that costs money must override
        this method.
        """
        return 0.0

    def max_attempt_cost(self, query: Query) -> float:
        """Return an upper bound, in dollars, on one attempt at a query.

        Defaults to the bound on all attempts. An expert that overrides this method awaits
        ``RESERVE_RETRY`` before each further attempt.
        """
        return self.max_cost(query)

    def estimate_cost(self, query: Query) -> CostEstimate:
        """Estimate the cost of a query, by default from its length and ``max_cost``."""
        bound = self.max_cost(query)
        return CostEstimate(len(query.input) / CHARACTERS_PER_TOKEN, bound, bound)

    async def close(self) -> None:
        """Release connections and processes."""
        await asyncio.sleep(0)  # Type checkers treat a method without a body as abstract.


@dataclass(frozen=True)
class HTTPResult:
    """The response to one attempt.

    Args:
        status: HTTP status.
        body: Body of the response.
        cut: Whether the body was truncated because it was too long.
        retry_after: Value of the header Retry-After, or ``None``.
        location: Value of the header Location, or ``None``.
    """

    status: int
    body: bytes
    cut: bool = False
    retry_after: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class TransportFailure:
    """An attempt whose response did not arrive, or arrived only in part.

    Args:
        reason: Reason for the failure, without secrets.
        sent: Whether the server may have processed the request and may charge for it.
        final: Whether another attempt would be pointless.
    """

    reason: str
    sent: bool
    final: bool = False
