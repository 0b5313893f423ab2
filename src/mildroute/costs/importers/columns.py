"""Columns of an evaluation log: a name, and the path of its value in a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mildroute.exceptions import TableError

__all__ = ["Column", "extract_row", "value_at"]

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A value that a record of a log contributes to a table.

    Attributes:
        name: Name of the value: a field of :class:`~mildroute.costs.importers.outcomes.Outcome`.
        path: Keys that lead to the value, separated by dots; alternatives by ``|``.
        required: Whether a record without the value is an error.
        default: Value of a record without it.
        convert: Function applied to the value; `None` leaves it as found.
    """

    name: str
    path: str
    required: bool = False
    default: Any = None
    convert: Callable[[Any], Any] | None = None


def value_at(record: Any, path: str) -> Any:
    """Return the value at a path, or `None` if there is none or an empty text.

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


def extract_row(record: Record, columns: Sequence[Column], shown: str) -> dict[str, Any]:
    """Return the named values of a record.

    Args:
        record: The record.
        columns: The columns to read.
        shown: Description of the record for error messages, such as ``'a.json', result 3``.
    """
    row = {}
    for column in columns:
        value = value_at(record, column.path)
        if value is None and column.required:
            raise TableError(
                f"{shown}: {column.path!r} is missing; check that the log is complete and of the"
                " format named."
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
