"""Long tables, one row per query and expert, turned into wide ones, one row per query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute.costs.canonical import as_numbers, as_text
from mildroute.costs.columns import DOLLARS, GROUP, ID, INPUT, LATENCY, SCORE, SPLIT, TIME
from mildroute.costs.repairs import RepairLog
from mildroute.errors import TableError

__all__ = ["is_long", "widened"]

_VALUES = {SCORE: ("score",), DOLLARS: ("dollars", "cost"), LATENCY: ("latency",)}
_COUNTS = {"intokens:": ("intokens",), "outtokens:": ("outtokens",), "inchars:": ("inchars",), "outchars:": ("outchars",)}
_OF_QUERY = {INPUT: (INPUT, "text"), GROUP: (GROUP,), SPLIT: (SPLIT,), TIME: (TIME,)}
_QUERY, _EXPERT = (ID, "query"), ("expert", "model")


def is_long(names: Sequence[str]) -> bool:
    """Whether columns of these names are a long table.

    Example:
        >>> is_long(["query", "expert", "score", "dollars"]), is_long(["query_id", "score:a", "score:b"])
        (True, False)
    """
    wide = any(name.startswith(SCORE) for name in names)
    return not wide and "score" in names and _first(names, _EXPERT) is not None and _first(names, _QUERY) is not None


def widened(table: pa.Table, log: RepairLog, *, parse: bool = False) -> pa.Table:
    """One row per query, in the order in which queries first appear; experts likewise.

    Args:
        table: Columns ``query_id`` (or ``query``), ``expert`` (or ``model``), ``score``, optional ``dollars`` (or ``cost``), ``latency``
            and counts, and what belongs to the query: ``input`` (or ``text``), ``group``, ``split``, ``time``.
        log: Receives what was decided.
        parse: Whether numbers are still text, as in a CSV file.

    Returns:
        A wide table; a pair of query and expert that has no row has missing values.

    Example:
        >>> long = pa.table({"query": ["q", "q"], "expert": ["a", "b"], "score": [1, 0]})
        >>> widened(long, RepairLog()).to_pylist()
        [{'query_id': 'q', 'input': 'q', 'score:a': 1.0, 'score:b': 0.0}]
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
        values = as_numbers(table.column(name), name, parse=parse).to_numpy()
        matrix = np.full(len(queries) * len(experts), np.nan)
        matrix[cells] = values
        columns |= {prefix + expert: column for expert, column in zip(experts.to_pylist(), matrix.reshape(-1, len(experts)).T, strict=True)}
    return pa.table({name: column if isinstance(column, pa.ChunkedArray) else pa.array(column) for name, column in columns.items()})


def _first(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _coded(table: pa.Table, aliases: Sequence[str]) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Distinct values in order of appearance, the row where each first stands, and the place of each row's value among them."""
    name = _first(table.column_names, aliases) or aliases[0]
    column = as_text(table.column(name), name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise TableError(f"column {name!r}, row {row}: a value is needed, got none; fill it in or drop the row.")
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
            f"a long table has one row for each query and expert, got rows {before} and {row} for query {query!r} and "
            f"expert {expert!r}; keep one of them or average them."
        )


def _names(cell: int, queries: pa.Array, experts: pa.Array) -> tuple[str, str]:
    return queries[cell // len(experts)].as_py(), experts[cell % len(experts)].as_py()


def _of_queries(table: pa.Table, first_rows: NDArray[np.int64], query_of: NDArray[np.int64], log: RepairLog) -> dict[str, pa.ChunkedArray]:
    """Columns that belong to the query must say the same on all of its rows."""
    found = {}
    for target, aliases in _OF_QUERY.items():
        name = _first(table.column_names, aliases)
        if name is not None:
            found[target] = _same_on_all_rows(table.column(name), name, first_rows, query_of)
    if INPUT not in found and ID not in table.column_names:
        log.notes.append("no input column: the query is taken as id and as input")
        found[INPUT] = as_text(table.column("query"), "query").take(pa.array(first_rows))
        found = {INPUT: found.pop(INPUT)} | found
    return found


def _same_on_all_rows(column: pa.ChunkedArray, name: str, first_rows: NDArray[np.int64], query_of: NDArray[np.int64]) -> pa.ChunkedArray:
    taken = column.take(pa.array(first_rows))
    expected = taken.take(pa.array(query_of))
    same = pc.fill_null(pc.equal(expected, column), False).to_numpy()
    absent = pc.and_(expected.is_null(), column.is_null()).to_numpy()
    differs = np.flatnonzero(~(same | absent))
    if len(differs):
        row = int(differs[0])
        raise TableError(
            f"column {name!r}, row {row}: all rows of a query must agree, got {str(column[row].as_py())[:40]!r} after "
            f"{str(expected[row].as_py())[:40]!r}; correct one of them or give the queries different ids."
        )
    return taken
