"""The decision log: one line for each decision, written when its answer has ended.

Lines are JSON, in the folder ``decisions`` of the log's folder; ``mildroute log tidy`` turns finished files into Parquet, and reading takes
both. No line holds the text of a request unless that is switched on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import MISSING, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from mildroute.errors import ArgumentError, TableError
from mildroute.serving.lines import LineFiles, read_rows
from mildroute.serving.record import Record
from mildroute.serving.settings import LogRules

__all__ = ["DECISIONS", "DecisionLog", "read_log", "spent_since"]

DECISIONS = "decisions"
"""Folder of the decisions within that of the log."""

_NAMES = tuple(field.name for field in fields(Record))
_REQUIRED = tuple(field.name for field in fields(Record) if field.default is MISSING)
_LISTS = ("experts", "posterior", "propensities")
_values = attrgetter(*_NAMES)
_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


class DecisionLog:
    """Writes records, each with one call of the system.

    Args:
        rules: Where, how many lines a file has, and whether texts are kept. A gateway without a log has no object of this class.

    Attributes:
        lost: Lines that could not be written, since the disk was full or gone.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> log = DecisionLog(LogRules(folder))
        >>> log.write(Record("d1", 0.0, "", "chat/completions", "mildroute", "", ("a", "b"), (0.7, 0.3), None, "router", "a", 0.95,
        ...                  (0.95, 0.05), "a", 1, 200, 9, 3, 0.01, 0.02, 0.001, 0.2, 0.5, text="a secret"))
        >>> log.close()
        >>> [(record.decision_id, record.propensities, record.text) for record in read_log(folder)]
        [('d1', (0.95, 0.05), None)]
    """

    def __init__(self, rules: LogRules) -> None:
        self._files = LineFiles(_folder(rules) / DECISIONS, rules.rows)
        self._keep_text = rules.keep_text

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._files.lost

    def write(self, record: Record) -> None:
        """Append one line; if it cannot be written, it is counted as lost and nothing is raised."""
        row = dict(zip(_NAMES, _values(record), strict=True))
        if not self._keep_text:
            row["text"] = None
        try:
            line = _encoded(row)
        except ValueError:
            line = _encoded({name: _finite(value) for name, value in row.items()})
        # Half of a surrogate pair, which JSON can bring, is no text; it becomes a question mark.
        self._files.append(line.encode("utf-8", "replace"))

    def close(self) -> None:
        """End the file."""
        self._files.close()


def read_log(folder: str | Path) -> Iterator[Record]:
    """All decisions of a log, file by file; within a file in the order in which their answers ended.

    Args:
        folder: Of the log.

    Yields:
        Records. Fields that a later version added have their defaults, and fields that this version does not know are left out.

    Example:
        >>> list(read_log("no/such/log"))
        []
    """
    for row in read_rows(Path(folder) / DECISIONS):
        yield record_of(row)


def record_of(row: dict[str, Any]) -> Record:
    """A row as it was read."""
    lacking = [name for name in _REQUIRED if name not in row]
    if lacking:
        raise TableError(f"a line of the decision log needs {lacking[0]!r}, got none; is this another kind of file?")
    known = {name: row[name] for name in _NAMES if name in row}
    return Record(**known | {name: tuple(known[name]) for name in _LISTS})


def spent_since(folder: str | Path, time: float) -> dict[str, float]:
    """Dollars of each client's key whose answers have ended since then: what a gateway must know of when it starts again.

    Args:
        folder: Of the log.
        time: Seconds since 1970.

    Returns:
        Dollars by the name of the key.

    Example:
        >>> spent_since("no/such/log", 0.0)
        {}
    """
    spent: dict[str, float] = {}
    for row in read_rows(Path(folder) / DECISIONS, ["time", "seconds", "key", "dollars"], since=time):
        if row["time"] + (row["seconds"] or 0.0) >= time and row["dollars"]:
            spent[row["key"]] = spent.get(row["key"], 0.0) + row["dollars"]
    return spent


def _folder(rules: LogRules) -> Path:
    if rules.folder is None:
        raise ArgumentError("a decision log needs a folder, got none; name one under log, or keep no log.")
    return rules.folder


def _finite(value: Any) -> Any:
    """Numbers that JSON does not know are none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_finite(item) for item in value] if isinstance(value, tuple) else value
