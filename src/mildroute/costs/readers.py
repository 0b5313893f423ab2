"""Parquet, CSV, JSON lines, data frames and the long format, all as Arrow tables."""

from __future__ import annotations

import codecs
import importlib
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute._files import one_line
from mildroute._optional import needs_extra
from mildroute.costs.files import SourceFile
from mildroute.costs.schema import (
    CONVERSATION,
    DOLLARS,
    GROUP,
    ID,
    INPUT,
    LATENCY,
    SCORE,
    SPLIT,
    TIME,
    as_numbers,
    as_text,
)
from mildroute.costs.validation import RepairLog
from mildroute.exceptions import TableError

__all__ = [
    "Schema",
    "currency_notes",
    "decimal_mark",
    "first_rows",
    "json_tables",
    "pivot_to_wide",
    "read_batches",
    "read_schema",
    "to_arrow",
]


# Tables in memory, from any library, as Arrow; none of those libraries is imported here.


def to_arrow(data: Any) -> pa.Table:
    """Convert a table to Arrow.

    Args:
        data: An Arrow table, batch or reader, a pandas or polars frame, a Hugging Face dataset, a
            mapping of columns, a list of dicts, or anything with the Arrow stream interface.

    Returns:
        The table; values are not copied if the library allows it.
    """
    try:
        return _converted(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"the data cannot be turned into an Arrow table: {one_line(error)}; give every column"
            " one type."
        ) from error


def _converted(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, (Mapping, list)):
        return _of_rows(data) if isinstance(data, list) else _of_mapping(data)
    if type(data).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "with_format"):
        return data.with_format("arrow")[:]
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise TableError(
        "a table must be Arrow, pandas, polars, a Hugging Face dataset, a dict of columns or a list"
        f" of dicts, got {type(data).__name__}."
    )


def _of_rows(rows: list[Any]) -> pa.Table:
    for row in rows:
        if not isinstance(row, Mapping):
            raise TableError(f"a list of rows must hold dicts, got {type(row).__name__}.")
    names = dict.fromkeys(name for row in rows for name in row)
    return _of_mapping({name: [row.get(name) for row in rows] for name in names})


def _of_mapping(data: Mapping[Any, Any]) -> pa.Table:
    if any(hasattr(column, "column_names") for column in data.values()):
        raise TableError(
            "a dataset with several splits is not one table; choose one of"
            f" {', '.join(map(repr, data))}."
        )
    for name in data:
        if not isinstance(name, str):
            raise TableError(f"column names must be text, got {name!r}; rename the column.")
    return pa.table({name: _column(name, values) for name, values in data.items()})


def _column(name: str, values: Any) -> Any:
    try:
        return values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TableError(
            f"column {name!r} must hold values of one type: {one_line(error)}; convert them first."
        ) from error


# JSON lines, parsed line by line so that an error message can name the line.


def json_tables(stream: TextIO, shown: str, rows: int) -> Iterator[pa.Table]:
    """Read objects, one per line or all in one array, as tables of at most ``rows`` rows.

    Returns:
        Tables; a key that a line lacks is a missing value.
    """
    records = _records(stream, shown)
    names: list[str] = []
    while chunk := list(islice(records, rows)):
        for record in chunk:
            names += (
                [name for name in record if name not in names] if record.keys() - set(names) else []
            )
        yield to_arrow({name: [record.get(name) for record in chunk] for name in names})


def _records(stream: TextIO, shown: str) -> Iterator[dict[str, Any]]:
    numbered = (
        (number, line) for number, line in enumerate(_lines(stream, shown), start=1) if line.strip()
    )
    first = next(numbered, None)
    if first is None:
        return
    if first[1].lstrip().startswith("["):
        rest = "".join(line for _, line in numbered)
        yield from (
            _object(item, shown, f"item {number}")
            for number, item in enumerate(_parsed(first[1] + rest, shown, "the array"))
        )
        return
    yield _object(_parsed(first[1], shown, f"line {first[0]}"), shown, f"line {first[0]}")
    for number, line in numbered:
        yield _object(_parsed(line, shown, f"line {number}"), shown, f"line {number}")


def _lines(stream: TextIO, shown: str) -> Iterator[str]:
    try:
        yield from stream
    except UnicodeDecodeError as error:
        raise TableError(
            f"{shown!r} must be UTF-8 text: {one_line(error)}; save it as UTF-8."
        ) from error


def _parsed(text: str, shown: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise TableError(
            f"{shown!r}, {where}: not valid JSON ({one_line(error)}); correct or remove it."
        ) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key is there twice")
    return record


def _object(item: Any, shown: str, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise TableError(
            f"{shown!r}, {where}: each row must be a JSON object, got {type(item).__name__}; write"
            " {...} per row."
        )
    return item


# Long tables, one row per query and expert, turned into wide ones, one row per query.


_VALUES = {SCORE: ("score",), DOLLARS: ("dollars", "cost"), LATENCY: ("latency",)}
_COUNTS = {
    "intokens:": ("intokens",),
    "outtokens:": ("outtokens",),
    "inchars:": ("inchars",),
    "outchars:": ("outchars",),
}
_OF_QUERY = {INPUT: (INPUT, "text"), GROUP: (GROUP,), SPLIT: (SPLIT,), TIME: (TIME,)}
_OF_QUERY |= {CONVERSATION: (CONVERSATION,)}
_QUERY, _EXPERT = (ID, "query"), ("expert", "model")


def pivot_to_wide(
    table: pa.Table, log: RepairLog, *, parse: bool = False, decimal: str = "."
) -> pa.Table:
    """Return one row per query; queries and experts are in the order of first appearance.

    Args:
        table: Columns ``query_id`` (or ``query``), ``expert`` (or ``model``), ``score``, optional
            ``dollars`` (or ``cost``), ``latency`` and counts, and columns of the query: ``input``
            (or ``text``), ``group``, ``split``, ``time``.
        log: Receives the repairs.
        parse: Whether numbers are still text, as in a CSV file.
        decimal: Decimal mark of numbers that are still text.

    Returns:
        A wide table; a pair of query and expert without a row has missing values.
    """
    queries, first_rows, query_of = _coded(table, _QUERY)
    experts, _, expert_of = _coded(table, _EXPERT)
    cells = query_of * len(experts) + expert_of
    _check_pairs(cells, queries, experts)
    columns: dict[str, Any] = {ID: queries} | _of_queries(table, first_rows, query_of, log)
    for prefix, aliases in (_VALUES | _COUNTS).items():
        name = _first(table.column_names, aliases)
        if name is None:
            continue
        values = as_numbers(table.column(name), name, parse=parse, decimal=decimal).to_numpy()
        matrix = np.full(len(queries) * len(experts), np.nan)
        matrix[cells] = values
        columns |= {
            prefix + expert: column
            for expert, column in zip(
                experts.to_pylist(), matrix.reshape(-1, len(experts)).T, strict=True
            )
        }
    return pa.table(
        {
            name: column if isinstance(column, pa.ChunkedArray) else pa.array(column)
            for name, column in columns.items()
        }
    )


def _first(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _coded(
    table: pa.Table, aliases: Sequence[str]
) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct values, the row of each one's first appearance, and each row's code.

    Values are in order of appearance.
    """
    name = _first(table.column_names, aliases) or aliases[0]
    column = as_text(table.column(name), name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise TableError(
            f"column {name!r}, row {row}: a value is needed, got none; fill it in or drop the row."
        )
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, np.unique(codes, return_index=True)[1], codes


def _check_pairs(cells: NDArray[np.int64], queries: pa.Array, experts: pa.Array) -> None:
    order = np.argsort(cells, kind="stable")
    repeated = np.flatnonzero(np.diff(cells[order]) == 0)
    if len(repeated):
        before, row = order[repeated[0]], order[repeated[0] + 1]
        query, expert = (str(part)[:60] for part in _names(int(cells[row]), queries, experts))
        raise TableError(
            f"a long table has one row for each query and expert, got rows {before} and {row} for"
            f" query {query!r} and expert {expert!r}; keep one of them or average them."
        )


def _names(cell: int, queries: pa.Array, experts: pa.Array) -> tuple[str, str]:
    return queries[cell // len(experts)].as_py(), experts[cell % len(experts)].as_py()


def _of_queries(
    table: pa.Table, first_rows: NDArray[np.int64], query_of: NDArray[np.int64], log: RepairLog
) -> dict[str, pa.ChunkedArray]:
    """Return the columns of the query, which must agree on all of its rows."""
    columns = {}
    for target, aliases in _OF_QUERY.items():
        name = _first(table.column_names, aliases)
        if name is not None:
            columns[target] = _same_on_all_rows(table.column(name), name, first_rows, query_of)
    if INPUT not in columns and ID not in table.column_names:
        log.notes.append("no input column: the query is taken as id and as input")
        columns[INPUT] = as_text(table.column("query"), "query").take(pa.array(first_rows))
        columns = {INPUT: columns.pop(INPUT)} | columns
    return columns


def _same_on_all_rows(
    column: pa.ChunkedArray, name: str, first_rows: NDArray[np.int64], query_of: NDArray[np.int64]
) -> pa.ChunkedArray:
    taken = column.take(pa.array(first_rows))
    expected = taken.take(pa.array(query_of))
    same = pc.fill_null(pc.equal(expected, column), False).to_numpy()
    absent = pc.and_(expected.is_null(), column.is_null()).to_numpy()
    differs = np.flatnonzero(~(same | absent))
    if len(differs):
        row = int(differs[0])
        raise TableError(
            f"column {name!r}, row {row}: all rows of a query must agree, got"
            f" {str(column[row].as_py())[:40]!r} after {str(expected[row].as_py())[:40]!r}; correct"
            " one of them or give the queries different ids."
        )
    return taken


# Files as raw Arrow tables, whole or in runs of rows; every failure becomes one clear line.


_CSV_BLOCK = 16 * 2**20
_SAMPLE = 1000
_HEAD = 2**20
_LONGEST_HEADER = 2**16
# 1,234 may be a thousand; 0,234 and 1,5 cannot.
_DECIMAL_COMMA = r"^[-+]?[$€£]?\s*(0,\d+|\d+,(\d{1,2}|\d{4,}))\s*([$€£%]|[A-Za-z]{3})?$"
_NOT_DOLLARS = r"^\s*([€£]\s*[\d.,]+|[\d.,]+\s*[€£])\s*$"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


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
        text = _dialect(file) if file.kind == "csv" else _Dialect("\t", "utf-8")
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


def first_rows(file: SourceFile, rows: int) -> pa.Table:
    """Return the first rows of a Parquet file."""
    from pyarrow.parquet import ParquetFile

    with _one_line_errors(file), file.open() as stream:
        content = ParquetFile(stream)
        batch = next(content.iter_batches(batch_size=rows), None)
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


def _dialect(file: SourceFile) -> _Dialect:
    """Detect the encoding by the first bytes, and the delimiter by its frequency in the header."""
    with file.open() as stream:
        head = stream.read(_HEAD)
    encoding = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "utf-8")
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

    dialect = _dialect(file)
    parse: Any = csv.ParseOptions(newlines_in_values=True, delimiter=dialect.delimiter)
    read: Any = csv.ReadOptions(
        block_size=_CSV_BLOCK, encoding=dialect.encoding, skip_rows=dialect.skipped
    )
    with (
        file.open() as stream,
        csv.open_csv(stream, parse_options=parse, read_options=read) as reader,
    ):
        names = reader.schema.names
    convert: Any = csv.ConvertOptions(
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
    places = [column for column, name in enumerate(rows[0]) if name is not None]
    names = [_cell(rows[0][column]) for column in places]
    texts = [
        [_cell(row[column]) if column < len(row) else "" for column in places] for row in rows[1:]
    ]
    # Cells beside or below the table, which have no header, make no rows.
    filled = [row for row in texts if any(row)]
    columns = [pa.array([row[at] for row in filled], pa.large_string()) for at in range(len(names))]
    return pa.Table.from_arrays(columns, names)


def _filled_rows(sheet: Any) -> list[tuple[Any, ...]]:
    # Rows are only as long as they are filled: one stray cell in the last corner of a sheet would
    # make each of a million rows 16,384 cells wide.
    sheet.reset_dimensions()
    return [
        row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)
    ]


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
