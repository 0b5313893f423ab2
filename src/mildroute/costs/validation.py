"""The rules of a cost table, each checked once.

Every message names the column, the row (counted from 0), the rule, the value and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute._format import pluralize
from mildroute.costs.columns import LOWEST_SCORES
from mildroute.costs.conversion import as_numbers, as_text, as_times
from mildroute.costs.missing_scores import Missing
from mildroute.costs.repairs import RepairLog
from mildroute.costs.schema import (
    ANSWER,
    CONVERSATION,
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
)
from mildroute.exceptions import TableError

__all__ = [
    "RawRows",
    "check_dollars",
    "check_holes",
    "check_rows",
    "drop_duplicates",
    "score_notes",
    "validate",
    "with_large_strings",
]


# Bounds on the dollars, seconds and tokens of one answer: sums over a billion rows, squares of
# means and products with the largest price weight (1e15) then neither overflow nor underflow:
# 1e-310 gave warnings, and 1e297 a bill of infinity.
_MIN_AMOUNT = 1e-12
_MAX_AMOUNT = 1e9
_MAX_TOKENS = 1e15
_RANGES = {
    SCORE: ("a score must lie in [0, 1]", 0.0, 1.0),
    DOLLARS: ("dollars must be 0 or from 1e-12 to 1e9", _MIN_AMOUNT, _MAX_AMOUNT),
    LATENCY: ("seconds must be 0 or from 1e-12 to 1e9", _MIN_AMOUNT, _MAX_AMOUNT),
    PROPENSITY: ("a propensity must lie in [0, 1]", 0.0, 1.0 + 1e-6),
}
_COUNT = ("a count must be from 0 to 1e15", 0.0, _MAX_TOKENS)


@dataclass(frozen=True)
class RawRows:
    """Rows as their source holds them, all of one file, and how to convert them.

    Attributes:
        raw: The columns under their names in the source.
        layout: The columns that belong to the table.
        missing: How a missing score counts.
        parse: Whether numbers are still text, as in a CSV file.
        decimal: Decimal mark of numbers that are still text.
        unasked: Reason why a missing score may mean that the expert was not asked, and what to do;
            empty if nothing suggests so.
        first_row: Number of the first row in the source.
    """

    raw: pa.Table
    layout: TableSchema
    missing: Missing = "raise"
    parse: bool = False
    decimal: str = "."
    unasked: str = ""
    first_row: int = 0


def validate(source: RawRows, log: RepairLog) -> pa.Table:
    """Convert rows to canonical form and check every value.

    Returns:
        A table with canonical names and types (texts as strings, large or not), in which every
        value obeys the rules; ids may still repeat.
    """
    columns = {name: source.raw.column(column) for name, column in source.layout.sources.items()}
    if ID not in columns:
        columns = {ID: _row_numbers(source)} | columns
        log.counts["numbered"] = 1
    columns[ID] = as_text(columns[ID], ID)
    rows = _RowNames(columns[ID], source.first_row)
    texts = {
        name: _check_complete(_convert(columns[name], name, source), name, rows)
        for name in (ID, INPUT, GROUP, SPLIT, TIME)
        if name in columns
    }
    if CONVERSATION in columns:  # a request without a conversation stands alone
        texts[CONVERSATION] = pc.fill_null(as_text(columns[CONVERSATION], CONVERSATION), "")
    answers = {
        name: pc.fill_null(as_text(columns[name], name), "") for name in source.layout.names(ANSWER)
    }
    numbers = {
        name: _rescale(
            as_numbers(
                columns[name],
                name,
                parse=source.parse,
                first_row=source.first_row,
                decimal=source.decimal,
            ),
            source.layout.scales.get(f"{name.partition(':')[0]}:"),
        )
        for name in columns
        if name not in texts and name not in answers
    }
    for name in source.layout.names(LOGPROB):
        answers[name] = _check_logprobs(numbers.pop(name), name, rows)
    absent = _missing_scores(numbers, source, rows)
    if absent and source.missing == "zero":
        _count_as_wrong(numbers, absent, log)
    bad = np.any(list(absent.values()), axis=0) if absent and source.missing == "drop" else None
    for name, column in numbers.items():
        unknown = _may_be_unknown(name, numbers) if source.missing == "keep" else bad
        numbers[name] = _check_range(column, name, rows, unknown)
    table = pa.table(texts | numbers | answers)
    if bad is not None:
        log.add("dropped", int(bad.sum()))
        table = table.filter(pa.array(~bad))
    return table


def _rescale(column: pa.ChunkedArray, ends: tuple[float, float] | None) -> pa.ChunkedArray:
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
            "a table needs a row in which every expert has a score, but none of"
            f" {pluralize(dropped, 'row')} has; collect the rest, keep fewer experts, or, if a"
            " missing score is a failure, set missing to zero."
        )
    if not rows:
        raise TableError(
            "a table needs at least one row; check the source, and how missing scores count."
        )


def check_holes(rows: int, experts: int, log: RepairLog) -> None:
    """Raise an error if most scores are missing and count as wrong.

    In that case experts were not called, and nothing can be estimated for them.
    """
    holes = log.counts.get("zero", 0)
    if 2 * holes > rows * experts:
        raise TableError(
            f"most scores must exist if missing ones count as wrong, got {holes:,} of"
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
        differs = np.flatnonzero(~_as_mask(pc.or_kleene(pc.equal(one, other), are_unknown)))
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
class _RowNames:
    """The name of each row in an error message."""

    ids: pa.ChunkedArray
    first_row: int

    def locate(self, name: str, row: int) -> str:
        query = self.ids[int(row)].as_py()
        query_note = "" if query is None else f" (query_id {query[:60]!r})"
        return f"column {name!r}, row {self.first_row + int(row)}{query_note}"


def _row_numbers(source: RawRows) -> pa.ChunkedArray:
    return pa.chunked_array(
        [pa.array(np.arange(source.first_row, source.first_row + source.raw.num_rows))]
    )


def _convert(column: pa.ChunkedArray, name: str, source: RawRows) -> pa.ChunkedArray:
    if name == ID:
        return column
    if name == TIME:
        return as_times(column, name, parse=source.parse)
    return as_text(column, name, whole_numbers=name != INPUT)


def _check_complete(column: pa.ChunkedArray, name: str, rows: _RowNames) -> pa.ChunkedArray:
    missing = (
        column.is_null(nan_is_null=True)
        if column.null_count or pa.types.is_floating(column.type)
        else None
    )
    if missing is not None and pc.any(missing).as_py():
        row = int(np.flatnonzero(_as_mask(missing))[0])
        raise TableError(
            f"{rows.locate(name, row)}: the value is missing; fill it in or drop the row."
        )
    return column


def _as_mask(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(column.to_numpy()).astype(bool)


def _missing_scores(
    numbers: dict[str, pa.ChunkedArray], source: RawRows, rows: _RowNames
) -> dict[str, NDArray[np.bool_]]:
    """Return where scores are missing, by column; raise unless the caller says how they count."""
    missing: dict[str, NDArray[np.bool_]] = {}
    for name in source.layout.names(SCORE):
        values = numbers[name].to_numpy()
        # the minimum is NaN if any value is: one quick pass if nothing is missing
        if len(values) == 0 or not np.isnan(values.min()):
            continue
        mask = np.isnan(values)
        row_name = rows.locate(name, int(mask.argmax()))
        if source.unasked and source.missing not in ("drop", "keep"):
            raise TableError(
                f"{row_name}: a score is missing, which need not be a wrong answer:"
                f" {source.unasked}."
            )
        if source.missing == "raise":
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


def _check_range(
    column: pa.ChunkedArray, name: str, rows: _RowNames, unknown: NDArray[np.bool_] | None
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
        raise TableError(f"{rows.locate(name, row)}: {rule}, got {_shown(values[row])}; {way_out}.")
    return column


def _may_be_unknown(name: str, numbers: Mapping[str, pa.ChunkedArray]) -> NDArray[np.bool_]:
    """Return where values may be unknown: the expert was not asked, or they are propensities."""
    score = name if name.startswith(PROPENSITY) else SCORE + name.partition(":")[2]
    return np.asarray(np.isnan(numbers[score].to_numpy()))


def _check_logprobs(column: pa.ChunkedArray, name: str, rows: _RowNames) -> pa.ChunkedArray:
    """Return log-probabilities if they are valid; null if unknown."""
    values: NDArray[np.float64] = column.to_numpy()
    is_bad = np.isinf(values) | (values > 0)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise TableError(
            f"{rows.locate(name, row)}: a log-probability must be a number of at most 0, got"
            f" {_shown(values[row])}; leave it out where it is not known."
        )
    return pa.chunked_array([pa.array(values, from_pandas=True)])


def _shown(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:g}"
