"""Tables that are already in memory, in any library's form, as Arrow; none of those libraries is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mildroute.costs.sources import one_line
from mildroute.errors import TableError

__all__ = ["arrow_of"]


def arrow_of(data: Any) -> pa.Table:
    """The same table in Arrow.

    Args:
        data: An Arrow table, batch or reader, a pandas or polars frame, a Hugging Face dataset, a mapping of columns, or anything
            with the Arrow stream interface.

    Returns:
        The table; no values are copied where the library allows it.

    Example:
        >>> arrow_of({"score:a": [1, 0]}).num_rows
        2
    """
    try:
        return _converted(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"the data cannot be turned into an Arrow table: {one_line(error)}; give every column one type.") from error


def _converted(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, Mapping):
        return _of_mapping(data)
    if type(data).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "with_format"):
        return data.with_format("arrow")[:]
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise TableError(f"a table must be Arrow, pandas, polars, a Hugging Face dataset or a dict of columns, got {type(data).__name__}.")


def _of_mapping(data: Mapping[Any, Any]) -> pa.Table:
    if any(hasattr(column, "column_names") for column in data.values()):
        raise TableError(f"a dataset with several splits is not one table; choose one of {', '.join(map(repr, data))}.")
    for name in data:
        if not isinstance(name, str):
            raise TableError(f"column names must be text, got {name!r}; rename the column.")
    return pa.table({name: _column(name, values) for name, values in data.items()})


def _column(name: str, values: Any) -> Any:
    try:
        return values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TableError(f"column {name!r} must hold values of one type: {one_line(error)}; convert them first.") from error
