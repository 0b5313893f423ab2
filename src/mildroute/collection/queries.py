"""The queries of a collection, read a few at a time from files or from memory."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from mildroute._fingerprint import text_digest
from mildroute.costs.files import resolve_files
from mildroute.costs.in_memory import to_arrow
from mildroute.costs.readers import read_batches, read_schema
from mildroute.costs.schema import check_unique
from mildroute.exceptions import TableError
from mildroute.experts.base import Query

__all__ = ["QueryFile", "ShuffledQueries", "open_queries", "query_digest"]

# Column names of each role, in order of preference.
_INPUT_NAMES = ("input", "text", "prompt", "question")
_ROLES = {
    "query_id": ("query_id", "id"),
    "input": _INPUT_NAMES,
    "reference": ("reference", "answer", "target"),
}
_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".xlsx": "xlsx",
    ".jsonl": "json",
    ".json": "json",
}
_BATCH_ROWS = 1024
# Shuffling holds at least this many queries in memory, or a sixteenth of a large file, which is
# then read sixteen times.
_MIN_SHUFFLED = 65_536
_MAX_PASSES = 16
# A file or folder, or rows in memory.
_Source: TypeAlias = Path | pa.Table | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class QueryFile:
    """A file, a folder of files or a table in memory, with one query in each row.

    Args:
        source: The path, or the rows themselves.
        columns: Name of the column of each role: ``query_id``, ``input`` and ``reference``; only
            ``input`` is required.
        rows: Number of queries.
        others: Names of all other columns.

    Example:
        >>> QueryFile(Path("q.parquet"), {"input": "text"}, 5).rows
        5
    """

    source: _Source
    columns: dict[str, str]
    rows: int
    others: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Query]:
        """Yield the queries; the columns without a role are their fields."""
        for index, row in enumerate(_read_rows(self.source)):
            yield self._make_query(row, index)

    @functools.cached_property
    def random_order(self) -> list[int]:
        """The indices of all queries in random order.

        The order follows from the queries' names, so that two queries keep their order when others
        are added.
        """
        digests = [int(text_digest(f"order\x00{query.query_id}", size=8), 16) for query in self]
        order: list[int] = np.argsort(np.array(digests, dtype=np.uint64), kind="stable").tolist()
        return order

    def _make_query(self, row: dict[str, Any], index: int) -> Query:
        values = {role: row.pop(name, None) for role, name in self.columns.items()}
        text = values["input"]
        if not isinstance(text, str):
            raise TableError(
                f"{_describe(self.source)}, row {index}: a query must be a text, got {text!r:.60};"
                " fill it in or drop the row."
            )
        reference = values.get("reference")
        name = values.get("query_id")
        return Query(
            str(index if name is None else name),
            text,
            None if reference is None else str(reference),
            row,
        )


@dataclass(frozen=True)
class ShuffledQueries:
    """Queries in random order, the same in every run."""

    queries: QueryFile

    def __iter__(self) -> Iterator[Query]:
        """Yield the queries; each pass over a large file yields a part of them."""
        order = self.queries.random_order
        size = max(_MIN_SHUFFLED, math.ceil(len(order) / _MAX_PASSES))
        for start in range(0, len(order), size):
            ranks = {index: rank for rank, index in enumerate(order[start : start + size])}
            part = [
                (ranks[index], query) for index, query in enumerate(self.queries) if index in ranks
            ]
            part.sort(key=lambda pair: pair[0])
            yield from (query for _, query in part)


def open_queries(source: Any) -> QueryFile:
    """Read the columns of queries and check that the queries' names differ.

    Args:
        source: A path of Parquet, CSV or JSON lines, or a folder of one kind; or a pandas or polars
            data frame, an Arrow table or a list of dicts. Columns: ``input`` (or ``text``,
            ``prompt``, ``question``), optional ``query_id`` (or ``id``), optional ``reference`` (or
            ``answer``, ``target``), and whatever templates and judges need. All columns of a CSV
            file are text.

    Example:
        >>> [query.query_id for query in open_queries([{"input": "2 + 2?"}, {"input": "2 + 3?"}])]
        ['0', '1']
        >>> open_queries("no/such.parquet")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: queries must lie in a file or folder that exists ...
    """
    source = _to_source(source)
    try:
        names = _column_names(source)
        check_unique(names)
        columns = {
            role: next(name for name in candidates if name in names)
            for role, candidates in _ROLES.items()
            if set(candidates) & set(names)
        }
        if "input" not in columns:
            raise TableError(
                f"{_describe(source)} must have a column {' or '.join(_INPUT_NAMES)}, got"
                f" {', '.join(names) or 'none'}; rename one of them."
            )
        others = tuple(name for name in names if name not in columns.values())
        return QueryFile(source, columns, _count_rows(source, columns.get("query_id")), others)
    except (pa.ArrowException, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TableError(
            f"queries cannot be read from {_describe(source)}: {' '.join(str(error).split())}."
        ) from error


def _to_source(source: Any) -> _Source:
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.exists():
            raise TableError(
                f"queries must lie in a file or folder that exists, got {str(path)!r}."
            )
        return path
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source):
        return source
    return to_arrow(source)


def _describe(source: _Source) -> str:
    return source.name if isinstance(source, Path) else "the table of queries"


def query_digest(query: Query) -> str:
    """Return a digest of everything that an expert or a judge may see of a query.

    A query that has changed is a new one.
    """
    contents = json.dumps(
        [query.query_id, query.input, query.reference, query.fields], sort_keys=True, default=str
    )
    return text_digest(contents)


def _list_files(path: Path) -> list[Path]:
    if path.is_file():
        files = [path]
    else:
        files = sorted(file for file in path.iterdir() if file.suffix in _FORMATS)
    if not files or files[0].suffix not in _FORMATS:
        raise TableError(
            f"queries are read from files that end in {', '.join(_FORMATS)}, got {path.name!r}."
        )
    return files


def _read_rows(source: _Source, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    if isinstance(source, pa.Table):
        for batch in source.to_batches(_BATCH_ROWS):
            yield from batch.to_pylist()
        return
    if not isinstance(source, Path):
        yield from map(dict, source)
        return
    for file in _list_files(source):
        if _FORMATS[file.suffix] == "json":
            yield from _read_json_lines(file)
            continue
        is_text = _FORMATS[file.suffix] != "parquet"
        for table in read_batches(resolve_files(file), columns, rows=_BATCH_ROWS):
            for batch in table.to_batches(_BATCH_ROWS):
                rows = batch.to_pylist()
                yield from map(_drop_empty_cells, rows) if is_text else rows


def _drop_empty_cells(row: dict[str, Any]) -> dict[str, Any]:
    """Replace the empty cells of a text file by None.

    All other cells remain texts, because 007 as a number would be 7.
    """
    return {name: cell or None for name, cell in row.items()}


def _read_json_lines(file: Path) -> Iterator[dict[str, Any]]:
    # pyarrow's reader turns a last line without an end into a row of nulls.
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise TableError(
                        f"{file.name}, line {number}: a query must be a JSON object, got"
                        f" {line.strip()!r:.60}."
                    )
                yield row


def _column_names(source: _Source) -> list[str]:
    if isinstance(source, pa.Table):
        return list(source.schema.names)
    if not isinstance(source, Path) or _FORMATS[_list_files(source)[0].suffix] == "json":
        # Any row, even the first one, may lack a column.
        return list(dict.fromkeys(name for row in _read_rows(source) for name in row))
    return list(read_schema(resolve_files(_list_files(source)[0])[0]).names)


def _count_rows(source: _Source, name_column: str | None) -> int:
    """Return the number of rows, or raise an error if two have the same name."""
    names: set[str] = set()
    count = 0
    for row in _read_rows(source, [name_column] if name_column else None):
        count += 1
        if name_column is not None:
            name = row.get(name_column)
            if name is None or str(name) in names:
                raise TableError(
                    f"{_describe(source)}: each query must have a name of its own in"
                    f" {name_column!r}, got {name!r:.60} again; number them."
                )
            names.add(str(name))
    if not count:
        raise TableError(f"{_describe(source)} must have at least one query, got none.")
    return count
