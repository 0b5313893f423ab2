"""Blocks of work: files with some empty cells of one expert each, which all machines can read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute.collecting.queries import digest_of
from mildroute.collecting.runner import Cell
from mildroute.errors import TableError
from mildroute.experts.protocol import Query

__all__ = ["block_size", "read_block", "write_blocks"]

_TEXTS = ("digest", "query_id", "input", "reference", "text")
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 64
"""Batches in a row that a block is for each lane: enough to be worth a message, at most about a minute at a second a call."""
_BLOCKS_PER_WORKER = 8
"""So many that workers of unequal speed end at about the same time."""
_MOST_CELLS = 4096
_MOST_CHARACTERS = 1 << 25


def block_size(cells: int, workers: int, at_once: int) -> int:
    """How many cells a block should have.

    Args:
        cells: Cells of the expert that are empty.
        workers: Processes that ask it.
        at_once: Queries that each of them asks at the same time.

    Returns:
        Cells.

    Example:
        >>> block_size(60, 2, 2), block_size(1_000_000, 4, 2)
        (8, 128)
    """
    fair = math.ceil(cells / (workers * _BLOCKS_PER_WORKER))
    return min(max(fair, at_once * _FEWEST_ROUNDS), at_once * _MOST_ROUNDS, max(_MOST_CELLS, at_once))


def write_blocks(cells: Iterable[Cell], folder: Path, name: str, size: int) -> list[Path]:
    """Write cells into files.

    Args:
        cells: The cells.
        folder: Where.
        name: Beginning of the files' names.
        size: Cells of a file.

    Returns:
        The files.

    Example:
        >>> import tempfile
        >>> cell = Cell(Query("q1", "Hi", fields={"topic": "greetings"}), digest_of(Query("q1", "Hi", fields={"topic": "greetings"})))
        >>> (path,) = write_blocks([cell], Path(tempfile.mkdtemp()), "a", 8)
        >>> read_block(path) == [cell]
        True
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for place, block in enumerate(_cut(cells, size)):
        path = folder / f"{name}-{place:06d}.parquet"
        beside = path.with_suffix(".partial")
        pq.write_table(_table(block), beside, write_page_checksum=True)
        beside.replace(path)
        paths.append(path)
    return paths


def read_block(path: Path) -> list[Cell]:
    """The cells of a file.

    Args:
        path: The file.

    Returns:
        Its cells.

    Example:
        >>> read_block.__name__
        'read_block'
    """
    cells = [_cell(row) for row in pq.ParquetFile(path).read().to_pylist()]
    changed = [cell.query.query_id for cell in cells if digest_of(cell.query) != cell.digest]
    if changed:
        raise TableError(f"a query must reach a worker unchanged, got a change in {changed[0]!r:.60}; write its columns as plain texts.")
    return cells


def _cut(cells: Iterable[Cell], size: int) -> Iterator[list[Cell]]:
    block: list[Cell] = []
    characters = 0
    for cell in cells:
        block.append(cell)
        characters += len(cell.query.input) + len(cell.text or "")
        if len(block) >= size or characters >= _MOST_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _table(cells: list[Cell]) -> pa.Table:
    rows = [(cell.digest, cell.query.query_id, cell.query.input, cell.query.reference, cell.text) for cell in cells]
    try:
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    except UnicodeEncodeError as error:
        raise TableError(f"texts must be Unicode, got half a character in {error.object!r:.60}; drop or repair that row.") from None
    return pa.table([*columns, _fields(cells)], names=[*_TEXTS, "fields"])


def _fields(cells: list[Cell]) -> pa.Array:
    """As JSON, which keeps what JSON files hold; dates and other types of columnar files keep their own."""
    try:
        return pa.array([json.dumps(dict(cell.query.fields)) for cell in cells], pa.string())
    except TypeError:
        return pa.array([dict(cell.query.fields) for cell in cells])


def _cell(row: dict[str, Any]) -> Cell:
    fields = json.loads(row["fields"]) if isinstance(row["fields"], str) else row["fields"]
    return Cell(Query(row["query_id"], row["input"], row["reference"], fields), row["digest"], row["text"])
