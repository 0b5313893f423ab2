"""The columns of a cost table: names, roles and canonical types."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "ANSWER",
    "COUNTS",
    "DOLLARS",
    "GROUP",
    "ID",
    "INPUT",
    "LATENCY",
    "LOGPROB",
    "SCORE",
    "SPLIT",
    "TIME",
    "TableSchema",
    "as_numbers",
    "as_text",
    "as_times",
    "infer_schema",
]


# One type a role: names become strings, numbers become float64, times become numbers or
# microseconds.


_MISSING_WORDS = ["", "nan", "na", "n/a", "#n/a", "null", "none"]


def as_text(column: pa.ChunkedArray, name: str, *, whole_numbers: bool = True) -> pa.ChunkedArray:
    """Texts as they are; whole numbers and booleans as their digits, unless only text will do.

    Returns:
        The same values as strings, large or not.
    """
    column = _decoded(column)
    kind = column.type
    if _is_text(kind):
        return _well_formed(
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
    column: pa.ChunkedArray, name: str, *, parse: bool = False, first_row: int = 0
) -> pa.ChunkedArray:
    """Numbers and booleans as float64; a missing value stays null.

    Args:
        column: Values of any type.
        name: Of the column, for the message.
        parse: Whether texts are parsed, as those of a CSV file are.
        first_row: Number of the column's first row, for the message.

    Returns:
        The same values as float64.
    """
    column = _decoded(column)
    kind = column.type
    if parse and _is_text(kind):
        return _parsed(column, name, first_row)
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
    """
    column = _decoded(column)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(
            pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None), safe=False
        ).cast(pa.timestamp("us"))
    if not _is_text(kind):
        return as_numbers(column, name)
    if parse:
        with contextlib.suppress(TableError):
            return _parsed(column, name, 0)
    try:
        return _iso(column)
    except pa.ArrowInvalid:
        raise TableError(
            f"column {name!r} must hold numbers, dates or ISO times, got text that is neither;"
            " convert it first."
        ) from None


def _iso(column: pa.ChunkedArray) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    zoned = bool(pc.any(pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d)$")).as_py())
    return text.cast(pa.timestamp("us", "UTC" if zoned else None)).cast(pa.timestamp("us"))


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        return pc.run_end_decode(column)
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _well_formed(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Parquet does not promise that its strings are UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise TableError(
            f"column {name!r} must hold UTF-8 text, got other bytes; write the file again from"
            " decoded text."
        ) from None
    return column


def _is_whole(column: pa.ChunkedArray) -> bool:
    values: Any = column.drop_null().to_numpy()
    return bool(np.all((values == np.floor(values)) & (np.abs(values) < 2**53)))


def _parsed(column: pa.ChunkedArray, name: str, first_row: int) -> pa.ChunkedArray:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.large_string())))
    words = pc.if_else(
        pc.is_in(words, value_set=pa.array(_MISSING_WORDS, pa.large_string())),
        pa.scalar(None, pa.large_string()),
        words,
    )
    words = pc.if_else(
        pc.equal(words, "true"), "1", pc.if_else(pc.equal(words, "false"), "0", words)
    )
    try:
        return words.cast(pa.float64())
    except pa.ArrowInvalid:
        row, word = next(
            (row, word)
            for row, word in enumerate(words.to_pylist())
            if word is not None and not _is_number(word)
        )
        raise TableError(
            f"column {name!r}, row {first_row + row}: a number is needed, got {word[:40]!r};"
            " correct the value or drop the row."
        ) from None


def _is_number(word: str) -> bool:
    try:
        pa.scalar(word).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


# The names of a cost table's columns: which ones belong to the format, and to which expert.


ID, INPUT, GROUP, SPLIT, TIME = "query_id", "input", "group", "split", "time"
SCORE, DOLLARS, LATENCY = "score:", "cost:", "latency:"
COUNTS = ("intokens:", "outtokens:", "inchars:", "outchars:")
# Texts, and many: they are read only where they are asked for.
ANSWER = "answer:"
# Mean log-probability of an answer's tokens, read together with answers.
LOGPROB = "logprob:"

_PLAIN = (ID, INPUT, GROUP, SPLIT, TIME)
_PREFIXES = (SCORE, DOLLARS, LATENCY, *COUNTS)


@dataclass(frozen=True)
class TableSchema:
    """Which columns of a source belong to the table, under their canonical names.

    Attributes:
        experts: Names of the experts, in the order of their score columns.
        sources: Canonical name of each column that is read, and its name in the source.
        ignored: Columns of the source that are not part of the format.
    """

    experts: tuple[str, ...]
    sources: dict[str, str]
    ignored: tuple[str, ...]
    repairs: tuple[str, ...]

    def names(self, prefix: str) -> tuple[str, ...]:
        """Columns with this prefix, in the order of the experts; empty where the table has none."""
        return tuple(prefix + expert for expert in self.experts if prefix + expert in self.sources)


def infer_schema(
    names: Sequence[str], experts: Sequence[str] | None = None, *, answers: bool = False
) -> TableSchema:
    """Find the columns of the format among the names of a source.

    Args:
        names: Column names of the source.
        experts: The experts to keep, or none for all of them.
        answers: Whether the answers of these experts are read, too, which must all be there, and
            their log-probabilities, which need not.
    """
    _check_unique(names)
    found = tuple(name.removeprefix(SCORE) for name in names if name.startswith(SCORE))
    _check_experts(found)
    _check_known(names, found)
    kept = found if experts is None else _chosen(experts, found)
    sources = {name: name for name in _PLAIN if name in names}
    repairs: tuple[str, ...] = ()
    if INPUT not in sources and "text" in names:
        sources[INPUT] = "text"
    elif "text" in names:
        repairs = ("columns 'input' and 'text' are both there: 'input' is used",)
    sources = {name: sources[name] for name in _PLAIN if name in sources}
    if answers:
        _check_answers(names, kept)
    sources |= {
        name: name
        for prefix in (*_PREFIXES, *([ANSWER, LOGPROB] if answers else []))
        for name in (prefix + expert for expert in kept)
        if name in names
    }
    used = set(sources.values())
    return TableSchema(kept, sources, tuple(name for name in names if name not in used), repairs)


def _check_unique(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TableError(
                f"column names must be unique, got {name!r} twice; rename or drop one of them."
            )
        seen.add(name)


def _check_experts(found: tuple[str, ...]) -> None:
    if len(found) < 2:
        got = f"only {found[0]!r}" if found else "none"
        raise TableError(
            f"a table needs score columns of at least two experts, got {got}; name them"
            " 'score:<expert>'."
        )
    for name in found:
        if (
            not name.strip()
            or name != name.strip()
            or any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in name)
        ):
            raise TableError(
                "expert names must be non-empty, without control characters, line breaks or spaces"
                f" at their ends, got {name!r}; rename column {SCORE + name!r}."
            )


def _check_known(names: Iterable[str], found: tuple[str, ...]) -> None:
    """Costs and latencies belong to all experts or to none; counts to experts that have a score."""
    owners = {
        prefix: [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        for prefix in _PREFIXES[1:]
    }
    for prefix, owned in owners.items():
        unknown = [expert for expert in owned if expert not in found]
        if unknown:
            raise TableError(
                f"column {prefix + unknown[0]!r} belongs to no expert with a score; add"
                f" 'score:{_plain(unknown[0])}' or drop the column."
            )
        without = [expert for expert in found if expert not in owned]
        if prefix in {DOLLARS, LATENCY} and owned and without:
            raise TableError(
                f"{prefix!r} columns must be there for all experts or for none, got none for"
                f" {without[0]!r}; add {prefix + without[0]!r} or drop the others."
            )


def _check_answers(names: Sequence[str], experts: tuple[str, ...]) -> None:
    without = [expert for expert in experts if ANSWER + expert not in names]
    if without:
        raise TableError(
            f"the answers of all experts are needed, got no column {ANSWER + without[0]!r}; collect"
            " with --answers, or keep experts whose answers are there."
        )


def _plain(name: str) -> str:
    return repr(name)[1:-1]


def _chosen(experts: Sequence[str], found: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(experts, str):
        raise ArgumentError(
            f"experts must be a list of names, got the text {experts!r}; put it in a list."
        )
    kept = tuple(experts)
    unknown = [name for name in kept if name not in found]
    if unknown:
        raise TableError(
            f"no expert is called {unknown[0]!r}; the table has {', '.join(map(repr, found))}."
        )
    if len(kept) < 2 or len(set(kept)) < len(kept):
        raise TableError(
            f"at least two different experts must be kept, got {list(kept)!r}; the table has"
            f" {', '.join(map(repr, found))}."
        )
    return kept
