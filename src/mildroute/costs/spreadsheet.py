"""Excel files as Arrow tables of text."""

from __future__ import annotations

import importlib
import io
import zipfile
from typing import Any

import pyarrow as pa

from mildroute._files import one_line
from mildroute._optional import needs_extra
from mildroute.costs.files import SourceFile
from mildroute.exceptions import TableError

__all__ = ["read_spreadsheet"]


def read_spreadsheet(file: SourceFile) -> pa.Table:
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
