"""Conversion of tables in memory to Arrow, without importing the libraries that created them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mildroute._files import one_line
from mildroute.exceptions import TableError

__all__ = ["to_arrow"]


def to_arrow(data: Any) -> pa.Table:
    """Convert a table to Arrow.

    Args:
        data: An Arrow table, batch or reader, a pandas or polars frame, a Hugging Face dataset, a
            mapping of columns, a list of dicts, or anything with the Arrow stream interface.

    Returns:
        The table; values are not copied if the library allows it.
    """
    try:
        return _convert(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"the data cannot be turned into an Arrow table: {one_line(error)}; give every column"
            " one type."
        ) from error


def _convert(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, (Mapping, list)):
        return _from_rows(data) if isinstance(data, list) else _from_columns(data)
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


def _from_rows(rows: list[Any]) -> pa.Table:
    for row in rows:
        if not isinstance(row, Mapping):
            raise TableError(f"a list of rows must hold dicts, got {type(row).__name__}.")
    names = dict.fromkeys(name for row in rows for name in row)
    return _from_columns({name: [row.get(name) for row in rows] for name in names})


def _from_columns(data: Mapping[Any, Any]) -> pa.Table:
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
