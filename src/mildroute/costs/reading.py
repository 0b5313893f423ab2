"""Files as raw Arrow tables, whole or in runs of rows; whatever breaks becomes one clear line."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mildroute.costs.json_lines import json_tables
from mildroute.costs.sources import SourceFile, one_line
from mildroute.errors import TableError

__all__ = ["Schema", "read_batches", "read_schema"]

_CSV_BLOCK = 16 * 2**20


@dataclass(frozen=True)
class Schema:
    """What a file says about itself before its rows are read.

    Attributes:
        names: Of the columns.
        types: Of the columns, as text; the same as names where a format has no types.
        metadata: Of the file.

    Example:
        >>> Schema(("a",), ("int64",)).metadata
        {}
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    metadata: dict[bytes, bytes] = field(default_factory=dict)


def read_schema(file: SourceFile) -> Schema:
    r"""Names of a file's columns; only the footer of a Parquet file, or the first rows of another, are read.

    Example:
        >>> import tempfile, pathlib
        >>> from mildroute.costs.sources import files_of
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "t.csv").write_text("score:a,score:b\n1,0\n")
        ...     read_schema(files_of(folder)[0]).names
        ('score:a', 'score:b')
    """
    with _one_line_errors(file):
        if file.kind == "parquet":
            from pyarrow.parquet import read_schema as parquet_schema

            with file.open() as stream:
                schema = parquet_schema(stream)
            return Schema(tuple(schema.names), tuple(str(kind) for kind in schema.types), dict(schema.metadata or {}))
        first = next(read_batches([file], None, rows=1000), None)
        names = tuple(first.column_names) if first is not None else ()
        return Schema(names, names)


def read_batches(files: Sequence[SourceFile], columns: Sequence[str] | None, *, rows: int) -> Iterator[pa.Table]:
    """Rows of files of one kind, in order, in runs of about ``rows``.

    Args:
        files: Of one kind; Parquet files have the same types.
        columns: Names of the columns that are wanted, or none for all; only Parquet files can leave the others unread.
        rows: Rows of a run; a run may be shorter where a file or row group ends.

    Returns:
        Tables.

    Example:
        >>> list(read_batches([], None, rows=10))
        []
    """
    if files and files[0].kind == "parquet":
        yield from _parquet(files, columns, rows)
        return
    for file in files:
        with _one_line_errors(file):
            yield from _csv(file) if file.kind == "csv" else _json(file, rows)


@contextmanager
def _one_line_errors(file: SourceFile) -> Iterator[None]:
    """Errors of the reading library as one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{file.shown!r} is not a readable {file.kind} file: {one_line(error)}; write it again.") from error


def _parquet(files: Sequence[SourceFile], columns: Sequence[str] | None, rows: int) -> Iterator[pa.Table]:
    import pyarrow.dataset as pads

    with _one_line_errors(files[0]):
        dataset = pads.dataset([file.path for file in files], filesystem=files[0].filesystem, format="parquet")
        # a short read-ahead keeps both cores busy with the least memory
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
    with file.open() as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n") as text:
        yield from json_tables(text, file.shown, rows)


def _csv(file: SourceFile) -> Iterator[pa.Table]:
    """All columns as text: types guessed from the first block would fail in a later one."""
    from pyarrow import csv

    parse: Any = csv.ParseOptions(newlines_in_values=True)
    read: Any = csv.ReadOptions(block_size=_CSV_BLOCK)
    with file.open() as stream, csv.open_csv(stream, parse_options=parse, read_options=read) as reader:
        names = reader.schema.names
    convert: Any = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False)
    with file.open() as stream, csv.open_csv(stream, parse_options=parse, read_options=read, convert_options=convert) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])
