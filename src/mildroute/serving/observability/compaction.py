"""Finished files of a log as Parquet: a tenth of the size, and read by every warehouse.

A job for the side, not for the process that answers requests. It may be killed at any moment and
run again: a file is read, written beside, put in place as a whole, and only then is the old form
removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mildroute._files import atomic_write, try_lock
from mildroute._jsonl import LINES, TABLE, read_file
from mildroute.exceptions import TableError
from mildroute.serving.observability.decision_log import DECISIONS, check_decision
from mildroute.serving.observability.feedback import FEEDBACK

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CompactionResult", "compact_log"]


_TEXT, _NUMBER, _COUNT = "string", "float64", "int64"
_DECISIONS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "decision_id",
            "key",
            "path",
            "model",
            "router",
            "reason",
            "selected",
            "served_by",
            "conversation",
            "shadow",
            "text",
        ),
        _TEXT,
    ),
    **dict.fromkeys(("request_id", "target", "first_choice", "trace_id", "team"), _TEXT),
    **dict.fromkeys(
        ("time", "price_weight", "propensity", "cost_usd", "baseline_cost_usd"), _NUMBER
    ),
    **dict.fromkeys(("decision_seconds", "first_byte_seconds", "seconds"), _NUMBER),
    **dict.fromkeys(("status", "tokens_in", "tokens_out"), _COUNT),
    "attempts": "attempts",
    "experts": "texts",
    "posterior": "numbers",
    "propensities": "numbers",
}
_ATTEMPT: Mapping[str, str] = {
    **dict.fromkeys(("expert", "reason"), _TEXT),
    **dict.fromkeys(("status", "tokens_in", "tokens_out", "cached_tokens"), _COUNT),
    **dict.fromkeys(("cost_usd", "seconds"), _NUMBER),
}
_FEEDBACK: Mapping[str, str] = {
    "decision_id": _TEXT,
    "score": _NUMBER,
    "time": _NUMBER,
    "key": _TEXT,
    "detail": _TEXT,
}


@dataclass(frozen=True)
class CompactionResult:
    """What was done.

    Args:
        growing: Files that are still written, and were left alone.
    """

    files: int
    rows: int
    growing: int


def compact_log(folder: str | Path) -> CompactionResult:
    """Turn the finished files of a log, decisions and feedback, into Parquet."""
    if not Path(folder).is_dir():
        raise TableError(f"the log {str(folder)!r} is not a folder; check the path.")
    rows: list[int | None] = []
    for name, columns in ((DECISIONS, _DECISIONS), (FEEDBACK, _FEEDBACK)):
        rows += [
            _tidied(path, columns) for path in sorted(Path(folder, name).glob(f"[0-9]*{LINES}"))
        ]
    done = [count for count in rows if count is not None]
    return CompactionResult(len(done), sum(done), len(rows) - len(done))


def _tidied(path: Path, columns: Mapping[str, str]) -> int | None:
    """Rows of the file; none while it is written. The lock keeps a second job off."""
    with try_lock(path) as is_locked:
        if not is_locked:
            return None
        count = _written(path, path.with_suffix(TABLE), columns)
        path.unlink()
        return count


def _written(path: Path, target: Path, columns: Mapping[str, str]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if target.exists():  # a job before this one came so far
        return int(pq.read_metadata(target).num_rows)
    rows = list(read_file(path))
    if columns is _DECISIONS:
        # A schema fills what is missing with nothing and drops what it does not know.
        for row in rows:
            check_decision(row)
    table = pa.Table.from_pylist(rows, schema=_schema(columns))
    with atomic_write(target) as beside:
        pq.write_table(table, beside, compression="zstd", write_page_checksum=True)
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
    attempt = {name: kinds[kind] for name, kind in _ATTEMPT.items()}
    kinds["attempts"] = pa.list_(pa.struct(attempt))
    return pa.schema({name: kinds[kind] for name, kind in columns.items()})
