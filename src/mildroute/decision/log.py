"""The decision log: one line of JSON for each decision.

The gateway writes a line when the answer has ended. An integration that calls no experts itself
writes the line at once; the outcomes follow in a separate folder and are joined when the log is
read. Lines are in the folder ``decisions`` of the log's folder. They contain the text of a request
only if ``log_prompts`` is set.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from mildroute._jsonl import JsonlWriter, log_part, read_rows
from mildroute.decision.days import start_of_day
from mildroute.decision.outcomes import join_outcomes, read_outcomes
from mildroute.decision.settings import DecisionLogConfig
from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "DECISIONS",
    "DecisionLog",
    "DecisionRecord",
    "check_decision",
    "dollars_of_today",
    "read_decisions",
    "read_log",
]


# Folder of the decisions within the log's folder.
DECISIONS = "decisions"
_SPEND_COLUMNS = ("time", "seconds", "key", "cost_usd")


@dataclass(frozen=True)
class DecisionRecord:
    """The decision for one request and its outcome.

    A record is written once and never changed.

    Args:
        decision_id: Id of the decision, to which ``POST /v1/feedback`` refers.
        time: Arrival of the request, in seconds since 1970.
        key: Name of the client's key, or empty.
        path: Path of the request, such as ``"chat/completions"``.
        price_weight: Price weight of the decision, or ``None``; between two vertices, that of the
            likelier one.
        propensity: Probability that the selected expert was chosen, over the draw between vertices
            and exploration.
        propensities: Propensity of each expert, in the order of ``experts``; 0 if it was excluded.
        served_by: Expert that answered, or empty.
        attempts: Every call to an expert: the expert's name, the reason for a failure or an empty
            text, the status of the response or 0, tokens, dollars and seconds.
        status: Status that the client received; 499 if it disconnected.
        tokens_in: Input tokens, as reported by the expert or estimated.
        cost_usd: Dollars of all attempts.
        baseline_cost_usd: Dollars that the baseline expert would have charged for the same tokens.
        first_byte_seconds: Seconds from the request's arrival to the first byte of the answer.
        conversation: Digest of the conversation, or empty.
        shadow: Choice of the shadow router, or empty.
        text: The routed text if logging it is enabled, otherwise ``None``.
        request_id: The client's id of the request, which seeds the coin; if empty, the text is the
            seed.
        target: Target that selected the operating point, such as ``"quality 0.95"``; empty for the
            router's own.
        first_choice: The router's own choice, before affinity, circuits and exploration; empty if
            it has none.
        trace_id: Id of the request's trace, in 32 hexadecimal digits; empty without a trace.
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
    look: str = ""


_NAMES = tuple(field.name for field in fields(DecisionRecord))
_REQUIRED = tuple(field.name for field in fields(DecisionRecord) if field.default is MISSING)
_LISTS = ("experts", "posterior", "propensities", "attempts")
_values = attrgetter(*_NAMES)
_encoded = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def dollars_of_today(folder: str | Path, now: float) -> dict[str, float]:
    """Sum the dollars of each key over the requests of a log that ended on this UTC day.

    Files that were last written before midnight are not read.
    """
    midnight = start_of_day(now)
    if not Path(folder, DECISIONS).is_dir():
        return {}
    dollars: dict[str, float] = {}
    for row in read_decisions(folder, _SPEND_COLUMNS, since=midnight):
        ended = row["time"] + (row["seconds"] or 0.0)
        if ended >= midnight:
            dollars[row["key"]] = dollars.get(row["key"], 0.0) + (row["cost_usd"] or 0.0)
    return dollars


class DecisionLog:
    """The decision log, in which each record is written with one system call.

    Args:
        config: Folder, rows per file, and whether texts are logged.

    Attributes:
        lost: Number of entries that could not be written because the disk was full or missing.
    """

    def __init__(self, config: DecisionLogConfig) -> None:
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
        # A lone surrogate, which JSON can contain, cannot be encoded; it becomes a question mark.
        data = line.encode("utf-8", "replace")
        self._files.append(data)

    def close(self) -> None:
        """Close the file."""
        self._files.close()


def read_log(folder: str | Path) -> Iterator[DecisionRecord]:
    """Yield all decisions of a log, file by file.

    Within a file, they are in the order in which their answers ended.

    Yields:
        Records. Fields that a later version added have their defaults, and fields that this version
        does not know are left out.
    """
    for row in read_decisions(folder):
        values = {name: row[name] for name in _NAMES if name in row}
        yield DecisionRecord(**values | {name: tuple(values[name]) for name in _LISTS})


def read_decisions(
    folder: str | Path, columns: Sequence[str] | None = None, *, since: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield the checked rows of a decision log, as :func:`~mildroute._jsonl.read_rows` does.

    Rows that were shipped to a URL may be stored twice; each is read once. A decision whose calls
    were reported separately is joined with their outcomes.
    """
    is_shipped = "://" in str(folder)
    outcomes = read_outcomes(folder)
    if columns is not None and (is_shipped or outcomes):
        columns = list(dict.fromkeys(("decision_id", "seconds", *columns)))
    seen: set[str] = set()
    for row in read_rows(log_part(folder, DECISIONS), columns, since=since):
        check_decision(row, columns)
        if is_shipped:
            if row["decision_id"] in seen:
                continue
            seen.add(row["decision_id"])
        calls = outcomes.get(row["decision_id"]) if outcomes else None
        yield row if calls is None else join_outcomes(row, calls)


def check_decision(row: dict[str, Any], columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the row itself if it has the fields of a decision.

    Rows from before November 2026 have ``answered``, ``chosen`` and ``dollars`` instead. They are
    rejected, because they would otherwise be read as decisions that no expert served.
    """
    for name in _REQUIRED if columns is None else columns:
        if name not in row:
            raise TableError(
                f"a row of the decision log needs {name!r}, got none; the file is of another kind,"
                " or of an earlier version, whose logs cannot be read: move it elsewhere."
            )
    return row


def _folder(config: DecisionLogConfig) -> Path:
    if config.folder is None:
        raise ArgumentError(
            "a decision log needs a folder, got none; set folder under log, or remove log."
        )
    return config.folder


def _finite(value: Any) -> Any:
    """Replace numbers that JSON cannot express with ``None``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, tuple) else value
