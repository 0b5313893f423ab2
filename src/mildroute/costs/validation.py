"""The rules of a cost table: checks, the meaning of a missing score, and repairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute._format import pluralize
from mildroute.costs.prices import CHARACTERS_PER_TOKEN, PriceList
from mildroute.costs.schema import (
    ANSWER,
    CONVERSATION,
    COUNTS,
    DOLLARS,
    GROUP,
    ID,
    INPUT,
    LATENCY,
    LOGPROB,
    PROPENSITY,
    SCORE,
    SPLIT,
    TIME,
    TableSchema,
    as_numbers,
    as_text,
    as_times,
)
from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "COLLECTED",
    "Chunk",
    "Missing",
    "RepairLog",
    "call_dollars",
    "check_holes",
    "check_rows",
    "checked_missing",
    "dollars_of",
    "drop_duplicates",
    "missing_score_reason",
    "names_columns",
    "per_call",
    "score_notes",
    "validate",
    "with_dollars",
    "with_large_strings",
]


# Repairs made while a table is read, counted over all of its parts and reported in words.


_SENTENCES: dict[str, Callable[[int], str]] = {
    "numbered": lambda _: "no query_id column: rows are numbered from 0",
    "zero": lambda count: (
        f"{pluralize(count, 'missing score')} {_verb(count, 'count')} as 0 (missing: zero)"
    ),
    "unpaid": lambda count: (
        f"{pluralize(count, 'missing value')} of cost, latency or tokens beside them"
        f" {_verb(count, 'count')} as 0, too"
    ),
    "dropped": lambda count: (
        f"{pluralize(count, 'row')} with missing scores {_are(count)} dropped (missing: drop)"
    ),
    "repeated": lambda count: (
        f"{pluralize(count, 'row')} that {_verb(count, 'repeat')} an earlier row in every column"
        f" {_are(count)} dropped"
    ),
}


@dataclass
class RepairLog:
    """The counts of each kind of repair."""

    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count: int = 1) -> None:
        """Count one kind of repair."""
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count

    def sentences(self) -> tuple[str, ...]:
        """Return all repairs in words."""
        return (
            *self.notes,
            *(
                sentence(self.counts[kind])
                for kind, sentence in _SENTENCES.items()
                if kind in self.counts
            ),
        )


def _verb(count: int, verb: str) -> str:
    return f"{verb}s" if count == 1 else verb


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


# Tables in which an empty score may mean that the expert was not asked, so that it must never count
# as a wrong answer.


# Metadata key of a Parquet file under which ``mildroute collect`` records who was asked and who
# judged.
COLLECTED = b"mildroute.collected"


def missing_score_reason(names: Sequence[str], metadata: Mapping[bytes, bytes]) -> str:
    """Return why experts were not asked in a table, and what to do about it.

    Both are empty if all experts were asked, as far as the table says.

    Returns:
        Two half-sentences, or two empty strings.
    """
    if any(name.startswith(PROPENSITY) for name in names):
        return (
            f"the columns '{PROPENSITY}<expert>' say that not all experts answered each query; set"
            " missing (--missing) to keep to learn from those that did, or collect all experts on"
            " these queries"
        )
    count = _about(metadata).get("experts_per_query")
    if count is None:
        return ""
    return (
        f"each query was given to {count} of the experts only; set missing (--missing) to keep to"
        " learn from those, or collect the rest with --experts-per-query all"
    )


def _about(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        about = json.loads(metadata.get(COLLECTED, b"{}"))
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}


# The rules of a cost table, checked once; every message names the column, the row, the rule, the
# value and the way out.
#
# Rows are counted from 0.


Missing = Literal["raise", "zero", "drop", "keep"]

# Bounds on the dollars, seconds and tokens of one answer: sums over a billion rows, squares of
# means and products with the largest price weight (1e15) then neither overflow nor vanish among the
# denormal numbers, where 1e-310 gave warnings and 1e297 a bill of infinity.
_LEAST, _MOST, _MOST_TOKENS = 1e-12, 1e9, 1e15
_RANGES = {
    SCORE: ("a score must lie in [0, 1]", 0.0, 1.0),
    DOLLARS: ("dollars must be 0 or from 1e-12 to 1e9", _LEAST, _MOST),
    LATENCY: ("seconds must be 0 or from 1e-12 to 1e9", _LEAST, _MOST),
    PROPENSITY: ("a propensity must lie in [0, 1]", 0.0, 1.0 + 1e-6),
}
# Scores that are all below this are probably dollars.
LOWEST_SCORES = 0.1
_COUNT = ("a count must be from 0 to 1e15", 0.0, _MOST_TOKENS)


@dataclass(frozen=True)
class Chunk:
    """A run of rows as its source holds it, with the options for reading it.

    Attributes:
        parse: Whether numbers are still text, as in a CSV file.
        unasked: Why a missing score may mean that the expert was not asked, and what to do; empty
            if nothing suggests so.
        decimal: Decimal mark of numbers that are still text.
    """

    raw: pa.Table
    layout: TableSchema
    missing: Missing = "raise"
    parse: bool = False
    first_row: int = 0
    unasked: str = ""
    decimal: str = "."


def checked_missing(missing: str) -> Missing:
    """Return the option if it is valid."""
    for option in get_args(Missing):
        if missing == option:
            return option  # type: ignore[no-any-return]
    raise ArgumentError(f"missing must be raise, zero, drop or keep, got {missing!r}.")


def validate(part: Chunk, log: RepairLog) -> pa.Table:
    """Convert a part to canonical form and check every value.

    Returns:
        A table with canonical names and types (texts as strings, large or not), in which every
        value obeys the rules; ids may still repeat.
    """
    columns = {name: part.raw.column(source) for name, source in part.layout.sources.items()}
    if ID not in columns:
        columns = {ID: _numbered(part)} | columns
        log.counts["numbered"] = 1
    columns[ID] = as_text(columns[ID], ID)
    rows = _Rows(columns[ID], part.first_row)
    texts = {
        name: _complete(_of_role(columns[name], name, part), name, rows)
        for name in (ID, INPUT, GROUP, SPLIT, TIME)
        if name in columns
    }
    if CONVERSATION in columns:  # a request without a conversation stands alone
        texts[CONVERSATION] = pc.fill_null(as_text(columns[CONVERSATION], CONVERSATION), "")
    answers = {
        name: pc.fill_null(as_text(columns[name], name), "") for name in part.layout.names(ANSWER)
    }
    numbers = {
        name: _scaled(
            as_numbers(
                columns[name],
                name,
                parse=part.parse,
                first_row=part.first_row,
                decimal=part.decimal,
            ),
            part.layout.scales.get(f"{name.partition(':')[0]}:"),
        )
        for name in columns
        if name not in texts and name not in answers
    }
    for name in part.layout.names(LOGPROB):
        answers[name] = _logprobs(numbers.pop(name), name, rows)
    absent = _absent(numbers, part, rows)
    if absent and part.missing == "zero":
        _count_as_wrong(numbers, absent, log)
    bad = np.any(list(absent.values()), axis=0) if absent and part.missing == "drop" else None
    for name, column in numbers.items():
        unknown = _unknown(name, numbers) if part.missing == "keep" else bad
        numbers[name] = _in_range(column, name, rows, unknown)
    table = pa.table(texts | numbers | answers)
    if bad is not None:
        log.add("dropped", int(bad.sum()))
        table = table.filter(pa.array(~bad))
    return table


def _scaled(column: pa.ChunkedArray, ends: tuple[float, float] | None) -> pa.ChunkedArray:
    """Rescale numbers so that the worst value is 0 and the best is 1."""
    if ends is None:
        return column
    worst, best = ends
    return pc.divide(pc.subtract(column, float(worst)), float(best - worst))


def check_rows(rows: int, log: RepairLog) -> None:
    """Raise an error for a table without rows, including one whose rows were all dropped."""
    dropped = log.counts.get("dropped", 0)
    if not rows and dropped:
        raise TableError(
            "a table needs a row in which every expert has a score, got none of"
            f" {pluralize(dropped, 'row')}; collect the rest, keep fewer experts, or, if a missing"
            " score is a failure, set missing to zero."
        )
    if not rows:
        raise TableError(
            "a table needs at least one row, got none; check the source, and how missing scores"
            " count."
        )


def check_holes(rows: int, experts: int, log: RepairLog) -> None:
    """Raise an error if most scores are missing and count as wrong.

    In that case experts were not called, and nothing can be estimated for them.
    """
    holes = log.counts.get("zero", 0)
    if 2 * holes > rows * experts:
        raise TableError(
            f"most scores must be there if missing ones count as wrong, got {holes:,} of"
            f" {rows * experts:,} missing; an expert that was not asked is not wrong: ask all of"
            " them, for example with 'mildroute collect', or keep only those that were."
        )


def score_notes(table: pa.Table) -> tuple[str, ...]:
    """Return notes on scores that are all so low that they may be dollars or errors."""
    names = [name for name in table.column_names if name.startswith(SCORE)]
    highest = max(pc.max(table.column(name)).as_py() or 0.0 for name in names)
    if not 0 < highest < LOWEST_SCORES:
        return ()
    return (
        f"no score is above {highest:g}: are these dollars, or errors, of which less is better?"
        " Give dollars as 'cost:<expert>' (prices), and for errors the worst and the best value"
        " (score_scale=(1, 0), --score-scale 1:0)",
    )


def drop_duplicates(table: pa.Table, log: RepairLog) -> pa.Table:
    """Drop rows that repeat an earlier row in every column.

    Raise an error for other rows with a repeated id.
    """
    ids = table.column(ID)
    if len(pc.unique(ids)) == len(ids):
        return table
    first: dict[str, int] = {}
    originals = np.array([first.setdefault(name, row) for row, name in enumerate(ids.to_pylist())])
    repeats = np.flatnonzero(originals != np.arange(len(originals)))
    again, before = table.take(repeats), table.take(originals[repeats])
    for name in table.column_names:
        one, other = again.column(name), before.column(name)
        are_unknown = pc.and_(pc.is_null(one), pc.is_null(other))
        differs = np.flatnonzero(~_filled(pc.or_kleene(pc.equal(one, other), are_unknown)))
        if len(differs):
            row = repeats[differs[0]]
            raise TableError(
                f"column {ID!r}, row {row}: ids must be unique, got {ids[row].as_py()[:60]!r} again"
                f" (first in row {originals[row]}, with another {name!r}); keep one of the rows or"
                " rename the query."
            )
    log.add("repeated", len(repeats))
    return table.filter(pa.array(originals == np.arange(len(originals))))


def with_large_strings(run: pa.Table) -> pa.Table:
    """Return large strings: a table may exceed the 2 GiB of text that plain strings can address."""
    fields = [
        field.with_type(pa.large_string()) if pa.types.is_string(field.type) else field
        for field in run.schema
    ]
    return run.cast(pa.schema(fields))


@dataclass(frozen=True)
class _Rows:
    """The name of each row in an error message."""

    ids: pa.ChunkedArray
    first_row: int

    def place(self, name: str, row: int) -> str:
        query = self.ids[int(row)].as_py()
        query_note = "" if query is None else f" (query_id {query[:60]!r})"
        return f"column {name!r}, row {self.first_row + int(row)}{query_note}"


def _numbered(part: Chunk) -> pa.ChunkedArray:
    return pa.chunked_array(
        [pa.array(np.arange(part.first_row, part.first_row + part.raw.num_rows))]
    )


def _of_role(column: pa.ChunkedArray, name: str, part: Chunk) -> pa.ChunkedArray:
    if name == ID:
        return column
    if name == TIME:
        return as_times(column, name, parse=part.parse)
    return as_text(column, name, whole_numbers=name != INPUT)


def _complete(column: pa.ChunkedArray, name: str, rows: _Rows) -> pa.ChunkedArray:
    missing = (
        column.is_null(nan_is_null=True)
        if column.null_count or pa.types.is_floating(column.type)
        else None
    )
    if missing is not None and pc.any(missing).as_py():
        row = int(np.flatnonzero(_filled(missing))[0])
        raise TableError(
            f"{rows.place(name, row)}: a value is needed, got none; fill it in or drop the row."
        )
    return column


def _filled(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(column.to_numpy()).astype(bool)


def _absent(
    numbers: dict[str, pa.ChunkedArray], part: Chunk, rows: _Rows
) -> dict[str, NDArray[np.bool_]]:
    """Return where scores are missing, by column; raise unless the caller says how they count."""
    missing: dict[str, NDArray[np.bool_]] = {}
    for name in part.layout.names(SCORE):
        values = numbers[name].to_numpy()
        # the minimum is NaN if any value is: one quick pass if nothing is missing
        if len(values) == 0 or not np.isnan(values.min()):
            continue
        mask = np.isnan(values)
        row_name = rows.place(name, int(mask.argmax()))
        if part.unasked and part.missing not in ("drop", "keep"):
            raise TableError(
                f"{row_name}: a score is missing, which need not be a wrong answer: {part.unasked}."
            )
        if part.missing == "raise":
            raise TableError(
                f"{row_name}: a score is missing; fill it in, or set missing (--missing) to zero,"
                " so that it counts as 0, or to drop, so that its row does not count."
            )
        missing[name] = mask
    return missing


def _count_as_wrong(
    numbers: dict[str, pa.ChunkedArray], absent: dict[str, NDArray[np.bool_]], log: RepairLog
) -> None:
    """Give missing answers score 0, and cost 0 unless the table says otherwise."""
    for name, mask in absent.items():
        numbers[name] = _with_zeros(numbers[name], mask)
        log.add("zero", int(mask.sum()))
        expert = name.removeprefix(SCORE)
        for other in [key for key in numbers if key != name and key.split(":", 1)[1] == expert]:
            unpaid = mask & np.isnan(numbers[other].to_numpy())
            numbers[other] = _with_zeros(numbers[other], unpaid)
            log.add("unpaid", int(unpaid.sum()))


def _with_zeros(column: pa.ChunkedArray, mask: NDArray[np.bool_]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(np.where(mask, 0.0, column.to_numpy()))])


def check_dollars(values: NDArray[np.float64], expert: str) -> NDArray[np.float64]:
    """Return computed dollars if each obeys the rule for dollars that are read."""
    rule, lowest, highest = _RANGES[DOLLARS]
    good = (values == 0) | ((values >= lowest) & (values <= highest))
    if not good.all():
        row = int(np.argmin(good))
        raise TableError(
            f"prices and tokens of {expert!r} make {_shown(values[row])} dollars in row {row}:"
            f" {rule}; prices are dollars per million tokens."
        )
    return values


def _in_range(
    column: pa.ChunkedArray, name: str, rows: _Rows, unknown: NDArray[np.bool_] | None
) -> pa.ChunkedArray:
    """Check every value of a column, except for rows that are dropped or unknown."""
    values: NDArray[np.float64] = column.to_numpy()
    rule, lowest, highest = _RANGES.get(f"{name.partition(':')[0]}:", _COUNT)
    # NaN fails both comparisons, so one pass for the smallest and one for the largest value catch
    # everything
    if len(values) == 0 or (values.min() >= lowest and values.max() <= highest):
        return column
    bad = ~((values == 0) | ((values >= lowest) & (values <= highest)))
    if unknown is not None:
        bad &= ~unknown
    if bad.any():
        row = int(bad.argmax())
        way_out = (
            "divide by the largest possible score, or give the worst and the best one (score_scale,"
            " --score-scale 0:100)"
            if name.startswith(SCORE)
            else "correct the value or its unit, or drop the row"
        )
        raise TableError(f"{rows.place(name, row)}: {rule}, got {_shown(values[row])}; {way_out}.")
    return column


def _unknown(name: str, numbers: Mapping[str, pa.ChunkedArray]) -> NDArray[np.bool_]:
    """Return where values may be unknown: the expert was not asked, or they are propensities."""
    score = name if name.startswith(PROPENSITY) else SCORE + name.partition(":")[2]
    return np.asarray(np.isnan(numbers[score].to_numpy()))


def _logprobs(column: pa.ChunkedArray, name: str, rows: _Rows) -> pa.ChunkedArray:
    """Return log-probabilities; null if unknown."""
    values: NDArray[np.float64] = column.to_numpy()
    is_bad = np.isinf(values) | (values > 0)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise TableError(
            f"{rows.place(name, row)}: a log-probability must be a number of at most 0, got"
            f" {_shown(values[row])}; leave it out where it is not known."
        )
    return pa.chunked_array([pa.array(values, from_pandas=True)])


def _shown(value: Any) -> str:
    return "none" if np.isnan(value) else f"{value:g}"


# Token or character counts of answers, turned into dollars by a price list.


def dollars_of(
    table: pa.Table,
    experts: tuple[str, ...],
    prices: PriceList,
    output_tokens: float | Mapping[str, float] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return the dollars of each expert on each row.

    Args:
        table: Canonical columns. Input is counted by ``intokens:``, else ``inchars:``, else the
            length of ``input``; output by ``outtokens:``, else ``outchars:``, else
            ``output_tokens``.
        experts: Names of the experts.
        prices: Prices of all these experts.
        output_tokens: Tokens of an answer if the table has no counts; one number, or one for each
            expert.

    Returns:
        A column ``cost:<expert>`` for each expert, shape (n,).
    """
    _check_priced(experts, prices.prices)
    return {
        DOLLARS + expert: check_dollars(
            prices.dollars(
                expert, _tokens_in(table, expert), _tokens_out(table, expert, output_tokens)
            ),
            expert,
        )
        for expert in experts
    }


def with_dollars(table: pa.Table, dollars: Mapping[str, NDArray[np.float64]]) -> pa.Table:
    """Return canonical columns with these dollars in place of any existing ones."""
    others = [name for name in table.column_names if not name.startswith(DOLLARS)]
    behind = [name for name in others if name.startswith((LATENCY, *COUNTS))]
    before = [name for name in others if name not in behind]
    columns = {name: table.column(name) for name in before} | dict(dollars)
    return pa.table(columns | {name: table.column(name) for name in behind})


def _counted(table: pa.Table, expert: str, direction: str) -> NDArray[np.float64] | None:
    if f"{direction}tokens:{expert}" in table.column_names:
        return np.asarray(table.column(f"{direction}tokens:{expert}").to_numpy())
    if f"{direction}chars:{expert}" in table.column_names:
        return (
            np.asarray(table.column(f"{direction}chars:{expert}").to_numpy()) / CHARACTERS_PER_TOKEN
        )
    return None


def _tokens_in(table: pa.Table, expert: str) -> NDArray[np.float64]:
    counted = _counted(table, expert, "in")
    if counted is not None:
        return counted
    if INPUT not in table.column_names:
        raise TableError(
            f"what goes into {expert!r} is unknown; add 'intokens:{expert}', 'inchars:{expert}' or"
            " 'input'."
        )
    return np.asarray(pc.utf8_length(table.column(INPUT)).to_numpy()) / CHARACTERS_PER_TOKEN


def _tokens_out(table: pa.Table, expert: str, output_tokens: Any) -> NDArray[np.float64]:
    counted = _counted(table, expert, "out")
    if counted is not None:
        return counted
    tokens = output_tokens.get(expert) if isinstance(output_tokens, Mapping) else output_tokens
    if tokens is None:
        raise TableError(
            f"what comes out of {expert!r} is unknown; add 'outtokens:{expert}' or"
            f" 'outchars:{expert}', or give the tokens of an answer (output_tokens,"
            " --output-tokens), or prices per call."
        )
    if (
        isinstance(tokens, bool)
        or not isinstance(tokens, (int, float))
        or not np.isfinite(tokens)
        or tokens < 0
    ):
        raise ArgumentError(
            f"output_tokens must be finite and not negative, got {tokens!r} for {expert!r}."
        )
    return np.full(table.num_rows, float(tokens))


# Dollars per call, the same for all queries.


def names_columns(prices: Any) -> bool:
    """Return whether prices are the names of columns, one for each expert."""
    return (
        isinstance(prices, Mapping)
        and bool(prices)
        and all(isinstance(price, str) for price in prices.values())
    )


def per_call(prices: Any) -> bool:
    """Return whether prices are one number per expert rather than a list of prices per token."""
    return isinstance(prices, Mapping) and all(
        isinstance(price, (int, float, np.number)) for price in prices.values()
    )


def call_dollars(prices: Any, experts: Sequence[str], rows: int) -> dict[str, NDArray[np.float64]]:
    """Return columns ``cost:<expert>`` with the same price for every call, shape (n,) each."""
    if not per_call(prices):
        raise TableError(
            "prices per call are one number of dollars for each expert, got"
            f" {prices if isinstance(prices, Mapping) else type(prices).__name__!r:.80}."
        )
    _check_priced(experts, prices)
    return {
        DOLLARS + name: check_dollars(np.full(rows, float(prices[name])), name) for name in experts
    }


def _check_priced(experts: Sequence[str], prices: Mapping[str, Any]) -> None:
    missing = [name for name in experts if name not in prices]
    if missing:
        raise TableError(
            f"the price list has no price for {', '.join(map(repr, missing))}, only for"
            f" {', '.join(map(repr, prices))}; add them, or keep other experts."
        )
