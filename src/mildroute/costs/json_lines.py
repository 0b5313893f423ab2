"""JSON lines, parsed line by line so that error messages can name the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

import pyarrow as pa

from mildroute._files import one_line
from mildroute.costs.in_memory import to_arrow
from mildroute.exceptions import TableError

__all__ = ["json_objects", "read_json"]


def read_json(stream: TextIO, shown: str) -> pa.Table:
    """Read objects, one per line or all in one array; an absent key is a missing value.

    Args:
        stream: The text of the file.
        shown: The file's name in messages.
    """
    records = list(json_objects(stream, shown))
    names = dict.fromkeys(name for record in records for name in record)
    return to_arrow({name: [record.get(name) for record in records] for name in names})


def json_objects(stream: TextIO, shown: str) -> Iterator[dict[str, Any]]:
    """Yield objects, one per line or all in one array."""
    numbered = (
        (number, line) for number, line in enumerate(_lines(stream, shown), start=1) if line.strip()
    )
    first = next(numbered, None)
    if first is None:
        return
    if first[1].lstrip().startswith("["):
        rest = "".join(line for _, line in numbered)
        yield from (
            _as_object(item, shown, f"item {number}")
            for number, item in enumerate(_parse(first[1] + rest, shown, "the array"))
        )
        return
    yield _as_object(_parse(first[1], shown, f"line {first[0]}"), shown, f"line {first[0]}")
    for number, line in numbered:
        yield _as_object(_parse(line, shown, f"line {number}"), shown, f"line {number}")


def _lines(stream: TextIO, shown: str) -> Iterator[str]:
    try:
        yield from stream
    except UnicodeDecodeError as error:
        raise TableError(
            f"{shown!r} must be UTF-8 text: {one_line(error)}; save it as UTF-8."
        ) from error


def _parse(text: str, shown: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise TableError(
            f"{shown!r}, {where}: not valid JSON ({one_line(error)}); correct or remove it."
        ) from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key occurs twice")
    return record


def _as_object(item: Any, shown: str, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise TableError(
            f"{shown!r}, {where}: each row must be a JSON object, got {type(item).__name__}; write"
            " {...} per row."
        )
    return item
