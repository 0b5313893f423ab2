"""JSON lines, parsed line by line so that an error message can name the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, TextIO

import pyarrow as pa

from mildroute._files import one_line
from mildroute.costs.in_memory import to_arrow
from mildroute.exceptions import TableError

__all__ = ["json_tables"]


def json_tables(stream: TextIO, shown: str, rows: int) -> Iterator[pa.Table]:
    """Read objects, one per line or all in one array, as tables of at most ``rows`` rows.

    Returns:
        Tables; a key that a line lacks is a missing value.
    """
    records = _json_objects(stream, shown)
    names: list[str] = []
    while chunk := list(islice(records, rows)):
        for record in chunk:
            names += (
                [name for name in record if name not in names] if record.keys() - set(names) else []
            )
        yield to_arrow({name: [record.get(name) for record in chunk] for name in names})


def _json_objects(stream: TextIO, shown: str) -> Iterator[dict[str, Any]]:
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
