"""Files as raw tables; every failure becomes a one-line error."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from mildroute._files import one_line
from mildroute.costs.delimited import currency_notes, decimal_mark, detect_dialect, read_delimited
from mildroute.costs.files import SourceFile
from mildroute.costs.json_lines import read_json
from mildroute.costs.raw_table import RawTable, merge
from mildroute.costs.spreadsheet import read_spreadsheet
from mildroute.exceptions import TableError

__all__ = ["open_file", "read_whole"]

# Number of rows from which the roles of columns are inferred.
_HEAD_ROWS = 1000


def open_file(file: SourceFile) -> RawTable:
    """Open a file; a Parquet file is read on demand, and any other file is read completely."""
    if file.kind == "parquet":
        return _open_parquet(file)
    delimiter = "\t"
    notes: tuple[str, ...] = ()
    with _one_line_errors(file):
        if file.kind == "json":
            table = _read_json_file(file)
        elif file.kind == "xlsx":
            table = read_spreadsheet(file)
        else:
            dialect = detect_dialect(file)
            delimiter = dialect.delimiter
            notes = dialect.notes
            table = read_delimited(file, dialect)
    head = table.slice(0, _HEAD_ROWS)
    return RawTable(
        file.shown,
        tuple(table.column_names),
        lambda: head,
        table.select,
        has_texts=file.kind != "json",
        decimal=decimal_mark(head, delimiter),
        notes=(*notes, *currency_notes(head)),
    )


def read_whole(files: Sequence[SourceFile]) -> pa.Table:
    """Return all rows and columns of some files, unchanged."""
    return merge(map(open_file, files)).read_all()


def _open_parquet(file: SourceFile) -> RawTable:
    import pyarrow.dataset as pads
    from pyarrow.parquet import ParquetFile, read_schema

    def head() -> pa.Table:
        with _one_line_errors(file), file.open() as stream:
            content = ParquetFile(stream)
            batch = next(content.iter_batches(batch_size=_HEAD_ROWS), None)
            if batch is None:
                return content.schema_arrow.empty_table()
            return pa.Table.from_batches([batch])

    def read(columns: Sequence[str]) -> pa.Table:
        options = pads.ParquetFragmentScanOptions(page_checksum_verification=True)
        with _one_line_errors(file):
            dataset = pads.dataset([file.path], filesystem=file.filesystem, format="parquet")
            return dataset.to_table(columns=list(columns), fragment_scan_options=options)

    with _one_line_errors(file), file.open() as stream:
        schema = read_schema(stream)
    return RawTable(file.shown, tuple(schema.names), head, read, dict(schema.metadata or {}))


def _read_json_file(file: SourceFile) -> pa.Table:
    with (
        file.open() as stream,
        io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n") as text,
    ):
        return read_json(text, file.shown)


@contextmanager
def _one_line_errors(file: SourceFile) -> Iterator[None]:
    """Turn errors of the reading library into one-line errors that name the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"{file.shown!r} is not a readable {file.kind} file: {one_line(error)}; write it again."
        ) from error
