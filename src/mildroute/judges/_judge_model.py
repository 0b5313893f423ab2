"""Calls to a language model that judges answers, with untrusted texts between tags."""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.field_template import FieldTemplate


class ConcurrencyLimit:
    """A limit on concurrent calls to an expert, with a semaphore for each event loop."""

    def __init__(self) -> None:
        # A semaphore belongs to one event loop, and a judge may be used in several.
        self._semaphores: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Semaphore
        ] = weakref.WeakKeyDictionary()

    def semaphore(self, concurrency: int) -> asyncio.Semaphore:
        """Return the semaphore of the running event loop."""
        return self._semaphores.setdefault(
            asyncio.get_running_loop(), asyncio.Semaphore(max(1, concurrency))
        )


async def call_judge_model(
    expert: Expert, prompt: str, query_id: str, limit: ConcurrencyLimit
) -> Answer:
    """Call an expert with a prompt and return its answer.

    Args:
        expert: Expert to call.
        prompt: The complete prompt.
        query_id: Id of the query whose answer is judged; a hash of the prompt makes it unique.
        limit: Concurrency limit of this expert.

    Returns:
        The expert's answer, or an answer with an error unless the expert returned exactly one.
    """
    query = Query(f"{query_id}/{_digest(prompt)}", prompt)
    async with limit.semaphore(expert.concurrency):
        answers = await expert.answer([query])
    if len(answers) != 1:
        return Answer(
            None,
            error=f"{expert.name!r} returned {len(answers)} answers to one query",
            dollars=sum(answer.dollars for answer in answers),
        )
    return answers[0]


def max_cost_of_prompts(max_cost: Callable[[Query], float], prompts: Iterable[str]) -> float:
    """Return the sum of an expert's upper bounds on the cost of each prompt."""
    return float(sum(max_cost(Query("bound", prompt)) for prompt in prompts))


def fence(texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts between tags that they cannot contain, because the tags hold a hash of them."""
    digest = _digest("\x00".join(texts.values()))
    return {name: f"<{name}-{digest}>\n{text}\n</{name}-{digest}>" for name, text in texts.items()}


def validate_template(template: str, required: Sequence[str], allowed: Sequence[str]) -> None:
    """Raise an error if a template lacks a required field or contains one that is not allowed."""
    fields = FieldTemplate(template).fields
    if not set(required) <= set(fields) <= set(allowed):
        raise ArgumentError(
            f"template must have the fields {_placeholders(required)} and may have"
            f" {_placeholders(allowed)}, got {_placeholders(fields)}; write other braces twice."
        )


def _placeholders(fields: Sequence[str]) -> str:
    return ", ".join(f"{{{field}}}" for field in fields) or "none"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
