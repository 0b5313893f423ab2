"""CSV and TSV files in various encodings and with various delimiters, as Arrow tables of text."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mildroute.costs.files import SourceFile

__all__ = ["Dialect", "currency_notes", "decimal_mark", "detect_dialect", "read_delimited"]

_BLOCK = 16 * 2**20
_HEAD = 2**20
_LONGEST_HEADER = 2**16
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
# In 1,234 the comma may separate thousands; in 0,234 and 1,5 it cannot.
_DECIMAL_COMMA = r"^[-+]?[$€£]?\s*(0,\d+|\d+,(\d{1,2}|\d{4,}))\s*([$€£%]|[A-Za-z]{3})?$"
_NOT_DOLLARS = r"^\s*([€£]\s*[\d.,]+|[\d.,]+\s*[€£])\s*$"


@dataclass(frozen=True)
class Dialect:
    """The encoding and delimiter of a CSV file."""

    delimiter: str
    encoding: str
    skipped: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note if the encoding was guessed."""
        if self.encoding != "cp1252":
            return ()
        return (
            "the file is not UTF-8: read as Windows text (cp1252); save it as UTF-8 if accented"
            " letters look wrong",
        )


def detect_dialect(file: SourceFile) -> Dialect:
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
    # Column names may contain bars, so a bar delimits only if no other delimiter occurs.
    delimiter = "|" if "|" in header and not set(",;\t") & set(header) else None
    delimiter = declared[1] if declared else delimiter or max(",;\t", key=header.count)
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    return Dialect(delimiter, encoding, 1 if declared else 0)


def read_delimited(file: SourceFile, dialect: Dialect) -> pa.Table:
    """Read all columns as text, because types inferred from one block could fail in a later one."""
    from pyarrow import csv

    parse = csv.ParseOptions(newlines_in_values=True, delimiter=dialect.delimiter)
    read = csv.ReadOptions(block_size=_BLOCK, encoding=dialect.encoding, skip_rows=dialect.skipped)
    with (
        file.open() as stream,
        csv.open_csv(stream, parse_options=parse, read_options=read) as reader,
    ):
        names = reader.schema.names
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False
    )
    # Only the streaming reader reports the row of an error.
    with (
        file.open() as stream,
        csv.open_csv(
            stream, parse_options=parse, read_options=read, convert_options=convert
        ) as reader,
    ):
        return reader.read_all()


def decimal_mark(head: pa.Table, delimiter: str) -> str:
    """Return a comma if the cells use one and it is not the delimiter, and a point otherwise."""
    if delimiter == ",":
        return "."
    for column in head.columns:
        if pa.types.is_large_string(column.type):
            cells = pc.utf8_trim_whitespace(column)
            if pc.any(pc.match_substring_regex(cells, _DECIMAL_COMMA)).as_py():
                return ","
    return "."


def currency_notes(head: pa.Table) -> tuple[str, ...]:
    """Return notes on amounts that are not in dollars."""
    texts = [column for column in head.columns if pa.types.is_large_string(column.type)]
    if any(pc.any(pc.match_substring_regex(column, _NOT_DOLLARS)).as_py() for column in texts):
        return ("amounts in € or £ count as dollars: they are not converted",)
    return ()
