"""One type a role: names become strings, numbers become float64, times become numbers or microseconds."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mildroute.errors import TableError

__all__ = ["as_numbers", "as_text", "as_times"]

_MISSING_WORDS = ["", "nan", "na", "n/a", "#n/a", "null", "none"]


def as_text(column: pa.ChunkedArray, name: str, *, whole_numbers: bool = True) -> pa.ChunkedArray:
    """Texts as they are; whole numbers and booleans as their digits, unless only text will do.

    Args:
        column: Values of any type.
        name: Of the column, for the message.
        whole_numbers: Whether numbers may stand for names.

    Returns:
        The same values as strings, large or not.

    Example:
        >>> as_text(pa.chunked_array([[7, 8]]), "query_id").to_pylist()
        ['7', '8']
    """
    column = _decoded(column)
    kind = column.type
    if _is_text(kind):
        return _well_formed(column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column, name)
    if pa.types.is_null(kind):
        return column.cast(pa.large_string())
    if whole_numbers and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return column.cast(pa.large_string())
    if whole_numbers and pa.types.is_floating(kind) and _is_whole(column):
        return column.cast(pa.int64(), safe=False).cast(pa.large_string())
    allowed = "text or whole numbers" if whole_numbers else "text"
    raise TableError(f"column {name!r} must hold {allowed}, got type {kind}; convert it to text first.")


def as_numbers(column: pa.ChunkedArray, name: str, *, parse: bool = False, first_row: int = 0) -> pa.ChunkedArray:
    """Numbers and booleans as float64; a missing value stays null.

    Args:
        column: Values of any type.
        name: Of the column, for the message.
        parse: Whether texts are parsed, as those of a CSV file are.
        first_row: Number of the column's first row, for the message.

    Returns:
        The same values as float64.

    Example:
        >>> as_numbers(pa.chunked_array([[True, None]]), "score:a").to_pylist()
        [1.0, None]
    """
    column = _decoded(column)
    kind = column.type
    if parse and _is_text(kind):
        return _parsed(column, name, first_row)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
    if kind == pa.float64():
        return column
    if numeric or pa.types.is_null(kind):
        return column.cast(pa.float64(), safe=False)
    got = f"type {kind}"
    if _is_text(kind) and len(column.drop_null()):
        got = f"text such as {column.drop_null()[0].as_py()[:40]!r}"
    raise TableError(f"column {name!r} must hold numbers, got {got}; convert it to numbers first.")


def as_times(column: pa.ChunkedArray, name: str, *, parse: bool = False) -> pa.ChunkedArray:
    """Numbers as float64, dates and ISO texts as UTC timestamps in microseconds.

    Args:
        column: Values of any type.
        name: Of the column, for the message.
        parse: Whether texts may also be numbers, as those of a CSV file are.

    Returns:
        The same values as float64 or as timestamps.

    Example:
        >>> as_times(pa.chunked_array([["2024-05-01"]]), "time").type
        TimestampType(timestamp[us])
    """
    column = _decoded(column)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None), safe=False).cast(pa.timestamp("us"))
    if not _is_text(kind):
        return as_numbers(column, name)
    if parse:
        with contextlib.suppress(TableError):
            return _parsed(column, name, 0)
    try:
        return _iso(column)
    except pa.ArrowInvalid:
        raise TableError(f"column {name!r} must hold numbers, dates or ISO times, got text that is neither; convert it first.") from None


def _iso(column: pa.ChunkedArray) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    zoned = bool(pc.any(pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d)$")).as_py())
    return text.cast(pa.timestamp("us", "UTC" if zoned else None)).cast(pa.timestamp("us"))


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        return pc.run_end_decode(column)
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _well_formed(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Parquet does not promise that its strings are UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise TableError(f"column {name!r} must hold UTF-8 text, got other bytes; write the file again from decoded text.") from None
    return column


def _is_whole(column: pa.ChunkedArray) -> bool:
    values: Any = column.drop_null().to_numpy()
    return bool(np.all((values == np.floor(values)) & (np.abs(values) < 2**53)))


def _parsed(column: pa.ChunkedArray, name: str, first_row: int) -> pa.ChunkedArray:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.large_string())))
    words = pc.if_else(pc.is_in(words, value_set=pa.array(_MISSING_WORDS, pa.large_string())), pa.scalar(None, pa.large_string()), words)
    words = pc.if_else(pc.equal(words, "true"), "1", pc.if_else(pc.equal(words, "false"), "0", words))
    try:
        return words.cast(pa.float64())
    except pa.ArrowInvalid:
        row, word = next((row, word) for row, word in enumerate(words.to_pylist()) if word is not None and not _is_number(word))
        raise TableError(
            f"column {name!r}, row {first_row + row}: a number is needed, got {word[:40]!r}; correct the value or drop the row."
        ) from None


def _is_number(word: str) -> bool:
    try:
        pa.scalar(word).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
