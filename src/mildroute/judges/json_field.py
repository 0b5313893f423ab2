"""A field of a JSON answer, which another judge compares with the reference."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.experts.protocol import Query
from mildroute.judges.exact import ExactJudge
from mildroute.judges.json_text import MISSING, json_values, same_json, value_at
from mildroute.judges.plain import without_thinking
from mildroute.judges.protocol import NO_REFERENCE, Judge, Verdict, reference_of
from mildroute.judges.versions import version_of

__all__ = ["JsonFieldJudge", "read_field"]

_READING = 1


def read_field(text: str, path: str) -> Any:
    """The value at a path in the last JSON of an answer that has it, or :data:`~mildroute.judges.json_text.MISSING`.

    Example:
        >>> read_field('Here it is: {"answer": {"city": "Paris"}}', "answer.city")
        'Paris'
    """
    found = [value_at(value, path) for value in json_values(without_thinking(text))]
    return next((value for value in reversed(found) if value is not MISSING), MISSING)


@dataclass(frozen=True)
class JsonFieldJudge:
    """Right if another judge finds the field of a JSON answer right; objects and lists must equal those of the reference.

    Args:
        path: Keys and indices with dots between, such as ``result.0.city``; ``query.fields["path"]`` comes first.
        compare: The judge that is given the field as a text; exact match by default.
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> query = Query("q1", "The capital of France?", reference="Paris")
        >>> asyncio.run(JsonFieldJudge("city").judge(query, 'Sure! {"city": "paris"}')).score
        1.0
    """

    path: str | None = None
    compare: Judge = field(default_factory=ExactJudge)
    name: str = "json"

    def __post_init__(self) -> None:
        """Check that there is a judge."""
        if not isinstance(self.compare, Judge):
            raise ArgumentError(f"compare must be a judge, got {self.compare!r}; use judge_by_name('json', compare='numeric') for a name.")

    @property
    def version(self) -> str:
        """Changes with all that changes verdicts."""
        return version_of(self, _READING)

    async def judge(self, query: Query, text: str) -> Verdict:
        """Compare the field with the reference."""
        if lack := self.lacks(query):
            return Verdict(None, lack)
        path, reference = str(query.fields.get("path", self.path)), reference_of(query)
        value = read_field(text, path)
        if value is MISSING:
            return Verdict(0.0, f"no JSON with a field {path[:40]!r} could be read")
        if isinstance(value, (dict, list, tuple)):
            return Verdict(float(_equals(value, reference)), "read an object or a list")
        return await self.compare.judge(query, value if isinstance(value, str) else json.dumps(value, default=str))

    def lacks(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        if not isinstance(query.fields.get("path", self.path), str):
            return "there is no path to a field; set it, or give the query a field 'path'"
        return "" if reference_of(query) else NO_REFERENCE


def _equals(value: Any, reference: str) -> bool:
    try:
        return same_json(value, json.loads(reference))
    except (ValueError, RecursionError):
        return False
