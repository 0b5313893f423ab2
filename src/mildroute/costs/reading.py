"""Reading of a table, from its source to canonical columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from mildroute.costs.columns import match_columns
from mildroute.costs.files import is_source, resolve_files
from mildroute.costs.in_memory import to_arrow
from mildroute.costs.long_form import pivot_to_wide
from mildroute.costs.missing_scores import missing_score_reason
from mildroute.costs.options import ReadOptions
from mildroute.costs.prices import PriceList, prices_in
from mildroute.costs.raw_table import RawTable, merge, wrap
from mildroute.costs.readers import open_file
from mildroute.costs.repairs import RepairLog
from mildroute.costs.schema import MatchedColumns, TableSchema, infer_schema
from mildroute.costs.validation import (
    RawRows,
    check_holes,
    check_rows,
    drop_duplicates,
    score_notes,
    validate,
    with_large_strings,
)
from mildroute.exceptions import TableError

__all__ = ["TableContent", "read_table"]


@dataclass(frozen=True)
class TableContent:
    """A validated table, with notes on how it was read.

    Attributes:
        arrow: The columns with their canonical names and types.
        layout: The columns that belong to the table.
        prices: Prices stored with the source, or `None`.
        log: Repairs.
        notes: Sentences about inferred columns and formats.
    """

    arrow: pa.Table
    layout: TableSchema
    prices: PriceList | None
    log: RepairLog
    notes: tuple[str, ...]


def read_table(source: Any, options: ReadOptions) -> TableContent:
    """Read files, or a table in memory, and check every value.

    Args:
        source: An argument of ``CostTable.read`` or ``CostTable.from_data``.
        options: Options for reading it.
    """
    log = RepairLog()
    raw_tables = _open(source)
    first = next(raw_tables)
    matched = _match(first, options)
    prices = prices_in(first.metadata)
    raw_tables = chain([first], raw_tables)
    if matched.is_long:
        long = merge(raw_tables)
        matched = _match(long, options)
        first = _widen(long, matched, log)
        raw_tables = iter([first])
        matched = MatchedColumns({}, matched.scales, matched.notes, is_long=True)
    layout = _layout(first, matched, options)
    log.notes += layout.repairs
    unasked = missing_score_reason(first.columns, first.metadata)
    tables: list[pa.Table] = []
    total = 0
    for raw in raw_tables:
        raw_layout = _layout(raw, matched, options) if raw.columns else None
        _check_same_columns(first, layout, raw, raw_layout)
        rows = RawRows(
            raw.read(list(layout.sources.values())),
            layout,
            options.missing,
            raw.has_texts or bool(matched.names),
            first.decimal,
            unasked,
            total,
        )
        total += rows.raw.num_rows
        tables.append(with_large_strings(validate(rows, log)))
    arrow = drop_duplicates(pa.concat_tables(tables), log)
    check_rows(arrow.num_rows, log)
    check_holes(arrow.num_rows, len(layout.experts), log)
    notes = (*first.notes, *matched.notes, *score_notes(arrow))
    return TableContent(arrow, layout, prices, log, notes)


def _open(source: Any) -> Iterator[RawTable]:
    if not is_source(source):
        return iter([wrap(to_arrow(source))])
    return map(open_file, resolve_files(source))


def _match(raw: RawTable, options: ReadOptions) -> MatchedColumns:
    if raw.name and not raw.columns:
        raise TableError(f"{raw.name!r} is empty; a table needs a header and at least one row.")
    return match_columns(raw.columns, raw.head, options.mapping, options.experts, raw.decimal)


def _widen(long: RawTable, matched: MatchedColumns, log: RepairLog) -> RawTable:
    """Return a long table in wide form, with its numbers parsed."""
    table = long.read_all()
    renamed = {
        canonical: table.column(name)
        for canonical, name in matched.source_names(long.columns).items()
    }
    wide = pivot_to_wide(
        pa.table(renamed),
        log,
        parse=long.has_texts or bool(matched.names),
        decimal=long.decimal,
    )
    return wrap(wide, decimal=long.decimal, notes=long.notes)


def _layout(raw: RawTable, matched: MatchedColumns, options: ReadOptions) -> TableSchema:
    return infer_schema(
        raw.columns,
        options.experts,
        answers=options.answers,
        propensities=options.missing == "keep",
        matched=matched,
    )


def _check_same_columns(
    first: RawTable, layout: TableSchema, other: RawTable, other_layout: TableSchema | None
) -> None:
    columns = set() if other_layout is None else set(other_layout.sources.values())
    differing = sorted(columns ^ set(layout.sources.values()))
    if differing:
        raise TableError(
            f"all shards must have the same columns, got {differing[0]!r} in only one of"
            f" {first.name!r} and {other.name!r}; read them apart or write them again."
        )
