"""Conversion of long tables, one row per query and expert, to wide ones, one row per query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute.costs.conversion import as_numbers, as_text
from mildroute.costs.repairs import RepairLog
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
)
from mildroute.exceptions import TableError

__all__ = ["pivot_to_wide"]

_VALUES = {SCORE: ("score",), DOLLARS: ("dollars", "cost"), LATENCY: ("latency",)}
_COUNTS = {
    "intokens:": ("intokens",),
    "outtokens:": ("outtokens",),
    "inchars:": ("inchars",),
    "outchars:": ("outchars",),
}
_QUERY_COLUMNS = {INPUT: (INPUT, "text"), GROUP: (GROUP,), SPLIT: (SPLIT,), TIME: (TIME,)}
_QUERY_COLUMNS |= {CONVERSATION: (CONVERSATION,)}
_QUERY = (ID, "query")
_EXPERT = ("expert", "model")


def pivot_to_wide(
    table: pa.Table, log: RepairLog, *, parse: bool = False, decimal: str = "."
) -> pa.Table:
    """Return a table with one row per query; queries and experts keep their order of appearance.

    Args:
        table: Columns ``query_id`` (or ``query``), ``expert`` (or ``model``), ``score``, optional
            ``dollars`` (or ``cost``), ``latency`` and counts, and columns of the query: ``input``
            (or ``text``), ``group``, ``split``, ``time``.
        log: Collects notes on repairs.
        parse: Whether numbers are still text, as in a CSV file.
        decimal: Decimal mark of numbers that are still text.

    Returns:
        A wide table; pairs of query and expert without a row get missing values.
    """
    queries, first_rows, query_codes = _factorize(table, _QUERY)
    experts, _, expert_codes = _factorize(table, _EXPERT)
    cells = query_codes * len(experts) + expert_codes
    _check_pairs(cells, queries, experts)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {ID: queries} | _query_columns(
        table, first_rows, query_codes, log
    )
    for prefix, aliases in (_VALUES | _COUNTS).items():
        name = _first_name(table.column_names, aliases)
        if name is None:
            continue
        values = as_numbers(table.column(name), name, parse=parse, decimal=decimal).to_numpy()
        matrix = np.full(len(queries) * len(experts), np.nan)
        matrix[cells] = values
        columns |= {
            prefix + expert: pa.array(column)
            for expert, column in zip(
                experts.to_pylist(), matrix.reshape(-1, len(experts)).T, strict=True
            )
        }
    return pa.table(columns)


def _first_name(names: Sequence[str], aliases: Sequence[str]) -> str | None:
    return next((name for name in aliases if name in names), None)


def _factorize(
    table: pa.Table, aliases: Sequence[str]
) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values in order of appearance, their first rows and each row's code."""
    name = _first_name(table.column_names, aliases) or aliases[0]
    column = as_text(table.column(name), name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise TableError(
            f"column {name!r}, row {row}: the value is missing; fill it in or drop the row."
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
        query, expert = (
            str(part)[:60] for part in _query_and_expert(int(cells[row]), queries, experts)
        )
        raise TableError(
            f"a long table must have one row per query and expert, but rows {before} and {row} are"
            f" both for query {query!r} and expert {expert!r}; keep one of them or average them."
        )


def _query_and_expert(cell: int, queries: pa.Array, experts: pa.Array) -> tuple[str, str]:
    return queries[cell // len(experts)].as_py(), experts[cell % len(experts)].as_py()


def _query_columns(
    table: pa.Table, first_rows: NDArray[np.int64], query_codes: NDArray[np.int64], log: RepairLog
) -> dict[str, pa.ChunkedArray]:
    """Return the per-query columns; all rows of a query must have the same value."""
    columns = {}
    for target, aliases in _QUERY_COLUMNS.items():
        name = _first_name(table.column_names, aliases)
        if name is not None:
            columns[target] = _same_on_all_rows(table.column(name), name, first_rows, query_codes)
    if INPUT not in columns and ID not in table.column_names:
        log.notes.append("no input column: 'query' serves as both id and input")
        columns[INPUT] = as_text(table.column("query"), "query").take(pa.array(first_rows))
        columns = {INPUT: columns.pop(INPUT)} | columns
    return columns


def _same_on_all_rows(
    column: pa.ChunkedArray,
    name: str,
    first_rows: NDArray[np.int64],
    query_codes: NDArray[np.int64],
) -> pa.ChunkedArray:
    first_values = column.take(pa.array(first_rows))
    expected = first_values.take(pa.array(query_codes))
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
    return first_values
