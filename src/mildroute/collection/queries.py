"""The queries of a collection job, and which experts each of them is given to."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from mildroute._fingerprint import text_digest
from mildroute.costs.files import resolve_files
from mildroute.costs.readers import read_batches, read_schema, to_arrow
from mildroute.costs.schema import check_unique
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Query

__all__ = ["QueryFile", "ShuffledQueries", "open_queries", "query_digest", "sample_experts"]


# Queries from a file, a few at a time, in the order of the file.


_ID, _INPUT, _REFERENCE = (
    ("query_id", "id"),
    ("input", "text", "prompt", "question"),
    ("reference", "answer", "target"),
)
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".xlsx": "xlsx"}
_FORMATS |= {".jsonl": "json", ".json": "json"}
_BATCH = 1024
# Queries that are held in memory to give them in another order, at least; of a large file a
# sixteenth, so that it is read sixteen times.
_SHUFFLED, _PASSES = 65_536, 16
# A file or folder, or rows in memory.
_Source: TypeAlias = Path | pa.Table | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class QueryFile:
    """A file, a folder of files or a table in memory, with one query in each row.

    Args:
        source: Where, or the rows themselves.
        columns: Name of the column of each role: ``query_id``, ``input`` and ``reference``; a role
            may have none.
        rows: Number of the queries.
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
        """The queries; other columns than those of the roles are their fields."""
        for place, row in enumerate(_rows(self.source)):
            yield self._query(row, place)

    @functools.cached_property
    def random_order(self) -> list[int]:
        """Places of all queries in random order.

        It follows from their names, so that two queries keep their order when others are added.
        """
        digests = [int(text_digest(f"order\x00{query.query_id}", size=8), 16) for query in self]
        found: list[int] = np.argsort(np.array(digests, dtype=np.uint64), kind="stable").tolist()
        return found

    def _query(self, row: dict[str, Any], place: int) -> Query:
        found = {role: row.pop(name, None) for role, name in self.columns.items()}
        text, reference = found["input"], found.get("reference")
        if not isinstance(text, str):
            raise TableError(
                f"{_name(self.source)}, row {place}: a query must be a text, got {text!r:.60}; fill"
                " it in or drop the row."
            )
        name = found.get("query_id")
        return Query(
            str(place if name is None else name),
            text,
            None if reference is None else str(reference),
            row,
        )


@dataclass(frozen=True)
class ShuffledQueries:
    """Queries in random order, the same in every run."""

    queries: QueryFile

    def __iter__(self) -> Iterator[Query]:
        """The queries, of a large file a part at a time."""
        order = self.queries.random_order
        size = max(_SHUFFLED, -(-len(order) // _PASSES))
        for start in range(0, len(order), size):
            ranks = {place: rank for rank, place in enumerate(order[start : start + size])}
            found = [
                (ranks[place], query) for place, query in enumerate(self.queries) if place in ranks
            ]
            found.sort(key=lambda pair: pair[0])
            yield from (query for _, query in found)


def open_queries(source: Any) -> QueryFile:
    """Look at queries and check that their names differ.

    Args:
        source: A path of Parquet, CSV or JSON lines, or a folder of one kind; or a pandas or polars
            data frame, an Arrow table or a list of dicts. Columns: ``input`` (or ``text``,
            ``prompt``, ``question``), optional ``query_id`` (or ``id``), optional ``reference`` (or
            ``answer``, ``target``), and whatever templates and judges need. All columns of a CSV
            file are text.

    Returns:
        What was found.

    Example:
        >>> [query.query_id for query in open_queries([{"input": "2 + 2?"}, {"input": "2 + 3?"}])]
        ['0', '1']
        >>> open_queries("no/such.parquet")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: queries must lie in a file or folder that exists ...
    """
    source = _source(source)
    try:
        names = _names(source)
        check_unique(names)
        roles = {"query_id": _ID, "input": _INPUT, "reference": _REFERENCE}
        columns = {
            role: next(name for name in known if name in names)
            for role, known in roles.items()
            if set(known) & set(names)
        }
        if "input" not in columns:
            raise TableError(
                f"{_name(source)} must have a column {' or '.join(_INPUT)}, got"
                f" {', '.join(names) or 'none'}; rename one of them."
            )
        others = tuple(name for name in names if name not in columns.values())
        return QueryFile(source, columns, _counted(source, columns.get("query_id")), others)
    except (pa.ArrowException, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TableError(
            f"queries cannot be read from {_name(source)}: {' '.join(str(error).split())}."
        ) from error


def _source(given: Any) -> _Source:
    if isinstance(given, (str, Path)):
        path = Path(given)
        if not path.exists():
            raise TableError(
                f"queries must lie in a file or folder that exists, got {str(path)!r}."
            )
        return path
    if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given):
        return given
    return to_arrow(given)


def _name(source: _Source) -> str:
    return source.name if isinstance(source, Path) else "the table of queries"


def query_digest(query: Query) -> str:
    """Digest of all that an expert or a judge may see of a query.

    A query that was changed is a new one.
    """
    seen = json.dumps(
        [query.query_id, query.input, query.reference, query.fields], sort_keys=True, default=str
    )
    return text_digest(seen)


def _files(path: Path) -> list[Path]:
    found = (
        [path]
        if path.is_file()
        else sorted(file for file in path.iterdir() if file.suffix in _FORMATS)
    )
    if not found or found[0].suffix not in _FORMATS:
        raise TableError(
            f"queries are read from files that end in {', '.join(_FORMATS)}, got {path.name!r}."
        )
    return found


def _rows(source: _Source, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    if isinstance(source, pa.Table):
        for batch in source.to_batches(_BATCH):
            yield from batch.to_pylist()
        return
    if not isinstance(source, Path):
        yield from map(dict, source)
        return
    for file in _files(source):
        if _FORMATS[file.suffix] == "json":
            yield from _lines(file)
            continue
        for table in read_batches(resolve_files(file), columns, rows=_BATCH):
            for batch in table.to_batches(_BATCH):
                rows = batch.to_pylist()
                # All cells of a text file are texts: as numbers, 007 would be 7. What is empty is
                # missing.
                yield from rows if _FORMATS[file.suffix] == "parquet" else map(_filled, rows)


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value or None for name, value in row.items()}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
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


def _names(source: _Source) -> list[str]:
    if isinstance(source, pa.Table):
        return list(source.schema.names)
    if not isinstance(source, Path) or _FORMATS[_files(source)[0].suffix] == "json":
        # A line may leave out what it has not, also the first one.
        return list(dict.fromkeys(name for row in _rows(source) for name in row))
    return list(read_schema(resolve_files(_files(source)[0])[0]).names)


def _counted(source: _Source, column: str | None) -> int:
    """Number of the rows, whose names must differ."""
    seen: set[str] = set()
    count = 0
    for row in _rows(source, [column] if column else None):
        count += 1
        if column is not None:
            name = row.get(column)
            if name is None or str(name) in seen:
                raise TableError(
                    f"{_name(source)}: each query must have a name of its own in {column!r}, got"
                    f" {name!r:.60} again; number them."
                )
            seen.add(str(name))
    if not count:
        raise TableError(f"{_name(source)} must have at least one query, got none.")
    return count


# Which experts get which query, when not all do.


def sample_experts(names: Sequence[str], count: int | None) -> Callable[[str, str], bool]:
    """For each query some experts, the same ones in every run, each expert about equally often.

    Args:
        names: Names of the experts.
        count: How many of them a query is given to, or none for all.

    Returns:
        Whether an expert, by its name, gets a query, by its name.
    """
    if count is None or count == len(names):
        return lambda _expert, _query: True
    if not 1 <= count < len(names):
        raise ArgumentError(
            f"experts per query must be from 1 to {len(names)}, got {count}; leave it out for all."
        )

    def rank(expert: str, query: str) -> str:
        return text_digest(f"{expert}\x00{query}", size=8)

    def wanted(expert: str, query: str) -> bool:
        own = rank(expert, query)
        return sum(rank(name, query) < own for name in names) < count

    return wanted
