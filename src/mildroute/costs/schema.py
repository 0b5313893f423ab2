"""The columns of a cost table: names, roles and canonical types."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "ANSWER",
    "CONVERSATION",
    "COUNTS",
    "DOLLARS",
    "GROUP",
    "ID",
    "INPUT",
    "LATENCY",
    "LOGPROB",
    "PLAIN",
    "PREFIXES",
    "PROPENSITY",
    "SCORE",
    "SPLIT",
    "TIME",
    "MatchedColumns",
    "TableSchema",
    "as_numbers",
    "as_text",
    "as_times",
    "check_unique",
    "decoded",
    "infer_schema",
    "is_canonical",
    "is_number",
    "is_text",
    "listed",
    "parse_number",
]


# One type per role: names become strings, numbers become float64, times become numbers or
# microseconds.


_MISSING_WORDS = ["", "nan", "na", "n/a", "#n/a", "null", "none"]
_TRUTHS = {"true": 1.0, "false": 0.0}
# Words for scores, which would make no sense as dollars or seconds.
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
    column: pa.ChunkedArray,
    name: str,
    *,
    parse: bool = False,
    first_row: int = 0,
    decimal: str = ".",
) -> pa.ChunkedArray:
    """Convert numbers and booleans to float64; a missing value stays null.

    Args:
        column: Values of any type.
        name: Name of the column, for the error message and for its role: scores may be words such
            as yes and no, or percentages, and dollars may have a currency sign.
        parse: Whether to parse texts, such as those of a CSV file.
        first_row: Number of the column's first row, for the error message.
        decimal: The decimal mark of texts, a point or a comma.

    Returns:
        The values as float64.
    """
    column = decoded(column)
    kind = column.type
    if is_text(kind) and (parse or _holds_words(column, name)):
        return _parsed(column, name, first_row, decimal)
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
            return _parsed(column, name, 0, ".")
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
    """Return whether this is a text type."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _well_formed(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Check that strings are UTF-8, which Parquet does not guarantee."""
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


def _parsed(column: pa.ChunkedArray, name: str, first_row: int, decimal: str) -> pa.ChunkedArray:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.large_string())))
    words = pc.if_else(
        pc.is_in(words, value_set=pa.array(_MISSING_WORDS, pa.large_string())),
        pa.scalar(None, pa.large_string()),
        words,
    )
    if decimal == ".":
        with contextlib.suppress(pa.ArrowInvalid):
            return words.cast(pa.float64())
    return _parsed_by_word(words, name, first_row, decimal)


def _parsed_by_word(
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
    """Return the number in a cell; the ValueError for other cells says what to do."""
    role = name.partition(":")[0]
    is_score, is_dollars = role == "score", role in ("cost", "dollars")
    words = _GRADES if is_score else _TRUTHS
    if word in words:
        return words[word]
    bare = _CURRENCY.sub("", word) if is_dollars else word
    if is_score and bare.endswith("%"):
        return parse_number(bare[:-1].rstrip(), "", decimal) / 100
    if is_score and _CURRENCY.search(bare):
        raise ValueError("dollars belong into 'cost:<expert>', not among the scores")
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


# Column names of a cost table: which ones belong to the format, and to which expert.


ID, INPUT, GROUP, SPLIT, TIME = "query_id", "input", "group", "split", "time"
# Turns of one conversation, which share their beginning.
CONVERSATION = "conversation"
SCORE, DOLLARS, LATENCY = "score:", "cost:", "latency:"
COUNTS = ("intokens:", "outtokens:", "inchars:", "outchars:")
# Answers are long and many, so they are read only on request.
ANSWER = "answer:"
# Mean log-probability of an answer's tokens, read together with answers.
LOGPROB = "logprob:"
# Probability that each expert was asked, in tables where not all were.
PROPENSITY = "propensity:"

PLAIN = (ID, INPUT, GROUP, SPLIT, TIME, CONVERSATION)
PREFIXES = (SCORE, DOLLARS, LATENCY, *COUNTS)


@dataclass(frozen=True)
class TableSchema:
    """The columns of a source that belong to the table, under their canonical names.

    Attributes:
        experts: Names of the experts, in the order of their score columns.
        sources: Canonical name of each column that is read, with its name in the source.
        ignored: Columns of the source that are not part of the format.
        scales: Worst and best value of columns, by prefix, if they are not 0 and 1.
    """

    experts: tuple[str, ...]
    sources: dict[str, str]
    ignored: tuple[str, ...]
    repairs: tuple[str, ...]
    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return columns with this prefix, in the order of the experts; empty if there are none."""
        return tuple(prefix + expert for expert in self.experts if prefix + expert in self.sources)


@dataclass(frozen=True)
class MatchedColumns:
    """The canonical names of the columns of a source.

    Attributes:
        names: Canonical name of each column that has another name; `None` if it is not read.
        scales: As in ``TableSchema``.
        notes: Sentences on what was guessed.
        is_long: Whether a row is a query and an expert.
    """

    names: Mapping[str, str | None] = field(default_factory=dict)
    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_long: bool = False

    def source_names(self, names: Sequence[str]) -> dict[str, str]:
        """Return the source column of each canonical name and of each column that has none."""
        check_unique(names)
        sources: dict[str, str] = {}
        for name in names:
            canonical = self.names.get(name, name)
            if canonical is None:
                continue
            if canonical in sources:
                raise TableError(
                    f"one column may be read as {canonical!r}, got {sources[canonical]!r} and"
                    f" {name!r}; rename or drop one of them."
                )
            sources[canonical] = name
        return sources


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return quoted names, comma-separated, with the number of those not shown."""
    every = [repr(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return (", ".join(every[:most]) or "none") + more


def is_canonical(names: Iterable[str]) -> bool:
    """Return whether all columns of a wide table have canonical names."""
    prefixes = (*PREFIXES, ANSWER, LOGPROB, PROPENSITY)
    return any(name.startswith(SCORE) for name in names) and all(
        name in {*PLAIN, "text"} or name.startswith(prefixes) for name in names
    )


def infer_schema(
    names: Sequence[str],
    experts: Sequence[str] | None = None,
    *,
    answers: bool = False,
    propensities: bool = False,
    matched: MatchedColumns | None = None,
) -> TableSchema:
    """Find the columns of the format among the names of a source.

    Args:
        names: Column names of the source.
        experts: The experts to keep, or `None` for all of them.
        answers: Whether to read the answers of these experts as well, all of which must exist, and
            their log-probabilities, which need not.
        propensities: Whether to read the probabilities of asking the experts if they exist.
        matched: Canonical names of columns that have other names.
    """
    source_of = (matched or MatchedColumns()).source_names(names)
    original_names, names = names, list(source_of)
    found = tuple(name.removeprefix(SCORE) for name in names if name.startswith(SCORE))
    _check_experts(found, original_names)
    _check_known(names, found)
    selected = found if experts is None else _chosen(experts, found)
    sources = {name: name for name in PLAIN if name in names}
    repairs: tuple[str, ...] = ()
    if INPUT not in sources and "text" in names:
        sources[INPUT] = "text"
    elif "text" in names:
        repairs = ("columns 'input' and 'text' are both there: 'input' is used",)
    sources = {name: sources[name] for name in PLAIN if name in sources}
    if answers:
        _check_answers(names, selected)
    sources |= {
        name: name
        for prefix in (
            *PREFIXES,
            *([PROPENSITY] if propensities else []),
            *([ANSWER, LOGPROB] if answers else []),
        )
        for name in (prefix + expert for expert in selected)
        if name in names
    }
    sources = {name: source_of[source] for name, source in sources.items()}
    used = set(sources.values())
    ignored = tuple(name for name in original_names if name not in used)
    return TableSchema(
        selected, sources, ignored, repairs, {} if matched is None else matched.scales
    )


def check_unique(names: Sequence[str]) -> None:
    """Raise an error if a column occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TableError(
                f"column names must be unique, got {name!r} twice; rename or drop one of them."
            )
        seen.add(name)


def _check_experts(found: tuple[str, ...], names: Sequence[str]) -> None:
    if len(found) < 2:
        got = f"only {found[0]!r}" if found else "none"
        raise TableError(
            f"a table needs score columns of at least two experts, got {got} among the columns"
            f" {listed(names)}; name them 'score:<expert>', or say which they are (scores, --score"
            " COLUMN=EXPERT)."
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
    """Check that each prefix covers all experts or no expert, and counts only scored experts."""
    owners = {
        prefix: [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        for prefix in PREFIXES[1:]
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
    selected = tuple(experts)
    unknown = [name for name in selected if name not in found]
    if unknown:
        raise TableError(
            f"no expert is called {unknown[0]!r}; the table has {', '.join(map(repr, found))}."
        )
    if len(selected) < 2 or len(set(selected)) < len(selected):
        raise TableError(
            f"at least two different experts must be kept, got {list(selected)!r}; the table has"
            f" {', '.join(map(repr, found))}."
        )
    return selected
