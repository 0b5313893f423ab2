"""A source of any form, opened and read as chunks of raw rows that are ready to check.

The way of a table: ``files`` finds its files, ``readers`` and ``in_memory`` turn them into Arrow,
``columns`` finds the role of each column, ``long_form`` makes one row of each query, ``schema``
selects the columns, this module cuts them into chunks, and ``validation`` checks each of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from mildroute.costs.columns import match_columns
from mildroute.costs.files import SourceFile, is_source, resolve_files
from mildroute.costs.in_memory import to_arrow
from mildroute.costs.long_form import pivot_to_wide
from mildroute.costs.missing_scores import Missing, missing_score_reason
from mildroute.costs.options import ReadOptions
from mildroute.costs.prices import PriceList, prices_in
from mildroute.costs.readers import (
    Schema,
    currency_notes,
    decimal_mark,
    first_rows,
    read_batches,
    read_schema,
    read_whole,
)
from mildroute.costs.repairs import RepairLog
from mildroute.costs.schema import MatchedColumns, TableSchema, infer_schema
from mildroute.exceptions import TableError

__all__ = ["Chunk", "Source", "open_source"]


@dataclass(frozen=True)
class Chunk:
    """A run of rows as its source holds it.

    Attributes:
        raw: The columns under their names in the source.
        layout: The columns that belong to the table.
        missing: How a missing score counts.
        parse: Whether numbers are still text, as in a CSV file.
        decimal: Decimal mark of numbers that are still text.
        unasked: Why a missing score may mean that the expert was not asked, and what to do; empty
            if nothing suggests so.
        first_row: Number of the first row in the source.
    """

    raw: pa.Table
    layout: TableSchema
    missing: Missing = "raise"
    parse: bool = False
    decimal: str = "."
    unasked: str = ""
    first_row: int = 0


@dataclass(frozen=True)
class Source:
    """A source whose columns are known and whose rows have not been read yet.

    Attributes:
        layout: The columns that belong to the table.
        prices: Prices stored with the file, or `None`.
        log: Repairs so far; complete once all chunks have been checked.
        chunks: The rows, in order.
        notes: Sentences on what was guessed about the columns.
    """

    layout: TableSchema
    prices: PriceList | None
    log: RepairLog
    chunks: Iterator[Chunk]
    notes: tuple[str, ...] = ()


def open_source(source: Any, options: ReadOptions) -> Source:
    """Open files or a table in memory.

    Args:
        source: An argument of ``CostTable.read`` or ``CostTable.from_data``.
        options: How to read it.

    Returns:
        The open source. A long table is held in memory as a whole.
    """
    if is_source(source):
        return _open_files(resolve_files(source), options)
    return _open_in_memory(to_arrow(source), options)


def _open_files(files: Sequence[SourceFile], options: ReadOptions) -> Source:
    schema = read_schema(files[0])
    if not schema.names:
        raise TableError(
            f"{files[0].shown!r} is empty; a table needs a header and at least one row."
        )
    decimal = decimal_mark(schema)
    has_texts = files[0].kind in ("csv", "xlsx")
    notes = (*schema.notes, *currency_notes(schema))
    matched = match_columns(
        schema.names, lambda: _sample(files[0], schema), options.mapping, options.experts, decimal
    )
    if matched.is_long:
        table = read_whole(files)
        return _open_in_memory(table, options, parse=has_texts, decimal=decimal, notes=notes)
    layout = _layout(schema.names, matched, options)
    schemas = [schema, *map(read_schema, files[1:])]
    for file, other in zip(files[1:], schemas[1:], strict=True):
        other_layout = _layout(other.names, matched, options) if other.names else None
        _check_same_columns(files[0], layout, file, other_layout)
    chunks = _chunks_of_files(
        files,
        schemas,
        layout,
        rows=options.rows,
        missing=options.missing,
        parse=has_texts or bool(matched.names),
        decimal=decimal,
        unasked=missing_score_reason(schema.names, schema.metadata),
    )
    log = RepairLog(list(layout.repairs))
    return Source(layout, prices_in(schema.metadata), log, chunks, (*notes, *matched.notes))


def _open_in_memory(
    table: pa.Table,
    options: ReadOptions,
    *,
    parse: bool = False,
    decimal: str = ".",
    notes: tuple[str, ...] = (),
) -> Source:
    metadata = dict(table.schema.metadata or {})
    matched = match_columns(
        _column_names(table), lambda: table, options.mapping, options.experts, decimal
    )
    parse = parse or bool(matched.names)
    log = RepairLog()
    if matched.is_long:
        source_of = matched.source_names(table.column_names)
        renamed = pa.table({name: table.column(source) for name, source in source_of.items()})
        table = pivot_to_wide(renamed, log, parse=parse, decimal=decimal)
        matched = MatchedColumns({}, matched.scales, matched.notes, is_long=True)
        parse = False
    names = _column_names(table)
    layout = _layout(names, matched, options)
    log.notes += layout.repairs
    unasked = missing_score_reason(names, table.schema.metadata or {})
    chunks = (
        Chunk(
            table.slice(start, options.rows),
            layout,
            options.missing,
            parse,
            decimal,
            unasked,
            start,
        )
        for start in range(0, table.num_rows, options.rows)
    )
    return Source(layout, prices_in(metadata), log, chunks, (*notes, *matched.notes))


def _layout(names: Sequence[str], matched: MatchedColumns, options: ReadOptions) -> TableSchema:
    return infer_schema(
        names,
        options.experts,
        answers=options.answers,
        propensities=options.missing == "keep",
        matched=matched,
    )


def _sample(file: SourceFile, schema: Schema) -> pa.Table:
    """Return the first rows of a file."""
    return first_rows(file) if schema.sample is None else schema.sample


def _column_names(table: pa.Table) -> list[str]:
    try:
        return list(table.column_names)
    except UnicodeDecodeError:
        raise TableError(
            "column names must be UTF-8 text, got other bytes; rename the columns."
        ) from None


def _check_same_columns(
    first: SourceFile, layout: TableSchema, file: SourceFile, other: TableSchema | None
) -> None:
    columns = set() if other is None else set(other.sources.values())
    odd = sorted(columns ^ set(layout.sources.values()))
    if odd:
        raise TableError(
            f"all shards must have the same columns, got {odd[0]!r} in only one of"
            f" {first.shown!r} and {file.shown!r}; read them apart or write them again."
        )


def _chunks_of_files(
    files: Sequence[SourceFile],
    schemas: Sequence[Schema],
    layout: TableSchema,
    *,
    rows: int,
    missing: Missing,
    parse: bool,
    decimal: str,
    unasked: str,
) -> Iterator[Chunk]:
    columns = list(layout.sources.values())
    first_row = 0
    for _, pairs in groupby(
        zip(files, schemas, strict=True), key=lambda pair: _types(pair[1], columns)
    ):
        alike = [file for file, _ in pairs]
        for table in read_batches(alike, columns, rows=rows):
            raw = _with_all_columns(table, layout, first_row)
            yield Chunk(raw, layout, missing, parse, decimal, unasked, first_row)
            first_row += table.num_rows


def _types(schema: Schema, columns: Sequence[str]) -> list[str]:
    """Return the types of these columns: shards of equal types can be read ahead as one."""
    types = dict(zip(schema.names, schema.types, strict=True))
    return [types[name] for name in columns]


def _with_all_columns(raw: pa.Table, layout: TableSchema, first_row: int) -> pa.Table:
    """Return a run of JSON lines with the columns of the layout.

    A run may lack a key, which is a missing value. It must not add one, which would be lost.
    """
    expected = {*layout.sources.values(), *layout.ignored}
    new = [name for name in raw.column_names if name not in expected]
    if new:
        raise TableError(
            f"column {new[0]!r} first appears after row {first_row}; give the first line all keys."
        )
    for name in layout.sources.values():
        if name not in raw.column_names:
            raw = raw.append_column(name, pa.nulls(raw.num_rows))
    return raw
