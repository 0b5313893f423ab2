"""The log as Parquet: a tenth of the size, and read by every warehouse.

Background jobs, not part of the process that answers requests. They may be killed at any moment and
run again. Finished files are compacted in place: each file is read, rewritten under a temporary
name and moved into place atomically; only then is the old file removed. Rows of all files,
including those that still grow, are shipped to an object store by hour.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mildroute._files import (
    atomic_write,
    file_lock,
    one_line,
    open_location,
    try_lock,
    without_credentials,
)
from mildroute._jsonl import LINES, TABLE, check_log, log_files, read_file
from mildroute.exceptions import TableError
from mildroute.serving.observability.decision_log import DECISIONS, check_decision, rows_behind
from mildroute.serving.observability.feedback import FEEDBACK, SAMPLES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CompactionResult", "ShippingResult", "compact_log", "ship_log"]


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
    **dict.fromkeys(("request_id", "target", "first_choice", "trace_id", "team", "look"), _TEXT),
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

_SAMPLES: Mapping[str, str] = {
    **dict.fromkeys(("decision_id", "text", "conversation", "served_by", "judge"), _TEXT),
    "judged_by": _TEXT,
    **dict.fromkeys(("time", "judge_usd"), _NUMBER),
    **dict.fromkeys(("experts", "answers"), "texts"),
    **dict.fromkeys(("scores", "cost_usd", "seconds"), "numbers"),
    **dict.fromkeys(("tokens_in", "tokens_out"), "counts"),
}

_PARTS = ((DECISIONS, _DECISIONS), (FEEDBACK, _FEEDBACK), (SAMPLES, _SAMPLES))
# In the folder of the log: what has been shipped.
_SHIPPED = "shipped.json"
# Rows of an object at most: some 100 MB of memory.
_ROWS_PER_OBJECT = 50_000


@dataclass(frozen=True)
class CompactionResult:
    """Result of a compaction.

    Args:
        growing: Files that are still being written and were skipped.
    """

    files: int
    rows: int
    growing: int


def compact_log(folder: str | Path) -> CompactionResult:
    """Convert the finished files of a log, decisions, feedback and samples, to Parquet."""
    check_log(folder)
    rows: list[int | None] = []
    for name, columns in _PARTS:
        rows += [
            _tidied(path, columns) for path in sorted(Path(folder, name).glob(f"[0-9]*{LINES}"))
        ]
    done = [count for count in rows if count is not None]
    return CompactionResult(len(done), sum(done), len(rows) - len(done))


def _tidied(path: Path, columns: Mapping[str, str]) -> int | None:
    """Return the rows of the file, or none while it is written. A lock excludes a second job."""
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
        # It may hold prompts: only those who may read the lines may read the table.
        beside.touch(mode=0o600)
        pq.write_table(table, beside, compression="zstd", write_page_checksum=True)
        beside.chmod(path.stat().st_mode & 0o777)
    return int(table.num_rows)


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    import pyarrow as pa

    kinds = {
        _TEXT: pa.string(),
        _NUMBER: pa.float64(),
        _COUNT: pa.int64(),
        "texts": pa.list_(pa.string()),
        "numbers": pa.list_(pa.float64()),
        "counts": pa.list_(pa.int64()),
    }
    attempt = {name: kinds[kind] for name, kind in _ATTEMPT.items()}
    kinds["attempts"] = pa.list_(pa.struct(attempt))
    return pa.schema({name: kinds[kind] for name, kind in columns.items()})


@dataclass(frozen=True)
class ShippingResult:
    """What was written to the object store."""

    objects: int
    rows: int


def ship_log(folder: str | Path, target: str) -> ShippingResult:
    """Write the rows that a log has gained since the last run to an object store, as Parquet.

    Objects are ``decisions/date=2026-11-16/hour=09/<file>-<first line>.parquet``, and likewise for
    ``feedback`` and ``samples``. A job that was killed before it recorded its progress writes the
    same objects again, with the same rows or more: an object is named after its first line. If that
    record is lost, everything is shipped again under other names, and readers deduplicate by
    ``decision_id``.

    Args:
        folder: Folder of the log.
        target: A URL of fsspec or pyarrow, or a folder.
    """
    check_log(folder)
    with file_lock(Path(folder, f".{_SHIPPED}.lock"), create=True):
        shipper = _Shipper(Path(folder), target)
        try:
            done = [
                shipper.ship(name, path, columns)
                for name, columns in _PARTS
                for path in log_files(Path(folder, name))
            ]
        except OSError as error:
            raise TableError(
                f"the log must be shipped to {without_credentials(target)!r}, got:"
                f" {without_credentials(one_line(error))}; check the address, and run the same"
                " command again."
            ) from None
    return ShippingResult(sum(each.objects for each in done), sum(each.rows for each in done))


class _Shipper:
    def __init__(self, folder: Path, target: str) -> None:
        self._path = folder / _SHIPPED
        self._system, self._root = open_location(target)
        # Bytes and lines of each file that are shipped.
        self._shipped: dict[str, tuple[int, int]] = {}
        # Replicas may have files of the same name.
        self._origin = secrets.token_hex(4)
        self._target = without_credentials(target)
        if self._path.exists():
            state = json.loads(self._path.read_text(encoding="utf-8"))
            if state["target"] == self._target:
                self._origin = state["origin"]
                self._shipped = {
                    name: tuple(counts)
                    for name, counts in state["shipped"].items()
                    if any((folder / name).with_suffix(form).exists() for form in (LINES, TABLE))
                }
        self._save()

    def _save(self) -> None:
        state = {"target": self._target, "origin": self._origin, "shipped": self._shipped}
        with atomic_write(self._path) as beside:
            beside.write_text(json.dumps(state), encoding="utf-8")

    def ship(self, name: str, path: Path, columns: Mapping[str, str]) -> ShippingResult:
        """Ship the new rows of a file."""
        objects = count = 0
        key = f"{name}/{path.stem}"
        is_full = True
        # A part that is not full is the last: what a growing file gets meanwhile has time.
        while is_full:
            start, lines = self._shipped.get(key, (0, 0))
            found = list(itertools.islice(rows_behind(path, start, lines), _ROWS_PER_OBJECT))
            is_full = len(found) == _ROWS_PER_OBJECT
            if not found:
                break
            rows = [row for row, _ in found]
            if name == DECISIONS:
                for row in rows:
                    check_decision(row)
            for hour, part in _by_hour(rows).items():
                stem = f"{path.stem}-{self._origin}-{lines:09d}"
                self._write(f"{name}/{hour}/{stem}{TABLE}", part, columns)
                objects += 1
            count += len(rows)
            self._shipped[key] = (found[-1][1], lines + len(rows))
            self._save()
        return ShippingResult(objects, count)

    def _write(self, name: str, rows: list[dict[str, Any]], columns: Mapping[str, str]) -> None:
        import pyarrow as pa
        import pyarrow.fs as pafs
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist(rows, schema=_schema(columns))
        path = f"{self._root}/{name}"
        beside = path
        # An object appears when it is complete, and needs no folder; a file would be seen before.
        is_local = isinstance(self._system, pafs.LocalFileSystem)
        if is_local:
            self._system.create_dir(path.rpartition("/")[0], recursive=True)
            beside = f"{path}.partial"
            Path(beside).touch(mode=0o640)
        with self._system.open_output_stream(beside) as stream:
            pq.write_table(table, stream, compression="zstd", write_page_checksum=True)
        if is_local:
            self._system.move(beside, path)


def _by_hour(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group rows by the folder of the hour, in UTC, in which their requests arrived."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        hour = datetime.fromtimestamp(row["time"], UTC).strftime("date=%Y-%m-%d/hour=%H")
        found.setdefault(hour, []).append(row)
    return found
