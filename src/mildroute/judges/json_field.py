"""A judge that compares a field of a JSON answer with the reference."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._json_values import MISSING, equal_json, find_json, value_at
from mildroute.judges.base import (
    NO_REFERENCE,
    Judge,
    Verdict,
    VersionedJudge,
    read_in_thread,
    reference_of,
)
from mildroute.judges.exact_match import ExactMatchJudge
from mildroute.text import drop_thinking

__all__ = ["JsonFieldJudge", "read_field"]


def read_field(text: str, path: str) -> Any:
    """Return the value at a path in the last JSON document of an answer that has such a value.

    If no document has one, return :data:`~mildroute.judges._json_values.MISSING`.

    Example:
        >>> read_field('Here it is: {"answer": {"city": "Paris"}}', "answer.city")
        'Paris'
    """
    for document in reversed(find_json(drop_thinking(text))):
        value = value_at(document, path)
        if value is not MISSING:
            return value
    return MISSING


@dataclass(frozen=True)
class JsonFieldJudge(VersionedJudge):
    """A judge that lets another judge score a field of a JSON answer.

    Objects and lists must equal those of the reference.

    Args:
        path: Dot-separated keys and indices, such as ``result.0.city``; ``query.fields["path"]``
            takes precedence.
        compare: The judge that receives the field as text; defaults to an exact match.
        name: The judge's name in tables.

    Example:
        >>> import asyncio
        >>> query = Query("q1", "The capital of France?", reference="Paris")
        >>> asyncio.run(JsonFieldJudge("city").judge(query, 'Sure! {"city": "paris"}')).score
        1.0
    """

    path: str | None = None
    compare: Judge = field(default_factory=ExactMatchJudge)
    name: str = "json"

    def __post_init__(self) -> None:
        """Validate the judge that compares the field."""
        if not isinstance(self.compare, Judge):
            raise ArgumentError(
                f"compare must be a judge, got {self.compare!r}; use get_judge('json',"
                " compare='numeric') for a name."
            )

    async def judge(self, query: Query, text: str) -> Verdict:
        """Compare the field with the reference."""
        if reason := self.missing_fields(query):
            return Verdict(None, reason)
        path = str(query.fields.get("path", self.path))
        value = await read_in_thread(read_field, text, path)
        if isinstance(value, Verdict):
            return value
        if value is MISSING:
            return Verdict(0.0, f"no JSON with a field {path[:40]!r} could be read")
        if isinstance(value, (dict, list, tuple)):
            is_equal = _equals_reference(value, reference_of(query))
            return Verdict(float(is_equal), "read an object or a list")
        field_text = value if isinstance(value, str) else json.dumps(value, default=str)
        return await self.compare.judge(query, field_text)

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        if not isinstance(query.fields.get("path", self.path), str):
            return "there is no path to a field; set it, or give the query a field 'path'"
        return "" if reference_of(query) else NO_REFERENCE


def _equals_reference(value: Any, reference: str) -> bool:
    try:
        return equal_json(value, json.loads(reference))
    except (ValueError, RecursionError):
        return False
