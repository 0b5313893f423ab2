"""The decision log: one record for each request."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from mildroute._jsonl import TABLE, JsonlWriter, log_files, log_part, read_file, read_rows
from mildroute.exceptions import ArgumentError, TableError
from mildroute.serving.auth.limits import DAY, start_of_day, start_of_month
from mildroute.serving.config import DecisionLogConfig

__all__ = [
    "DECISIONS",
    "DecisionLog",
    "DecisionRecord",
    "SpendLedger",
    "check_decision",
    "read_decisions",
    "read_log",
    "rows_behind",
]


# One line of the decision log.


@dataclass(frozen=True)
class DecisionRecord:
    """The decision for one request and its outcome.

    Written once, when the response has ended.

    Args:
        decision_id: Id of the decision, which ``POST /v1/feedback`` refers to.
        time: Arrival of the request, in seconds since 1970.
        key: Name of the client's key, or empty.
        path: Path of the request, such as ``"chat/completions"``.
        price_weight: Price weight of the decision, or none; between two vertices, that of the
            likelier one.
        propensity: Probability that it was chosen, before randomization and exploration.
        propensities: Those of all experts, in the order of ``experts``; 0 for an excluded expert.
        served_by: Expert that answered, or empty.
        attempts: Every call to an expert: its name, the reason for its failure or empty, the status
            of its response or 0, tokens, dollars and seconds.
        status: Status that the client received; 499 if it disconnected.
        tokens_in: Input tokens, as the expert counted them or estimated.
        cost_usd: Dollars of all attempts.
        baseline_cost_usd: What the baseline expert would have charged for the same tokens.
        first_byte_seconds: From the request's arrival to the first byte of the answer.
        conversation: Digest of the conversation, or empty.
        shadow: What the shadow router chose, or empty.
        text: The routed text if logging it is enabled, otherwise none.
        request_id: The client's id of the request, which seeds the coin; empty if the text does.
        target: Target that selected the operating point, such as ``"quality 0.95"``; empty for the
            router's own.
        first_choice: The router's own choice, before affinity, circuits and exploration; empty if
            it has none.
        trace_id: Id of the request's trace, in 32 hexadecimal digits; empty without one.
        team: Name of the client's team at the time, or empty.
        look: Name of the chosen look of a cascade, or empty.
    """

    decision_id: str
    time: float
    key: str
    path: str
    model: str
    router: str
    experts: tuple[str, ...]
    posterior: tuple[float, ...]
    price_weight: float | None
    reason: str
    selected: str
    propensity: float
    propensities: tuple[float, ...]
    served_by: str
    attempts: tuple[dict[str, Any], ...]
    status: int
    tokens_in: int
    tokens_out: int
    cost_usd: float
    baseline_cost_usd: float
    decision_seconds: float
    first_byte_seconds: float
    seconds: float
    conversation: str = ""
    shadow: str = ""
    text: str | None = None
    request_id: str = ""
    target: str = ""
    first_choice: str = ""
    trace_id: str = ""
    team: str = ""
    look: str = ""


# The decision log: one line for each decision, written when its answer has ended.
#
# Lines are JSON, in the folder ``decisions`` of the log's folder; ``mildroute log tidy`` turns
# finished files into Parquet, and reading takes both. No line holds the text of a request unless
# that is switched on.


# Folder of the decisions within that of the log.
DECISIONS = "decisions"
# The checkpoint of the dollars of keys, in the folder of the log.
CHECKPOINT = "spend.json"

_CHECKPOINT_SECONDS = 5.0
_SPEND_COLUMNS = ("time", "seconds", "key", "cost_usd")

_NAMES = tuple(field.name for field in fields(DecisionRecord))
_REQUIRED = tuple(field.name for field in fields(DecisionRecord) if field.default is MISSING)
_LISTS = ("experts", "posterior", "propensities", "attempts")
_values = attrgetter(*_NAMES)
_encoded = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


class SpendLedger:
    """Dollars of each key in the UTC day and month, and the log position up to which they count.

    A checkpoint is stored beside the log: a restarted gateway reads only the rows after it, not
    those of the whole month. The checkpoint is replaced atomically, so a kill leaves the latest one
    or the one before it.

    Args:
        folder: Folder of the log.
        now: A time within the counted day and month, in seconds since 1970.

    Attributes:
        dollars: Dollars of the day, by key.
        month_dollars: Dollars of the month, by key.
    """

    def __init__(self, folder: str | Path, now: float) -> None:
        self._path = Path(folder) / CHECKPOINT
        self._day = start_of_day(now)
        self._month = start_of_month(now)
        # Bytes and lines of each file that are counted, by its name without its suffix.
        self._counted: dict[str, tuple[int, int]] = {}
        self._saved = time.monotonic()
        self.dollars: dict[str, float] = {}
        self.month_dollars: dict[str, float] = {}

    @classmethod
    def resume(cls, folder: str | Path, now: float) -> SpendLedger:
        """Read the checkpoint and the rows after it, or without one all rows of the month."""
        ledger = cls(folder, now)
        ledger._read_checkpoint()
        for path in log_files(Path(folder) / DECISIONS):
            try:
                ledger._read_file(path)
            except FileNotFoundError:  # it was tidied a moment ago
                ledger._read_file(path.with_suffix(TABLE))
        return ledger

    def spent(self, now: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the dollars of the day and the month of a given time, by key."""
        self._turn_to(now)
        return self.dollars, self.month_dollars

    def _turn_to(self, now: float) -> None:
        """Begin a new day or month if the date has changed."""
        if now >= self._day + DAY:
            self._day = start_of_day(now)
            self.dollars = {}
            if start_of_month(now) > self._month:
                self._month = start_of_month(now)
                self.month_dollars = {}

    def add(self, key: str, dollars: float, ended: float, stem: str, end: int) -> None:
        """Count the next line of a file, which ends at this byte."""
        self._turn_to(ended)
        if dollars and ended >= self._month:
            self.month_dollars[key] = self.month_dollars.get(key, 0.0) + dollars
            if ended >= self._day:
                self.dollars[key] = self.dollars.get(key, 0.0) + dollars
        self._counted[stem] = (end, self._counted.get(stem, (0, 0))[1] + 1)

    def save_if_due(self) -> None:
        """Write the checkpoint if the last one is a few seconds old."""
        if time.monotonic() - self._saved >= _CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the checkpoint; if that fails, the old one stays and is still valid."""
        self._saved = time.monotonic()
        document = {
            "day": self._day,
            "dollars": self.dollars,
            "month": self._month,
            "month_dollars": self.month_dollars,
            "counted": self._counted,
        }
        beside = self._path.with_name(f".{CHECKPOINT}.{os.getpid()}")
        # It is not synced, which would hold up requests: after a loss of power the whole month is
        # read, as if there were none.
        with contextlib.suppress(OSError):
            beside.touch(mode=0o640)
            beside.write_text(json.dumps(document), encoding="utf-8")
            beside.replace(self._path)

    def _read_file(self, path: Path) -> None:
        if path.stat().st_mtime < self._month:
            self._counted.pop(path.stem, None)
            return
        counted = self._counted.get(path.stem, (0, 0))
        for row, end in rows_behind(path, *counted, columns=_SPEND_COLUMNS):
            check_decision(row, _SPEND_COLUMNS)
            ended = row["time"] + (row["seconds"] or 0.0)
            self.add(row["key"], row["cost_usd"] or 0.0, ended, path.stem, end)

    def _read_checkpoint(self) -> None:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            day, month = document["day"], document["month"]
            sums = [
                {key: float(value) for key, value in document[name].items()}
                for name in ("dollars", "month_dollars")
            ]
            counted = {
                stem: (int(end), int(lines)) for stem, (end, lines) in document["counted"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        # An older checkpoint has counted no line of this day, or of this month. One of a later day
        # was written by another clock, and its lines are counted again.
        if day <= self._day and month <= self._month:
            self._counted = counted
            self.dollars = sums[0] if day == self._day else {}
            self.month_dollars = sums[1] if month == self._month else {}


def rows_behind(
    path: Path, start: int, lines: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the rows of a file after a byte offset, each with the offset of its end.

    A file that was compacted in the meantime has the same rows in the same order.
    """
    if path.suffix == TABLE:
        for row in itertools.islice(read_file(path, columns), lines, None):
            yield row, start
        return
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        yield from rows_behind(path.with_suffix(TABLE), start, lines, columns)
        return
    with opened as file:
        file.seek(start)
        for line in file:
            start += len(line)
            # The last line may be half written yet, or was cut off by the death of its writer.
            if line.endswith(b"\n"):
                yield _parse_line(path, line), start


def _parse_line(path: Path, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise TableError(
            f"{path.name}: a line must be one JSON object, got something else; put the file aside."
        )
    return row


class DecisionLog:
    """Writes records, each with one system call.

    Args:
        config: Folder, rows per file, and whether texts are logged.
        ledger: Counts the dollars of the written records and keeps a checkpoint, or none.

    Attributes:
        lost: Number of entries that could not be written because the disk was full or missing.
    """

    def __init__(self, config: DecisionLogConfig, ledger: SpendLedger | None = None) -> None:
        self._ledger = ledger
        self._files = JsonlWriter(_folder(config) / DECISIONS, config.rows_per_file)
        self._log_prompts = config.log_prompts

    @property
    def lost(self) -> int:
        """Number of entries that could not be written."""
        return self._files.lost

    def write(self, record: DecisionRecord) -> None:
        """Append one entry; if that fails, it is counted as lost and nothing is raised."""
        row = dict(zip(_NAMES, _values(record), strict=True))
        if not self._log_prompts:
            row["text"] = None
        try:
            line = _encoded(row)
        except ValueError:
            line = _encoded({name: _finite(value) for name, value in row.items()})
        # Half of a surrogate pair, which JSON can bring, is no text; it becomes a question mark.
        data = line.encode("utf-8", "replace")
        written = self._files.append(data)
        if written is not None and self._ledger is not None:
            ended = record.time + record.seconds
            self._ledger.add(record.key, record.cost_usd, ended, *written)
            self._ledger.save_if_due()

    def close(self) -> None:
        """Close the file."""
        self._files.close()
        if self._ledger is not None:
            self._ledger.save()


def read_log(folder: str | Path) -> Iterator[DecisionRecord]:
    """Yield all decisions of a log, file by file.

    Within a file, they are in the order in which their answers ended.

    Yields:
        Records. Fields that a later version added have their defaults, and fields that this version
        does not know are left out.
    """
    for row in read_decisions(folder):
        known = {name: row[name] for name in _NAMES if name in row}
        yield DecisionRecord(**known | {name: tuple(known[name]) for name in _LISTS})


def read_decisions(
    folder: str | Path, columns: Sequence[str] | None = None, *, since: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Rows of a decision log, as :func:`~mildroute._jsonl.read_rows` reads them, but checked.

    Rows that were shipped to a URL may be stored twice; each is read once.
    """
    is_shipped = "://" in str(folder)
    if is_shipped and columns is not None:
        columns = list(dict.fromkeys(("decision_id", *columns)))
    seen: set[str] = set()
    for row in read_rows(log_part(folder, DECISIONS), columns, since=since):
        check_decision(row, columns)
        if is_shipped:
            if row["decision_id"] in seen:
                continue
            seen.add(row["decision_id"])
        yield row


def check_decision(row: dict[str, Any], columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the row itself if it has the fields of a decision.

    Rows from before November 2026, with ``answered``, ``chosen`` and ``dollars``, do not: reading
    them as decisions that no expert served would be worse than rejecting them.
    """
    for name in _REQUIRED if columns is None else columns:
        if name not in row:
            raise TableError(
                f"a row of the decision log needs {name!r}, got none; the file is of another kind,"
                " or of an earlier version, whose logs cannot be read: put it aside."
            )
    return row


def _folder(config: DecisionLogConfig) -> Path:
    if config.folder is None:
        raise ArgumentError(
            "a decision log needs a folder, got none; name one under log, or keep no log."
        )
    return config.folder


def _finite(value: Any) -> Any:
    """Replace numbers that JSON cannot express with none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, tuple) else value
