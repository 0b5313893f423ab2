"""JSON in a text: between fences, surrounded by prose, or with typical mistakes of models.

The parser is written by hand because json-repair 0.64 reads 4 of the 107 cases in
tests/judges/cases differently: it completes objects that are truncated or contain bare words, and
misses an object without braces or after a list.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any

from mildroute.text import strip_spaces

# The result if there is no value; None would be the value null.
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
_STRAIGHT_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d", '"'))


def find_json(text: str) -> list[Any]:
    """Return the parsed string if it is JSON as a whole, or else its outermost objects and lists.

    Comments, trailing commas, typographic quotes, Python literals and missing outer braces are
    tolerated; truncated values are not.
    """
    text = strip_spaces(text)
    value = _parse_json(_strip_fence(text[:_MAX_TEXT]))
    if value is not MISSING:
        return [value]
    values = _scan_values(text[-_MAX_TEXT:])
    if not values and "{" not in text:
        value = _parse_json("{" + text[:_MAX_TEXT].rstrip(",") + "}")
        values = [] if value is MISSING else [value]
    return values


def value_at(value: Any, path: str) -> Any:
    """Return the value at a dotted path, or :data:`MISSING`.

    Args:
        value: A parsed JSON value.
        path: Keys and indices separated by dots; an empty path means the value itself. A key that
            equals the whole path takes precedence. A key that differs only in case matches if no
            key is equal.
    """
    if not path:
        return value
    member = _member(value, path)
    if member is not MISSING:
        return member
    for key in path.split("."):
        value = _member(value, key)
    return value


def equal_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; 1 equals 1.0 but not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal_json(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _member(value: Any, key: str) -> Any:
    """Return the member of an object or list, or :data:`MISSING`."""
    if isinstance(value, (list, tuple)):
        is_index = re.fullmatch(r"-?\d{1,6}", key) and -len(value) <= int(key) < len(value)
        return value[int(key)] if is_index else MISSING
    if not isinstance(value, dict):
        return MISSING
    if key in value:
        return value[key]
    names = [name for name in value if isinstance(name, str) and name.casefold() == key.casefold()]
    return value[names[0]] if len(names) == 1 else MISSING


def _strip_fence(text: str) -> str:
    """Return the content of a text that is a single fenced block, with or without its end."""
    first, _, rest = text.partition("\n")
    if not _FENCE_LINE.fullmatch(first):
        return text
    content, _, last = rest.rstrip().rpartition("\n")
    return content if last.strip() in ("```", "~~~") else rest


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return MISSING


def _scan_values(text: str) -> list[Any]:
    """Return every object or list in a text.

    After many failures, only the last opening brackets are tried.
    """
    values = []
    position = 0
    failures = 0
    budget = _MAX_SCANNED
    starts = [match.start() for match in _START.finditer(text)]
    for index, start in enumerate(starts):
        is_skipped = failures >= _MAX_FAILURES and index < len(starts) - _MAX_FAILURES
        if start < position or is_skipped:
            continue
        value, end = _decode_value(text, start, start + max(budget, 0))
        budget -= end - start
        if value is MISSING:
            failures += 1
            if end - start == _TOO_DEEP:
                position = end
        else:
            values.append(value)
            position = end
    return values


def _decode_value(text: str, start: int, stop: int) -> tuple[Any, int]:
    """Return the value at a bracket, or :data:`MISSING`, and the index at which parsing ended."""
    stop = min(len(text), stop)
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError:
        # In a run of a thousand brackets, the next ones would fail just as slowly.
        return MISSING, start + _TOO_DEEP
    except ValueError:
        end = _closing_bracket(text, start, stop)
    return (MISSING, stop) if end is None else (_parse_repaired(text[start:end]), end)


def _closing_bracket(text: str, start: int, stop: int) -> int | None:
    """Return the index after the bracket that closes the one at ``start``.

    Brackets inside quotes do not count.
    """
    depth = 0
    quote = ""
    previous = ""
    is_escaped = False
    for index in range(start, stop):
        character = text[index]
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character == '"' or (character == "'" and previous in "{[,:"):
            quote = character
        else:
            depth += (character in "{[") - (character in "}]")
            if depth == 0:
                return index + 1
        previous = previous if character.isspace() else character
    return None


def _parse_repaired(text: str) -> Any:
    """Parse after removing comments and trailing commas and straightening quotes."""
    if '"' not in text:
        text = text.translate(_STRAIGHT_QUOTES)
    text = _SLIP.sub(lambda match: match[1] or "", text)
    value = _parse_json(text)
    if value is not MISSING or len(text) > _MAX_LITERAL or _max_depth(text) > _MAX_DEPTH:
        return value
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of invalid escapes.
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return MISSING
    return value if isinstance(value, (dict, list)) else MISSING


def _max_depth(text: str) -> int:
    """Return the maximum nesting of brackets or signs, which could crash Python's parser."""
    depth = 0
    max_depth = 0
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        max_depth = max(max_depth, depth)
    return max(max_depth, max((len(signs) for signs in re.findall(r"[-+~]+", text)), default=0))
