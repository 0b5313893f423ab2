"""Finished files of a log as Parquet: a tenth of the size, and read by every warehouse.

A job for the side, not for the process that answers requests. It may be killed at any moment and run again: a file is read, written beside,
put in place as a whole, and only then is the old form removed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mildroute._jsonl import LINES, TABLE, lock_of, read_file
from mildroute.exceptions import TableError
from mildroute.serving.observability.decision_log import DECISIONS
from mildroute.serving.observability.feedback import FEEDBACK

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CompactionResult", "compact_log"]


_TEXT, _NUMBER, _COUNT = "string", "float64", "int64"
_DECISIONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("decision_id", "key", "path", "model", "router", "reason", "chosen", "answered", "conversation", "shadow", "text"), _TEXT
    ),
    **dict.fromkeys(("request_id", "target", "first_choice"), _TEXT),
    **dict.fromkeys(("time", "price_weight", "propensity", "dollars", "baseline_dollars"), _NUMBER),
    **dict.fromkeys(("decision_seconds", "first_byte_seconds", "seconds"), _NUMBER),
    **dict.fromkeys(("attempts", "status", "tokens_in", "tokens_out"), _COUNT),
    "experts": "texts",
    "posterior": "numbers",
    "propensities": "numbers",
}
_FEEDBACK: Mapping[str, str] = {"decision_id": _TEXT, "score": _NUMBER, "time": _NUMBER, "key": _TEXT, "detail": _TEXT}


@dataclass(frozen=True)
class CompactionResult:
    """What was done.

    Args:
        files: Files that are Parquet now.
        rows: Their rows.
        growing: Files that are still written, and were left alone.
    """

    files: int
    rows: int
    growing: int


def compact_log(folder: str | Path) -> CompactionResult:
    """Turn the finished files of a log, decisions and feedback, into Parquet.

    Args:
        folder: Of the log.

    Returns:
        What was done.

    Example:
        >>> import tempfile
        >>> compact_log(tempfile.mkdtemp())
        CompactionResult(files=0, rows=0, growing=0)
    """
    if not Path(folder).is_dir():
        raise TableError(f"the log {str(folder)!r} is not a folder; check the path.")
    rows: list[int | None] = []
    for name, columns in ((DECISIONS, _DECISIONS), (FEEDBACK, _FEEDBACK)):
        rows += [_tidied(path, columns) for path in sorted(Path(folder, name).glob(f"[0-9]*{LINES}"))]
    done = [count for count in rows if count is not None]
    return CompactionResult(len(done), sum(done), len(rows) - len(done))


def _tidied(path: Path, columns: Mapping[str, str]) -> int | None:
    """Rows of the file; none while it is written. The lock keeps a second job off."""
    lock = lock_of(path)
    if lock is None:
        return None
    try:
        target = path.with_suffix(TABLE)
        count = _written(path, target, columns)
        path.unlink()
        return count
    finally:
        os.close(lock)


def _written(path: Path, target: Path, columns: Mapping[str, str]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if target.exists():  # a job before this one came so far
        return int(pq.read_metadata(target).num_rows)
    beside = target.with_name(f".{target.name}.partial")
    table = pa.Table.from_pylist(list(read_file(path)), schema=_schema(columns))
    with beside.open("wb") as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(target)
    return int(table.num_rows)


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    import pyarrow as pa

    kinds = {
        _TEXT: pa.string(),
        _NUMBER: pa.float64(),
        _COUNT: pa.int64(),
        "texts": pa.list_(pa.string()),
        "numbers": pa.list_(pa.float64()),
    }
    return pa.schema({name: kinds[kind] for name, kind in columns.items()})
