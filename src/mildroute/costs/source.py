"""A source, whatever its form, as runs of raw rows that are ready to be checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from mildroute.costs.files import SourceFile, is_source, resolve_files
from mildroute.costs.prices import PriceList, prices_in
from mildroute.costs.readers import (
    Schema,
    is_long_format,
    pivot_to_wide,
    read_batches,
    read_schema,
    to_arrow,
)
from mildroute.costs.schema import TableSchema, infer_schema
from mildroute.costs.validation import Chunk, RepairLog, checked_missing, missing_score_reason
from mildroute.exceptions import TableError

__all__ = ["Source", "open_source"]


@dataclass(frozen=True)
class Source:
    """A source whose columns are known and whose rows are still to come.

    Attributes:
        prices: Kept with the file, or none.
        log: What was repaired so far; complete when all parts have been checked.
    """

    layout: TableSchema
    prices: PriceList | None
    log: RepairLog
    parts: Iterator[Chunk]


def open_source(
    source: Any,
    *,
    experts: Sequence[str] | None = None,
    missing: str = "raise",
    rows: int = 65_536,
    answers: bool = False,
) -> Source:
    """Open files or a table in memory.

    Args:
        source: What ``CostTable.read`` and ``CostTable.from_data`` take.
        experts: The experts to keep, or none for all.
        missing: How a missing score counts.
        rows: Rows of a part, about.
        answers: Whether the answers of experts are read, too.

    Returns:
        The open source. A long table is held in memory as a whole.
    """
    count = checked_missing(missing)
    if not is_source(source):
        return _in_memory(to_arrow(source), experts, count, rows, answers=answers)
    files = resolve_files(source)
    schema = read_schema(files[0])
    parse = files[0].kind == "csv"
    if not schema.names:
        raise TableError(
            f"{files[0].shown!r} is empty; a table needs a header and at least one row."
        )
    if is_long_format(schema.names):
        whole = _whole(files)
        return _in_memory(whole, experts, count, rows, parse=parse, answers=answers)
    layout = infer_schema(schema.names, experts, answers=answers)
    schemas = [schema, *map(read_schema, files[1:])]
    _check_agreement(files, schemas, layout, experts, answers=answers)
    log = RepairLog(list(layout.repairs))
    unasked = missing_score_reason(schema.names, schema.metadata)
    return Source(
        layout,
        prices_in(schema.metadata),
        log,
        _of_files(files, schemas, layout, (count, parse, rows, unasked)),
    )


def _in_memory(
    table: pa.Table,
    experts: Sequence[str] | None,
    missing: Any,
    rows: int,
    *,
    parse: bool = False,
    answers: bool = False,
) -> Source:
    log = RepairLog()
    names = _column_names(table)
    prices = prices_in(dict(table.schema.metadata or {}))
    if is_long_format(names):
        table, names, parse = (
            (wide := pivot_to_wide(table, log, parse=parse)),
            wide.column_names,
            False,
        )
    layout = infer_schema(names, experts, answers=answers)
    log.notes += layout.repairs
    starts = range(0, table.num_rows, rows)
    unasked = missing_score_reason(names, table.schema.metadata or {})
    return Source(
        layout,
        prices,
        log,
        (
            Chunk(table.slice(start, rows), layout, missing, parse, start, unasked)
            for start in starts
        ),
    )


def _column_names(table: pa.Table) -> list[str]:
    try:
        return list(table.column_names)
    except UnicodeDecodeError:
        raise TableError(
            "column names must be UTF-8 text, got other bytes; rename the columns."
        ) from None


def _whole(files: Sequence[SourceFile]) -> pa.Table:
    tables = [table for file in files for table in read_batches([file], None, rows=2**20)]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        raise TableError(
            f"the shards of {files[0].shown!r} and its neighbors have columns of different types;"
            " convert them first."
        ) from None


def _check_agreement(
    files: Sequence[SourceFile],
    schemas: Sequence[Schema],
    layout: TableSchema,
    experts: Sequence[str] | None,
    *,
    answers: bool,
) -> None:
    for file, schema in zip(files[1:], schemas[1:], strict=True):
        other = infer_schema(schema.names, experts, answers=answers).sources if schema.names else {}
        odd = sorted(set(other.values()) ^ set(layout.sources.values()))
        if odd:
            raise TableError(
                f"all shards must have the same columns, got {odd[0]!r} in only one of"
                f" {files[0].shown!r} and {file.shown!r}; read them apart or write them again."
            )


def _of_files(
    files: Sequence[SourceFile],
    schemas: Sequence[Schema],
    layout: TableSchema,
    how: tuple[Any, bool, int, str],
) -> Iterator[Chunk]:
    missing, parse, rows, unasked = how
    wanted = list(layout.sources.values())
    first_row = 0
    for _, group in groupby(
        zip(files, schemas, strict=True), key=lambda pair: _types(pair[1], wanted)
    ):
        alike = [file for file, _ in group]
        for raw in read_batches(alike, wanted, rows=rows):
            yield Chunk(
                _conformed(raw, layout, first_row), layout, missing, parse, first_row, unasked
            )
            first_row += raw.num_rows


def _types(schema: Schema, wanted: Sequence[str]) -> list[str]:
    """Shards of equal types can be read ahead as one."""
    types = dict(zip(schema.names, schema.types, strict=True))
    return [types[name] for name in wanted]


def _conformed(raw: pa.Table, layout: TableSchema, first_row: int) -> pa.Table:
    """Return a run of JSON lines with the columns of the layout.

    A run may lack a key, which is a missing value, or bring a new one, which would be lost.
    """
    known = {*layout.sources.values(), *layout.ignored}
    new = [name for name in raw.column_names if name not in known]
    if new:
        raise TableError(
            f"column {new[0]!r} first appears after row {first_row}; give the first line all keys."
        )
    for name in layout.sources.values():
        if name not in raw.column_names:
            raw = raw.append_column(name, pa.nulls(raw.num_rows))
    return raw
