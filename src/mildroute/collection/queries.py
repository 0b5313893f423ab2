"""The queries of a collection job, and which experts each of them is given to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow import csv

from mildroute._fingerprint import text_digest
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Query

__all__ = ["QueryFile", "open_queries", "query_digest", "sample_experts"]


# Queries from a file, a few at a time, in the order of the file.


_ID, _INPUT, _REFERENCE = (
    ("query_id", "id"),
    ("input", "text", "prompt", "question"),
    ("reference", "answer", "target"),
)
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}
_BATCH = 1024


@dataclass(frozen=True)
class QueryFile:
    """A file, or a folder of files, with one query in each row.

    Args:
        path: Where.
        columns: Name of the column of each role: ``query_id``, ``input`` and ``reference``; a role
            may have none.
        rows: Number of the queries.
        others: Names of all other columns.

    Example:
        >>> QueryFile(Path("q.parquet"), {"input": "text"}, 5).rows
        5
    """

    path: Path
    columns: dict[str, str]
    rows: int
    others: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Query]:
        """The queries; other columns than those of the roles are their fields."""
        for place, row in enumerate(_rows(self.path)):
            yield self._query(row, place)

    def _query(self, row: dict[str, Any], place: int) -> Query:
        found = {role: row.pop(name, None) for role, name in self.columns.items()}
        text, reference = found["input"], found.get("reference")
        if not isinstance(text, str):
            raise TableError(
                f"{self.path.name}, row {place}: a query must be a text, got {text!r:.60}; fill it"
                " in or drop the row."
            )
        name = found.get("query_id")
        return Query(
            str(place if name is None else name),
            text,
            None if reference is None else str(reference),
            row,
        )


def open_queries(path: str | Path) -> QueryFile:
    """Look at a file of queries and check that their names differ.

    Args:
        path: Parquet, CSV or JSON lines, or a folder of one kind. Columns: ``input`` (or ``text``,
            ``prompt``, ``question``), optional ``query_id`` (or ``id``), optional ``reference`` (or
            ``answer``, ``target``), and whatever templates and judges need. All columns of a CSV
            file are text.

    Returns:
        What was found.

    Example:
        >>> open_queries("no/such.parquet")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: queries must lie in a file or folder that exists ...
    """
    path = Path(path)
    if not path.exists():
        raise TableError(f"queries must lie in a file or folder that exists, got {str(path)!r}.")
    try:
        names = _names(path)
        roles = {"query_id": _ID, "input": _INPUT, "reference": _REFERENCE}
        columns = {
            role: next(name for name in known if name in names)
            for role, known in roles.items()
            if set(known) & set(names)
        }
        if "input" not in columns:
            raise TableError(
                f"{path.name} must have a column {' or '.join(_INPUT)}, got {', '.join(names)};"
                " rename one of them."
            )
        others = tuple(name for name in names if name not in columns.values())
        return QueryFile(path, columns, _counted(path, columns.get("query_id")), others)
    except (pa.ArrowException, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TableError(
            f"queries cannot be read from {str(path)!r}: {' '.join(str(error).split())}."
        ) from error


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


def _rows(path: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    for file in _files(path):
        if _FORMATS[file.suffix] == "json":
            yield from _lines(file)
        else:
            for batch in _dataset(file).to_batches(batch_size=_BATCH, columns=columns):
                yield from batch.to_pylist()


def _dataset(file: Path) -> Any:
    if _FORMATS[file.suffix] == "parquet":
        return pads.dataset(file, format="parquet")
    parse: Any = csv.ParseOptions(newlines_in_values=True)
    names = pads.dataset(file, format=pads.CsvFileFormat(parse_options=parse)).schema.names
    # All columns are text: as numbers, 007 would be 7 and 0.50 would be 0.5. What is empty is
    # missing.
    convert: Any = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
    )
    return pads.dataset(
        file, format=pads.CsvFileFormat(parse_options=parse, convert_options=convert)
    )


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


def _names(path: Path) -> list[str]:
    first = _files(path)[0]
    if _FORMATS[first.suffix] == "json":
        # A line may leave out what it has not, also the first one.
        return list(dict.fromkeys(name for row in _rows(path) for name in row))
    return list(_dataset(first).schema.names)


def _counted(path: Path, column: str | None) -> int:
    """Number of the rows, whose names must differ."""
    seen: set[str] = set()
    count = 0
    for row in _rows(path, [column] if column else None):
        count += 1
        if column is not None:
            name = row.get(column)
            if name is None or str(name) in seen:
                raise TableError(
                    f"{path.name}: each query must have a name of its own in {column!r}, got"
                    f" {name!r:.60} again; number them."
                )
            seen.add(str(name))
    if not count:
        raise TableError(f"{path.name} must have at least one query, got none.")
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
