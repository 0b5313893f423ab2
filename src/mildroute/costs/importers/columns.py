"""Columns of an evaluation log, each with a name and a path to its value in a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mildroute.exceptions import TableError

__all__ = ["Column", "extract_row", "value_at"]

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A value to read from each record of a log.

    Attributes:
        name: Name of the value: a field of :class:`~mildroute.costs.importers.outcomes.Outcome`.
        path: Keys that lead to the value, separated by dots; ``|`` separates alternative paths.
        required: Whether a record without the value is an error.
        default: Value to use if the record lacks it.
        convert: Function applied to the value; `None` keeps the value unchanged.
    """

    name: str
    path: str
    required: bool = False
    default: Any = None
    convert: Callable[[Any], Any] | None = None


def value_at(record: Any, path: str) -> Any:
    """Return the value at a path, or `None` if it is missing or empty text.

    Example:
        >>> value_at({"response": {"usage": [{"total": 3}]}}, "tokens | response.usage.0.total")
        3
    """
    for alternative in path.split("|"):
        value = record
        for key in alternative.strip().split("."):
            value = _child(value, key)
        if value is not None and value != "":
            return value
    return None


def extract_row(record: Record, columns: Sequence[Column], location: str) -> dict[str, Any]:
    """Return a record's values by column name.

    Args:
        record: The record.
        columns: The columns to read.
        location: Location of the record for error messages, such as ``'a.json', result 3``.
    """
    row = {}
    for column in columns:
        value = value_at(record, column.path)
        if value is None and column.required:
            raise TableError(
                f"{location}: {column.path!r} is missing; check that the log is complete and has"
                " this format."
            )
        if value is None:
            value = column.default
        elif column.convert is not None:
            value = column.convert(value)
        row[column.name] = value
    return row


def _child(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return None
