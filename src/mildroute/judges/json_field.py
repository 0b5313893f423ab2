"""A field of a JSON answer, found in the text around it and compared by another judge."""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges.base import (
    NO_REFERENCE,
    Judge,
    Verdict,
    VersionedJudge,
    read_aside,
    reference_of,
)
from mildroute.judges.exact_match import ExactMatchJudge
from mildroute.text import drop_thinking, strip_spaces

__all__ = ["MISSING", "JsonFieldJudge", "json_values", "read_field", "same_json", "value_at"]


# JSON in a text: between fences, with prose around it, or with the slips that models make. By hand
# because json-repair 0.64 reads 4 of the 107 cases in tests/judges/cases otherwise: it completes
# objects that are cut off or hold bare words, and misses one without braces or after a list.


# Stands for a value that is not there; none is a value.
MISSING: Any = object()

_MAX_TEXT = 200_000
_MAX_FAILURES = 300
_MAX_SCANNED = 500_000
_MAX_LITERAL = 20_000
_MAX_DEPTH = 50
_TOO_DEEP = 500
_FENCE_LINE = re.compile(r"(?:```|~~~)[\w+-]*")
_START = re.compile("\\{(?=\\s*[\"'}/\u201c\u201d])|\\[(?=\\s*[\"'\\]{\\[/\\d\\-tfnTFN])")
_SLIP = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)
_CLEAN = str.maketrans(dict.fromkeys("\u201c\u201d", '"'))


def json_values(text: str) -> list[Any]:
    """Return the JSON value of a text that is JSON, otherwise its outermost objects and lists.

    Comments, trailing commas, typographic quotes, Python literals and missing outer braces are
    tolerated; truncated values are not.
    """
    text = strip_spaces(text)
    whole = _parsed(_unfenced(text[:_MAX_TEXT]))
    if whole is not MISSING:
        return [whole]
    found = _scanned(text[-_MAX_TEXT:])
    if not found and "{" not in text:
        bare = _parsed("{" + text[:_MAX_TEXT].rstrip(",") + "}")
        found = [] if bare is MISSING else [bare]
    return found


def value_at(value: Any, path: str) -> Any:
    """The value at a dotted path, or :data:`MISSING`.

    Args:
        value: What was read from JSON.
        path: Keys and indices with dots between; a key that holds the whole path comes first. Empty
            for the value itself. Where no key fits, one that differs only in case does.
    """
    if not path:
        return value
    whole = _step(value, path)
    if whole is not MISSING:
        return whole
    for key in path.split("."):
        value = _step(value, key)
    return value


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are equal; true is not 1, but 1.0 is."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _step(value: Any, key: str) -> Any:
    if isinstance(value, (list, tuple)):
        inside = re.fullmatch(r"-?\d{1,6}", key) and -len(value) <= int(key) < len(value)
        return value[int(key)] if inside else MISSING
    if not isinstance(value, dict):
        return MISSING
    if key in value:
        return value[key]
    alike = [name for name in value if isinstance(name, str) and name.casefold() == key.casefold()]
    return value[alike[0]] if len(alike) == 1 else MISSING


def _unfenced(text: str) -> str:
    """What stands between the fences of a text that is one block, or that never closes it."""
    first, _, rest = text.partition("\n")
    if not _FENCE_LINE.fullmatch(first):
        return text
    inside, _, last = rest.rstrip().rpartition("\n")
    return inside if last.strip() in ("```", "~~~") else rest


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return MISSING


def _scanned(text: str) -> list[Any]:
    """Every object or list, by its first brace or bracket.

    After many that fail, only the last ones are tried.
    """
    found, at, failures, budget = [], 0, 0, _MAX_SCANNED
    starts = [match.start() for match in _START.finditer(text)]
    for index, start in enumerate(starts):
        if start < at or (failures >= _MAX_FAILURES and index < len(starts) - _MAX_FAILURES):
            continue
        value, end = _value_from(text, start, start + max(budget, 0))
        budget -= end - start
        if value is MISSING:
            failures += 1
            at = end if end - start == _TOO_DEEP else at
        else:
            found.append(value)
            at = end
    return found


def _value_from(text: str, start: int, stop: int) -> tuple[Any, int]:
    """The value that starts at a bracket, or none, and how far the text was read."""
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError:
        # a thousand brackets in a row: the next ones would fail as slowly
        return MISSING, start + _TOO_DEEP
    except ValueError:
        end = _closing(text, start, min(len(text), stop))
    return (MISSING, min(len(text), stop)) if end is None else (_repaired(text[start:end]), end)


def _closing(text: str, start: int, stop: int) -> int | None:
    """After the bracket that closes the one at ``start``; brackets inside quotes do not count."""
    depth, quote, previous, skip = 0, "", "", False
    for at in range(start, stop):
        character = text[at]
        if skip:
            skip = False
        elif quote:
            skip = character == "\\"
            quote = "" if character == quote else quote
        elif character == '"' or (character == "'" and previous in "{[,:"):
            quote = character
        else:
            depth += (character in "{[") - (character in "}]")
            if depth == 0:
                return at + 1
        previous = previous if character.isspace() else character
    return None


def _repaired(text: str) -> Any:
    clean = _SLIP.sub(lambda found: found[1] or "", text if '"' in text else text.translate(_CLEAN))
    value = _parsed(clean)
    if value is not MISSING or len(clean) > _MAX_LITERAL or _depth(clean) > _MAX_DEPTH:
        return value
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that are none
            value = ast.literal_eval(clean)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return MISSING
    return value if isinstance(value, (dict, list)) else MISSING


def _depth(text: str) -> int:
    """The deepest nesting that brackets, or a row of signs, can reach.

    Python's parser is not to be trusted beyond some depth.
    """
    depth = deepest = 0
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        deepest = max(deepest, depth)
    return max(deepest, max((len(row) for row in re.findall(r"[-+~]+", text)), default=0))


# A field of a JSON answer, which another judge compares with the reference.


def read_field(text: str, path: str) -> Any:
    """The value at a path in the last JSON of an answer that has it.

    If there is none, it is :data:`~mildroute.judges.json_field.MISSING`.

    Example:
        >>> read_field('Here it is: {"answer": {"city": "Paris"}}', "answer.city")
        'Paris'
    """
    found = [value_at(value, path) for value in json_values(drop_thinking(text))]
    return next((value for value in reversed(found) if value is not MISSING), MISSING)


@dataclass(frozen=True)
class JsonFieldJudge(VersionedJudge):
    """Right if another judge finds the field of a JSON answer right.

    Objects and lists must equal those of the reference.

    Args:
        path: Dot-separated keys and indices, such as ``result.0.city``; ``query.fields["path"]``
            takes precedence.
        compare: The judge that receives the field as text; exact match by default.
        name: Its name in tables.

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
        """Check that there is a judge."""
        if not isinstance(self.compare, Judge):
            raise ArgumentError(
                f"compare must be a judge, got {self.compare!r}; use get_judge('json',"
                " compare='numeric') for a name."
            )

    async def judge(self, query: Query, text: str) -> Verdict:
        """Compare the field with the reference."""
        if lack := self.missing_fields(query):
            return Verdict(None, lack)
        path = str(query.fields.get("path", self.path))
        value = await read_aside(read_field, text, path)
        if isinstance(value, Verdict):
            return value
        if value is MISSING:
            return Verdict(0.0, f"no JSON with a field {path[:40]!r} could be read")
        if isinstance(value, (dict, list, tuple)):
            equal = _equals(value, reference_of(query))
            return Verdict(float(equal), "read an object or a list")
        return await self.compare.judge(
            query, value if isinstance(value, str) else json.dumps(value, default=str)
        )

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        if not isinstance(query.fields.get("path", self.path), str):
            return "there is no path to a field; set it, or give the query a field 'path'"
        return "" if reference_of(query) else NO_REFERENCE


def _equals(value: Any, reference: str) -> bool:
    try:
        return same_json(value, json.loads(reference))
    except (ValueError, RecursionError):
        return False
