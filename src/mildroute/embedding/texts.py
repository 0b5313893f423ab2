"""Ranges of rows of a text table, staged as Parquet where the source cannot be read in ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute._files import one_line
from mildroute.costs.files import SourceFile
from mildroute.costs.readers import read_batches
from mildroute.costs.schema import COUNTS, DOLLARS, INPUT, LATENCY, SCORE, as_numbers
from mildroute.exceptions import TableError

__all__ = ["TextTable", "open_table", "runs", "stage_as_parquet"]


# CSV and JSON lines as Parquet files: only those can be read from the middle, by many at once.


_RUN, _ROWS = 8192, 65_536


def stage_as_parquet(files: Sequence[SourceFile], system: Any, folder: str) -> list[SourceFile]:
    r"""Write the rows of text files into Parquet files, in order.

    What the folder held before is replaced.

    Args:
        files: CSV or JSON.
        system: File system of the folder.
        folder: Where.

    Returns:
        The new files. Columns of a CSV file are still text; files of JSON lines may have columns of
        different types.
    """
    system.create_dir(folder, recursive=True)
    system.delete_dir_contents(folder)
    found = []
    for place, table in enumerate(_alike(read_batches(files, None, rows=_RUN))):
        path = f"{folder}/{place:06d}.parquet"
        with system.open_output_stream(path) as stream:
            pq.write_table(table, stream, row_group_size=_RUN, write_page_checksum=True)
        found.append(replace(files[0], path=path, shown=path, kind="parquet", filesystem=system))
    return found


def _alike(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Neighbors of one schema together, up to so many rows."""
    waiting: list[pa.Table] = []
    for table in tables:
        if waiting and (
            table.schema != waiting[0].schema or sum(each.num_rows for each in waiting) >= _ROWS
        ):
            yield pa.concat_tables(waiting)
            waiting = []
        waiting.append(table)
    if waiting:
        yield pa.concat_tables(waiting)


# A table of texts in Parquet files, of which any range of rows can be read, a run at a time.


_TEXT = (INPUT, "text")
_NUMBERS = (SCORE, DOLLARS, LATENCY, *COUNTS)


@dataclass(frozen=True)
class TextTable:
    """Files with the same columns, one text in each row.

    Args:
        schema: Of the rows as they are given: one type for each column in all files.
        parse: Whether numbers of a cost table are still text, as those of a CSV file are.
    """

    files: tuple[SourceFile, ...]
    counts: tuple[int, ...]
    schema: pa.Schema
    text: str
    parse: bool = False

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(self.counts)


def open_table(files: Sequence[SourceFile], *, parse: bool = False) -> TextTable:
    """Look at Parquet files: their columns and the number of their rows; no row is read.

    A column that some files lack is null there, and one whose types differ gets a type that holds
    them all.

    Args:
        files: Parquet files.
        parse: Whether numbers of a cost table are still text.
    """
    schemas, counts = [], []
    for file in files:
        with _one_line_errors(file), file.open() as stream:
            metadata = pq.read_metadata(stream)
            schemas.append(metadata.schema.to_arrow_schema())
            counts.append(metadata.num_rows)
    if not sum(counts):
        raise TableError("a table needs at least one row, got none; check the source.")
    schema = _one_schema(schemas)
    return TextTable(tuple(files), tuple(counts), schema, _text_column(schema), parse)


def runs(table: TextTable, start: int, stop: int, *, size: int) -> Iterator[pa.Table]:
    """The rows of a range in runs of a size that does not depend on the files.

    Yields:
        Tables of the table's schema, in which every text is there.
    """
    waiting, rows, place = [], 0, start
    for part in _parts(table, start, stop, size):
        waiting.append(part)
        rows += part.num_rows
        while rows >= size:
            whole = pa.concat_tables(waiting)
            yield _with_texts(whole.slice(0, size), table, place)
            waiting, rows, place = [whole.slice(size)], rows - size, place + size
    if rows:
        yield _with_texts(pa.concat_tables(waiting), table, place)


def _parts(table: TextTable, start: int, stop: int, size: int) -> Iterator[pa.Table]:
    ends = accumulate(table.counts)
    for file, count, end in zip(table.files, table.counts, ends, strict=True):
        first = end - count
        at, until = max(start, first), min(stop, end)
        if at < until:
            with _one_line_errors(file):
                for part in _rows_of(file, at - first, until - first, size):
                    yield _conformed(part, table, at)
                    at += part.num_rows


def _rows_of(file: SourceFile, start: int, stop: int, size: int) -> Iterator[pa.Table]:
    """Rows of one file; only row groups that have some of them are read."""
    with file.open() as stream, pq.ParquetFile(stream, page_checksum_verification=True) as parquet:
        groups = [
            parquet.metadata.row_group(place).num_rows for place in range(parquet.num_row_groups)
        ]
        ends = list(accumulate(groups))
        wanted = [
            place for place, end in enumerate(ends) if start < end and end - groups[place] < stop
        ]
        at = ends[wanted[0]] - groups[wanted[0]]
        for batch in parquet.iter_batches(batch_size=size, row_groups=wanted, use_threads=False):
            low, high = max(start - at, 0), min(stop - at, batch.num_rows)
            if low < high:
                yield pa.Table.from_batches([batch.slice(low, high - low)])
            at += batch.num_rows
            if at >= stop:
                return


def _conformed(raw: pa.Table, table: TextTable, first_row: int) -> pa.Table:
    columns = []
    for field in table.schema:
        column = (
            raw.column(field.name)
            if field.name in raw.column_names
            else pa.chunked_array([pa.nulls(raw.num_rows)])
        )
        if _is_number(field.name, table.schema):
            column = as_numbers(column, field.name, parse=table.parse, first_row=first_row)
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=table.schema)


def _with_texts(run: pa.Table, table: TextTable, first_row: int) -> pa.Table:
    texts = run.column(table.text)
    if texts.null_count:
        row = first_row + texts.is_null().to_pylist().index(True)
        raise TableError(
            f"column {table.text!r}, row {row}: a text is needed, got none; fill it in or drop the"
            " row."
        )
    return run


def _one_schema(schemas: list[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas(
            [_plain(schema) for schema in schemas], promote_options="permissive"
        )
    except pa.ArrowException as error:
        raise TableError(
            f"a column must have one type in all files, got {one_line(error)}; write the files"
            " again."
        ) from error


def _plain(schema: pa.Schema) -> pa.Schema:
    again = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if again is not None:
        raise TableError(
            f"column names must be unique, got {again!r} twice; rename or drop one of them."
        )
    return pa.schema(
        [pa.field(field.name, _plain_type(field, schema)) for field in schema],
        metadata=schema.metadata,
    )


def _plain_type(field: pa.Field, schema: pa.Schema) -> pa.DataType:
    """One type for texts and one for the numbers of a cost table, however a file holds them."""
    if _is_number(field.name, schema):
        return pa.float64()
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.large_string() if pa.types.is_string(kind) or pa.types.is_string_view(kind) else kind


def _is_number(name: str, schema: pa.Schema) -> bool:
    """Numbers of a cost table are float64, as everywhere.

    Other tables may call their columns as they like.
    """
    return name.startswith(_NUMBERS) and sum(other.startswith(SCORE) for other in schema.names) > 1


def _text_column(schema: pa.Schema) -> str:
    name = next((name for name in _TEXT if name in schema.names), None)
    if name is None:
        raise TableError(
            f"a table must have a column {' or '.join(_TEXT)}, got {', '.join(schema.names)};"
            " rename one of them."
        )
    kind = schema.field(name).type
    if not pa.types.is_large_string(kind):
        raise TableError(f"the column {name!r} must hold text, got type {kind}; convert it first.")
    return name


@contextmanager
def _one_line_errors(file: SourceFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"{file.shown!r} cannot be read as Parquet: {one_line(error)}; write it again."
        ) from error
