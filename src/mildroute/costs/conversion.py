"""Conversion of columns to one type per role: text, float64, or times."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mildroute.exceptions import TableError

__all__ = [
    "as_numbers",
    "as_text",
    "as_times",
    "decoded",
    "is_number",
    "is_text",
    "parse_number",
]

_MISSING_WORDS = ["", "nan", "na", "n/a", "#n/a", "null", "none"]
_TRUTHS = {"true": 1.0, "false": 0.0}
# Words that count as scores, but make no sense as dollars or seconds.
_GRADES = {
    **_TRUTHS,
    **dict.fromkeys(("y", "yes", "pass", "passed", "correct", "right"), 1.0),
    **dict.fromkeys(("n", "no", "fail", "failed", "incorrect", "wrong"), 0.0),
}
_CURRENCY = re.compile(r"^(?:us)?[$€£]\s*|^(?:usd|eur|gbp)\s+|\s*(?:[$€£]|\b(?:usd|eur|gbp))$")
_THOUSANDS = {
    ".": re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"),
    ",": re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?"),
}


def as_text(column: pa.ChunkedArray, name: str, *, whole_numbers: bool = True) -> pa.ChunkedArray:
    """Return texts unchanged; whole numbers and booleans become text if allowed.

    Returns:
        The values as strings, large or not.
    """
    column = decoded(column)
    kind = column.type
    if is_text(kind):
        return _check_utf8(
            column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column, name
        )
    if pa.types.is_null(kind):
        return column.cast(pa.large_string())
    if whole_numbers and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return column.cast(pa.large_string())
    if whole_numbers and pa.types.is_floating(kind) and _is_whole(column):
        return column.cast(pa.int64(), safe=False).cast(pa.large_string())
    allowed = "text or whole numbers" if whole_numbers else "text"
    raise TableError(
        f"column {name!r} must hold {allowed}, got type {kind}; convert it to text first."
    )


def as_numbers(
    column: pa.ChunkedArray,
    name: str,
    *,
    parse: bool = False,
    first_row: int = 0,
    decimal: str = ".",
) -> pa.ChunkedArray:
    """Convert numbers and booleans to float64; missing values remain null.

    Args:
        column: Values of any type.
        name: Name of the column, for the error message and for its role: scores may be words such
            as yes and no, or percentages, and dollars may have a currency sign.
        parse: Whether to parse texts, such as those of a CSV file.
        first_row: Index of the column's first row, for the error message.
        decimal: The decimal mark of texts, a point or a comma.

    Returns:
        The values as float64.
    """
    column = decoded(column)
    kind = column.type
    if is_text(kind) and (parse or _holds_words(column, name)):
        return _parse_texts(column, name, first_row, decimal)
    numeric = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )
    if kind == pa.float64():
        return column
    if numeric or pa.types.is_null(kind):
        return column.cast(pa.float64(), safe=False)
    got = f"type {kind}"
    if is_text(kind) and len(column.drop_null()):
        got = f"text such as {column.drop_null()[0].as_py()[:40]!r}"
    raise TableError(f"column {name!r} must hold numbers, got {got}; convert it to numbers first.")


def as_times(column: pa.ChunkedArray, name: str, *, parse: bool = False) -> pa.ChunkedArray:
    """Convert numbers to float64, and dates and ISO texts to UTC timestamps in microseconds.

    Args:
        column: Values of any type.
        name: Name of the column, for the error message.
        parse: Whether texts may also be numbers, such as those of a CSV file.

    Returns:
        The values as float64 or as timestamps.
    """
    column = decoded(column)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(
            pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None), safe=False
        ).cast(pa.timestamp("us"))
    if not is_text(kind):
        return as_numbers(column, name)
    if parse:
        with contextlib.suppress(TableError):
            return _parse_texts(column, name, 0, ".")
    try:
        return _parse_iso_times(column)
    except pa.ArrowInvalid:
        raise TableError(
            f"column {name!r} must hold numbers, dates or ISO times, got text that is none of"
            " these; convert it first."
        ) from None


def _parse_iso_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    zoned = bool(pc.any(pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d)$")).as_py())
    return text.cast(pa.timestamp("us", "UTC" if zoned else None)).cast(pa.timestamp("us"))


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the plain values of a column that is encoded or of an extension type."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        return pc.run_end_decode(column)
    return column


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a text type."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _check_utf8(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Check that strings are UTF-8, which Parquet does not guarantee."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise TableError(
            f"column {name!r} must hold UTF-8 text, got other bytes; save the file as UTF-8 again."
        ) from None
    return column


def _is_whole(column: pa.ChunkedArray) -> bool:
    values: Any = column.drop_null().to_numpy()
    return bool(np.all((values == np.floor(values)) & (np.abs(values) < 2**53)))


def _holds_words(column: pa.ChunkedArray, name: str) -> bool:
    """Return whether a column in memory starts with yes, no, $1 or 50% rather than numbers."""
    filled = column.drop_null()
    word = filled[0].as_py().strip().lower() if len(filled) else ""
    if is_number(word):
        return False
    try:
        parse_number(word, name, ".")
    except ValueError:
        return False
    return True


def _parse_texts(
    column: pa.ChunkedArray, name: str, first_row: int, decimal: str
) -> pa.ChunkedArray:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.large_string())))
    words = pc.if_else(
        pc.is_in(words, value_set=pa.array(_MISSING_WORDS, pa.large_string())),
        pa.scalar(None, pa.large_string()),
        words,
    )
    if decimal == ".":
        with contextlib.suppress(pa.ArrowInvalid):
            return words.cast(pa.float64())
    return _parse_each_word(words, name, first_row, decimal)


def _parse_each_word(
    words: pa.ChunkedArray, name: str, first_row: int, decimal: str
) -> pa.ChunkedArray:
    encoded = words.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    numbers = []
    for index, word in enumerate(encoded.dictionary.to_pylist()):
        try:
            numbers.append(parse_number(word, name, decimal))
        except ValueError as error:
            row = pc.index(encoded.indices, index).as_py()
            raise TableError(
                f"column {name!r}, row {first_row + row}: a number is needed, got {word[:40]!r};"
                f" {error}."
            ) from None
    return pa.chunked_array([pa.array(numbers, pa.float64()).take(encoded.indices)])


def parse_number(word: str, name: str, decimal: str) -> float:
    """Return the number in a cell; the ValueError for any other cell states the remedy."""
    role = name.partition(":")[0]
    is_score, is_dollars = role == "score", role in ("cost", "dollars")
    words = _GRADES if is_score else _TRUTHS
    if word in words:
        return words[word]
    bare = _CURRENCY.sub("", word) if is_dollars else word
    if is_score and bare.endswith("%"):
        return parse_number(bare[:-1].rstrip(), "", decimal) / 100
    if is_score and _CURRENCY.search(bare):
        raise ValueError("dollars belong in 'cost:<expert>', not among the scores")
    bare = bare.replace("\u00a0", "").replace("\u202f", "")
    other = "," if decimal == "." else "."
    if _THOUSANDS[decimal].fullmatch(bare) and (other == "," or "," in bare):
        bare = bare.replace(other, "")
    elif other == "." and _THOUSANDS[decimal].fullmatch(bare):
        raise ValueError("write it without a point, which may stand for thousands")
    if decimal == ",":
        bare = bare.replace(",", ".")
    if not is_number(bare):
        raise ValueError("correct the value or drop the row")
    return float(pa.scalar(bare).cast(pa.float64()).as_py())


def is_number(word: str) -> bool:
    """Return whether a word is a plain number."""
    try:
        pa.scalar(word).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
