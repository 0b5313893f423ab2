"""Interface of an expert: queries, answers, cost estimates, the clock that tests replace.

It also parses completions.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from mildroute.costs.prices import CHARACTERS_PER_TOKEN, Price

__all__ = [
    "RESERVE_RETRY",
    "Answer",
    "Clock",
    "Completion",
    "CostEstimate",
    "Expert",
    "HTTPResult",
    "Query",
    "ReserveRetry",
    "TransportFailure",
    "answer_logprob",
    "answer_text",
    "parse_completion",
]


@dataclass(frozen=True)
class Query:
    """One input for experts.

    Args:
        query_id: Its id in the table.
        input: The text that experts get.
        reference: What a judge compares the answer with, or none.
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
        text: The answer, or a label written out; none after an error.
        tokens_in: Input tokens, or none if they were not counted.
        tokens_out: Output tokens, or none.
        dollars: Cost of the call; failed calls may cost money as well.
        latency: Seconds from the request to the end of the answer, for the last attempt.
        error: Why there is no answer, in words without secrets; empty if there is one.
        attempts: Calls that were made for it.
        unconfirmed_cost: Upper bound on the additional cost of attempts without an answer, such as
            those that timed out; a budget counts it, a cost table does not.
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
    """Estimated cost of one query, before the call.

    Args:
        tokens_in: Tokens of the complete prompt.
        dollars: Dollars of one call.
        at_most: Dollars of all attempts that may be charged.

    Example:
        >>> CostEstimate(12.0, 0.001, 0.005).at_most
        0.005
    """

    tokens_in: float
    dollars: float
    at_most: float


# Sets money aside for another attempt at a query, after one that may have been charged; false if
# there is not enough, and then the attempt must not be made.
ReserveRetry: TypeAlias = Callable[[Query, float], Awaitable[bool]]
# That of the budget under which an expert is called, or none.
RESERVE_RETRY: ContextVar[ReserveRetry | None] = ContextVar("reserve_retry", default=None)


@runtime_checkable
class Expert(Protocol):
    """Anything that answers queries.

    Subclass it: everything but ``name``, ``version`` and ``answer`` has a default.

    Attributes:
        name: Its name in tables; unique in a pool.
        version: Changes with everything that changes answers or their price (model, prompt
            template, sampling, price), and with nothing else.
        price: Dollars per million tokens, or none for experts that are free or paid per answer.
        batch_size: Number of queries in one call of ``answer``.
        concurrency: Batches that it can process at the same time.

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
        """Return an upper bound, in dollars, on answering a query, including all attempts.

        A budget reserves it before the call, so an expert that costs money must override it.
        """
        return 0.0

    def max_attempt_cost(self, query: Query) -> float:
        """Return an upper bound, in dollars, on one attempt at a query; by default on all attempts.

        An expert that overrides it awaits ``RESERVE_RETRY`` before each further attempt.
        """
        return self.max_cost(query)

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
        sleep: Waits for the given number of seconds.
        random: A number from 0 to 1, uniformly distributed.
        time: Seconds since 1970, for dates that servers send.
    """

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    time: Callable[[], float] = time.time


# What came of one attempt, over HTTP or through an SDK.


@dataclass(frozen=True)
class HTTPResult:
    """What came back over the wire.

    Args:
        retry_after: The header, if there was one.
    """

    status: int
    body: bytes
    cut: bool = False
    retry_after: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class TransportFailure:
    """A response that did not arrive, or arrived only in part.

    Args:
        sent: Whether the server may have worked on the request, and may charge for it.
    """

    reason: str
    sent: bool
    final: bool = False


# What an OpenAI-compatible server said, read without trusting any part of it. The gateway reads
# answers by it, too, and has no HTTP library of experts.


_MOST_TOKENS = 10**9
_TEXT_PARTS = ("text", "output_text")
_FINISHES = ("stop", "length", "tool_calls", "function_call", "content_filter", "error", "abort")


@dataclass(frozen=True)
class Completion:
    """The text of an answer and its tokens, or why there is no text.

    An answer truncated at ``max_tokens`` is an answer: a judge sees what a user would see.

    Args:
        text: The text; none if there is a problem.
        tokens_in: Input tokens as the server counted them; none if it reported no plausible number.
        logprob: Mean log-probability of the answer's tokens, or none if it is not reported.
    """

    text: str | None
    problem: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    logprob: float | None = None


def parse_completion(document: Any) -> Completion:
    """Return the answer in a parsed body of /chat/completions or /completions.

    Args:
        document: Parsed JSON, of any shape.

    Returns:
        The text of the first choice, or the problem; never text that did not come from the model.
    """
    if not isinstance(document, dict):
        return Completion(None, f"the body is a JSON {_name(document)} and no object")
    usage = document.get("usage")
    tokens = (_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return Completion(None, "the body holds no choices", *tokens)
    text, problem = _said(choices[0])
    logprob = _mean_logprob(choices[0])
    return Completion(None if text is None else _clean(text), problem, *tokens, logprob)


def _mean_logprob(choice: dict[str, Any]) -> float | None:
    told = choice.get("logprobs")
    tokens = told.get("content") if isinstance(told, dict) else None
    if not isinstance(tokens, list) or not tokens:
        return None
    values = [token.get("logprob") for token in tokens if isinstance(token, dict)]
    # Some servers round a certain token to a little more than 0.
    known = [value for value in values if isinstance(value, (int, float)) and -1e9 <= value <= 1e-3]
    return min(math.fsum(known) / len(known), 0.0) if len(known) == len(tokens) else None


def answer_text(body: bytes | bytearray) -> str:
    """The text of a body of /chat/completions or /completions, or its tool calls as JSON.

    Empty if it holds neither.
    """
    document = _parse_body(body)
    text = parse_completion(document).text
    if text or not isinstance(document, dict):
        return text or ""
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    said = [_function(call) for call in calls] if isinstance(calls, list) else []
    return json.dumps(said) if said else ""


def answer_logprob(body: bytes | bytearray) -> float | None:
    """Mean log-probability of the tokens of an answer, or none if the body does not report it."""
    return parse_completion(_parse_body(body)).logprob


def _parse_body(body: bytes | bytearray) -> Any:
    try:
        return _joined_events(body) if _is_stream(body) else json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_stream(body: bytes | bytearray) -> bool:
    return body.lstrip().startswith((b"data:", b"event:", b":"))


def _joined_events(body: bytes | bytearray) -> dict[str, Any]:
    """The first choice of a stream of events, as if it had been sent whole."""
    text: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    logprobs: list[Any] = []
    for line in body.split(b"\n"):
        data = line.removeprefix(b"data:").strip()
        if data == line or not data.startswith(b"{"):
            continue
        choices = json.loads(data).get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, dict) or first.get("index", 0) != 0:
            continue
        told = first.get("logprobs")
        logprobs += (told.get("content") if isinstance(told, dict) else None) or ()
        delta = first.get("delta")
        said = delta.get("content") if isinstance(delta, dict) else first.get("text")
        text.append(said if isinstance(said, str) else "")
        parts = delta.get("tool_calls") if isinstance(delta, dict) else None
        for part in parts if isinstance(parts, list) else ():
            _join_call(calls, part)
    message: dict[str, Any] = {"content": "".join(text) or None}
    if calls:
        message["tool_calls"] = [{"function": function} for function in calls.values()]
    return {"choices": [{"message": message, "logprobs": {"content": logprobs}}]}


def _join_call(calls: dict[int, dict[str, str]], part: Any) -> None:
    index = part.get("index", 0) if isinstance(part, dict) else None
    given = part.get("function") if isinstance(part, dict) else None
    if not isinstance(index, int) or not isinstance(given, dict):
        return
    function = calls.setdefault(index, {"name": "", "arguments": ""})
    for name in function:
        if isinstance(given.get(name), str):
            function[name] += given[name]


def _function(call: Any) -> Any:
    """Name and arguments of a tool call, without the id, which is new each time."""
    return call.get("function") if isinstance(call, dict) else None


def _said(choice: dict[str, Any]) -> tuple[str | None, str]:
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else choice.get("text")
    if content is None and isinstance(message, dict) and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    if isinstance(content, list):
        content = _joined(content)
    if isinstance(content, str) and (content or choice.get("finish_reason") != "content_filter"):
        return content, ""
    if isinstance(content, str) or content is None:
        return None, f"the answer has no text (finish_reason {_finish(choice)})"
    return None, f"the answer's text is of type {_name(content)}"


def _finish(choice: dict[str, Any]) -> str:
    """The reason, if it is a known one: any other text may repeat the key."""
    reason = choice.get("finish_reason")
    return repr(reason) if reason is None or reason in _FINISHES else "unknown"


def _joined(parts: list[Any]) -> str | list[Any]:
    """The texts of an answer in parts.

    Parts that are not text, such as thoughts, are no part of the answer.
    """
    if not all(isinstance(part, dict) for part in parts):
        return parts
    texts = [part.get("text") for part in parts if part.get("type") in _TEXT_PARTS]
    return "".join(texts) if texts and all(isinstance(text, str) for text in texts) else parts


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
        else None
    )


def _clean(text: str) -> str:
    """Half of a surrogate pair is no character and could not be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _name(value: Any) -> str:
    return type(value).__name__
