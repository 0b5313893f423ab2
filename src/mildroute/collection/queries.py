"""The queries of a collection, read from files or from memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mildroute._files import one_line
from mildroute._fingerprint import text_digest
from mildroute.costs.files import SourceFile, resolve_files
from mildroute.costs.in_memory import to_arrow
from mildroute.costs.json_lines import json_objects
from mildroute.costs.readers import open_file
from mildroute.costs.schema import check_unique
from mildroute.exceptions import TableError
from mildroute.experts.base import Query

__all__ = ["Queries", "open_queries", "query_digest"]

# Column names of each role, in order of preference.
_ROLES = {
    "query_id": ("query_id", "id"),
    "input": ("input", "text", "prompt", "question"),
    "reference": ("reference", "answer", "target"),
}


@dataclass(frozen=True)
class Queries:
    """The queries of a collection.

    Args:
        queries: The queries in the order of their rows, each with a unique name.
        fields: Names of the additional columns, without those of the name, text and reference.

    Example:
        >>> len(Queries([Query("q1", "2 + 2?")]))
        1
    """

    queries: Sequence[Query]
    fields: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Query]:
        """Iterate over the queries."""
        return iter(self.queries)

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.queries)

    def shuffled(self) -> list[Query]:
        """Return the queries in a random order that is the same in every run.

        The order depends only on the queries' names, so that two queries keep their order if others
        are added.
        """
        return sorted(
            self.queries, key=lambda query: text_digest(f"order\x00{query.query_id}", size=8)
        )


def open_queries(source: Any) -> Queries:
    """Read queries and check that their names are unique.

    Args:
        source: Parquet, CSV, Excel or JSON Lines files (a path, a folder, a pattern, a URL or a
            list of them), a pandas or polars data frame, an Arrow table or a list of dicts. The
            columns are ``input`` (or ``text``, ``prompt``, ``question``), optionally ``query_id``
            (or ``id``) and ``reference`` (or ``answer``, ``target``), and the columns that
            templates and judges need. All columns of a CSV file are text.

    Example:
        >>> [query.query_id for query in open_queries([{"input": "2 + 2?"}, {"input": "2 + 3?"}])]
        ['0', '1']
        >>> open_queries("no/such.parquet")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: 'no/such.parquet' does not exist; check the path.
    """
    is_file = isinstance(source, (str, Path))
    source_name = Path(source).name if is_file else "the table of queries"
    try:
        rows, names = _read_files(resolve_files(source)) if is_file else _read_memory(source)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"queries cannot be read from {source_name}: {one_line(error)}."
        ) from error
    if not rows:
        raise TableError(f"{source_name} must have at least one query, got none.")
    columns = {
        role: next(name for name in candidates if name in names)
        for role, candidates in _ROLES.items()
        if set(candidates) & set(names)
    }
    if "input" not in columns:
        raise TableError(
            f"{source_name} must have a column {' or '.join(_ROLES['input'])}, got"
            f" {', '.join(names) or 'no columns'}; rename one of them."
        )
    queries = [_make_query(row, columns, index, source_name) for index, row in enumerate(rows)]
    _check_names(queries, columns, source_name)
    return Queries(queries, tuple(name for name in names if name not in columns.values()))


def query_digest(query: Query) -> str:
    """Return a digest of everything that an expert or a judge may see of a query.

    A query that has changed is a new one.
    """
    contents = json.dumps(
        [query.query_id, query.input, query.reference, query.fields], sort_keys=True, default=str
    )
    return text_digest(contents)


def _read_memory(source: Any) -> tuple[list[dict[str, Any]], list[str]]:
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source):
        return _with_names([dict(row) for row in source])
    table = to_arrow(source)
    check_unique(table.column_names)
    return table.to_pylist(), table.column_names


def _read_files(files: Sequence[SourceFile]) -> tuple[list[dict[str, Any]], list[str]]:
    if files[0].kind == "json":
        # A column of an Arrow table has one type; the values of a key may have several.
        return _with_names([row for file in files for row in _read_json_file(file)])
    rows: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for file in files:
        raw = open_file(file)
        check_unique(raw.columns)
        names |= dict.fromkeys(raw.columns)
        new_rows = raw.read_all().to_pylist()
        rows += map(_drop_empty_cells, new_rows) if raw.has_texts else new_rows
    return rows, list(names)


def _with_names(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows with the names of all their columns, some of which a row may lack."""
    return rows, list(dict.fromkeys(name for row in rows for name in row))


def _read_json_file(file: SourceFile) -> Iterator[dict[str, Any]]:
    with (
        file.open() as stream,
        io.TextIOWrapper(stream, encoding="utf-8-sig", newline="\n") as text,
    ):
        yield from json_objects(text, file.shown)


def _drop_empty_cells(row: dict[str, Any]) -> dict[str, Any]:
    """Replace the empty cells of a text file with ``None``.

    All other cells remain text, because 007 would become the number 7.
    """
    return {name: cell or None for name, cell in row.items()}


def _make_query(
    row: dict[str, Any], columns: Mapping[str, str], index: int, source_name: str
) -> Query:
    """Return the query in a row, and remove all but the query's fields from the row."""
    values = {role: row.pop(name, None) for role, name in columns.items()}
    text = values["input"]
    if not isinstance(text, str):
        raise TableError(
            f"{source_name}, row {index}: a query must be a text, got {text!r:.60}; fill it in or"
            " drop the row."
        )
    reference = values.get("reference")
    name = values.get("query_id", index)
    if name is None:
        raise TableError(
            f"{source_name}, row {index}: each query must have a unique name in"
            f" {columns['query_id']!r}, got none; number them."
        )
    return Query(str(name), text, None if reference is None else str(reference), row)


def _check_names(queries: Sequence[Query], columns: Mapping[str, str], source_name: str) -> None:
    names: set[str] = set()
    for query in queries:
        if query.query_id in names:
            raise TableError(
                f"{source_name}: each query must have a unique name in {columns['query_id']!r}, got"
                f" {query.query_id!r:.60} again; number them."
            )
        names.add(query.query_id)
