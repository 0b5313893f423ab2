"""Files as raw Arrow tables, whole or in runs of rows; every failure becomes one clear line."""

from __future__ import annotations

import codecs
import importlib
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mildroute._files import one_line
from mildroute._optional import needs_extra
from mildroute.costs.files import SourceFile
from mildroute.costs.json_lines import json_tables
from mildroute.exceptions import TableError

__all__ = [
    "Schema",
    "currency_notes",
    "decimal_mark",
    "first_rows",
    "read_batches",
    "read_schema",
    "read_whole",
]

_CSV_BLOCK = 16 * 2**20
_SAMPLE = 1000
_HEAD = 2**20
_LONGEST_HEADER = 2**16
# 1,234 may be a thousand; 0,234 and 1,5 cannot.
_DECIMAL_COMMA = r"^[-+]?[$€£]?\s*(0,\d+|\d+,(\d{1,2}|\d{4,}))\s*([$€£%]|[A-Za-z]{3})?$"
_NOT_DOLLARS = r"^\s*([€£]\s*[\d.,]+|[\d.,]+\s*[€£])\s*$"
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


@dataclass(frozen=True)
class Schema:
    """The properties of a file that are known before its rows are read.

    Attributes:
        types: Types of the columns, as text; equal to names if a format has no types.
        sample: The first rows, if they had to be read; `None` for Parquet.
        delimiter: Delimiter of the cells of a CSV file; a tab for a spreadsheet.
        notes: Sentences on the encoding and delimiter, if they were guessed.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    sample: pa.Table | None = None
    delimiter: str = ","
    notes: tuple[str, ...] = ()


def read_schema(file: SourceFile) -> Schema:
    r"""Return the schema of a file.

    Only the footer of a Parquet file, or the first rows of another file, are read.
    """
    with _one_line_errors(file):
        if file.kind == "parquet":
            from pyarrow.parquet import read_schema as parquet_schema

            with file.open() as stream:
                schema = parquet_schema(stream)
            return Schema(
                tuple(schema.names),
                tuple(str(kind) for kind in schema.types),
                dict(schema.metadata or {}),
            )
        first = next(read_batches([file], None, rows=_SAMPLE), None)
        names = tuple(first.column_names) if first is not None else ()
        sample = None if first is None else first.slice(0, _SAMPLE)
        if file.kind == "json":
            return Schema(names, names, sample=sample)
        text = _detect_dialect(file) if file.kind == "csv" else _Dialect("\t", "utf-8")
        return Schema(names, names, sample=sample, delimiter=text.delimiter, notes=text.notes)


def decimal_mark(schema: Schema) -> str:
    """Return a comma if the cells use one and it is not the delimiter, else a point."""
    if schema.sample is None or schema.delimiter == ",":
        return "."
    for column in schema.sample.columns:
        if pa.types.is_large_string(column.type):
            cells = pc.utf8_trim_whitespace(column)
            if pc.any(pc.match_substring_regex(cells, _DECIMAL_COMMA)).as_py():
                return ","
    return "."


def currency_notes(schema: Schema) -> tuple[str, ...]:
    """Return notes on amounts that are not in dollars."""
    columns = [] if schema.sample is None else schema.sample.columns
    texts = [column for column in columns if pa.types.is_large_string(column.type)]
    if any(pc.any(pc.match_substring_regex(column, _NOT_DOLLARS)).as_py() for column in texts):
        return ("amounts in € or £ count as dollars: they are not converted",)
    return ()


def first_rows(file: SourceFile) -> pa.Table:
    """Return the first rows of a Parquet file."""
    from pyarrow.parquet import ParquetFile

    with _one_line_errors(file), file.open() as stream:
        content = ParquetFile(stream)
        batch = next(content.iter_batches(batch_size=_SAMPLE), None)
        return (
            content.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])
        )


def read_batches(
    files: Sequence[SourceFile], columns: Sequence[str] | None, *, rows: int
) -> Iterator[pa.Table]:
    """Yield the rows of files of one kind, in order, in runs of about ``rows``.

    Args:
        files: Files of one kind; Parquet files have the same types.
        columns: Names of the columns to read, or `None` for all; only Parquet files can skip the
            others.
        rows: Number of rows of a run; a run may be shorter at the end of a file or row group.
    """
    if files and files[0].kind == "parquet":
        yield from _parquet(files, columns, rows)
        return
    for file in files:
        with _one_line_errors(file):
            if file.kind == "xlsx":
                yield _spreadsheet(file)
            else:
                yield from _csv(file) if file.kind == "csv" else _json(file, rows)


def read_whole(files: Sequence[SourceFile]) -> pa.Table:
    """Return all rows and columns of files, unchanged."""
    tables = [table for file in files for table in read_batches([file], None, rows=2**20)]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        raise TableError(
            f"the shards of {files[0].shown!r} and its neighbors have columns of different types;"
            " convert them first."
        ) from None


@contextmanager
def _one_line_errors(file: SourceFile) -> Iterator[None]:
    """Turn errors of the reading library into one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"{file.shown!r} is not a readable {file.kind} file: {one_line(error)}; write it again."
        ) from error


def _parquet(
    files: Sequence[SourceFile], columns: Sequence[str] | None, rows: int
) -> Iterator[pa.Table]:
    import pyarrow.dataset as pads

    with _one_line_errors(files[0]):
        dataset = pads.dataset(
            [file.path for file in files], filesystem=files[0].filesystem, format="parquet"
        )
        # a short read-ahead keeps both cores busy with little memory
        scanner = dataset.scanner(
            columns=columns,
            batch_size=rows,
            batch_readahead=4,
            fragment_readahead=1,
            fragment_scan_options=pads.ParquetFragmentScanOptions(page_checksum_verification=True),
        )
        for batch in scanner.to_batches():
            yield pa.Table.from_batches([batch])


def _json(file: SourceFile, rows: int) -> Iterator[pa.Table]:
    with (
        file.open() as stream,
        io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n") as text,
    ):
        yield from json_tables(text, file.shown, rows)


@dataclass(frozen=True)
class _Dialect:
    """The encoding and delimiter of a CSV file."""

    delimiter: str
    encoding: str
    skipped: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        if self.encoding != "cp1252":
            return ()
        return (
            "the file is not UTF-8: read as Windows text (cp1252); save it as UTF-8 if accented"
            " letters look wrong",
        )


def _detect_dialect(file: SourceFile) -> _Dialect:
    """Detect the encoding by the first bytes, and the delimiter by its frequency in the header."""
    with file.open() as stream:
        head = stream.read(_HEAD)
    encoding = next(
        (name for mark, name in _BYTE_ORDER_MARKS.items() if head.startswith(mark)), "utf-8"
    )
    if encoding == "utf-8":
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError:
            encoding = "cp1252"
    text = head[:_LONGEST_HEADER].decode(encoding, errors="ignore")
    header = re.sub(r'"[^"]*"', "", text).lstrip("\r\n").partition("\n")[0]
    declared = re.fullmatch(r"sep=([,;\t|])\r?", header)
    # Column names may contain bars.
    delimiter = "|" if "|" in header and not set(",;\t") & set(header) else None
    delimiter = declared[1] if declared else delimiter or max(",;\t", key=header.count)
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    return _Dialect(delimiter, encoding, 1 if declared else 0)


def _csv(file: SourceFile) -> Iterator[pa.Table]:
    """Yield all columns as text: types guessed from the first block could fail in a later one."""
    from pyarrow import csv

    dialect = _detect_dialect(file)
    parse = csv.ParseOptions(newlines_in_values=True, delimiter=dialect.delimiter)
    read = csv.ReadOptions(
        block_size=_CSV_BLOCK, encoding=dialect.encoding, skip_rows=dialect.skipped
    )
    with (
        file.open() as stream,
        csv.open_csv(stream, parse_options=parse, read_options=read) as reader,
    ):
        names = reader.schema.names
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False
    )
    with (
        file.open() as stream,
        csv.open_csv(
            stream, parse_options=parse, read_options=read, convert_options=convert
        ) as reader,
    ):
        batches = [*islice(reader, 1)]
        # A header alone yields no batch, but its names are needed.
        yield pa.Table.from_batches(batches, reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _spreadsheet(file: SourceFile) -> pa.Table:
    """Read the first sheet of an Excel file that is not empty; all cells become text."""
    with file.open() as stream:
        content = io.BytesIO(stream.read())
    if not zipfile.is_zipfile(content):
        raise TableError(f"{file.shown!r} is not a readable xlsx file; save it again, or as CSV.")
    with needs_extra("openpyxl", extra="excel", user="reading an Excel file"):
        openpyxl = importlib.import_module("openpyxl")
    try:
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
        rows = next(filter(None, map(_filled_rows, book.worksheets)), [])
    except (KeyError, zipfile.BadZipFile, openpyxl.utils.exceptions.InvalidFileException) as error:
        raise TableError(
            f"{file.shown!r} is not a readable xlsx file: {one_line(error)}; save it again, or as"
            " CSV."
        ) from error
    if not rows:
        raise TableError(f"{file.shown!r} is empty; a table needs a header and at least one row.")
    indices = [index for index, name in enumerate(rows[0]) if name is not None]
    names = [_cell_text(rows[0][index]) for index in indices]
    texts = [
        [_cell_text(row[index]) if index < len(row) else "" for index in indices]
        for row in rows[1:]
    ]
    # Cells beside or below the table have no header and do not count as rows.
    filled = [row for row in texts if any(row)]
    columns = [
        pa.array([row[index] for row in filled], pa.large_string()) for index in range(len(names))
    ]
    return pa.Table.from_arrays(columns, names)


def _filled_rows(sheet: Any) -> list[tuple[Any, ...]]:
    # Rows are only as long as they are filled: one stray cell in the last corner of a sheet would
    # make each of a million rows 16,384 cells wide.
    sheet.reset_dimensions()
    return [
        row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)
    ]


def _cell_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
