"""A table in the form of its source, before columns have roles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from mildroute.exceptions import TableError

__all__ = ["RawTable", "merge", "wrap"]


@dataclass(frozen=True)
class RawTable:
    """A table in the form of its source; columns of Parquet files are read on demand.

    Attributes:
        name: The file's name in messages; empty for a table in memory.
        columns: Names of the columns.
        head: Function that returns the first rows.
        read: Function that returns all rows of the given columns.
        metadata: Metadata of the Arrow schema.
        has_texts: Whether numbers are still text, as in a CSV file.
        decimal: Decimal mark of numbers that are still text.
        notes: Sentences about the inferred encoding and currency.
    """

    name: str
    columns: tuple[str, ...]
    head: Callable[[], pa.Table]
    read: Callable[[Sequence[str]], pa.Table]
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    has_texts: bool = False
    decimal: str = "."
    notes: tuple[str, ...] = ()

    def read_all(self) -> pa.Table:
        """Return all rows and columns."""
        return self.read(self.columns)


def wrap(
    table: pa.Table, *, has_texts: bool = False, decimal: str = ".", notes: tuple[str, ...] = ()
) -> RawTable:
    """Return a table in memory as a raw table."""
    try:
        columns = tuple(table.column_names)
    except UnicodeDecodeError:
        raise TableError(
            "column names must be UTF-8 text, got other bytes; rename the columns."
        ) from None
    metadata = dict(table.schema.metadata or {})
    return RawTable(
        "", columns, lambda: table, table.select, metadata, has_texts, decimal, tuple(notes)
    )


def merge(raw_tables: Iterable[RawTable]) -> RawTable:
    """Return the rows of several raw tables as one, in order."""
    parts = list(raw_tables)
    first = parts[0]
    try:
        table = pa.concat_tables([part.read_all() for part in parts], promote_options="permissive")
    except pa.ArrowException:
        raise TableError(
            f"the shards of {first.name!r} and its neighbors have columns of different types;"
            " convert them first."
        ) from None
    return wrap(table, has_texts=first.has_texts, decimal=first.decimal, notes=first.notes)
