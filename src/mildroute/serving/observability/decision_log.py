"""The decision log: one record for each request."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from mildroute._jsonl import JsonlWriter, read_rows
from mildroute.exceptions import ArgumentError, TableError
from mildroute.serving.config import DecisionLogConfig

__all__ = ["DECISIONS", "DecisionLog", "DecisionRecord", "read_log", "spent_since"]


# One line of the decision log.


@dataclass(frozen=True)
class DecisionRecord:
    """What was decided for one request and what came of it; written once, when its answer has ended.

    Args:
        decision_id: Its name, which ``POST /v1/feedback`` refers to.
        time: Seconds since 1970, when the request had arrived.
        key: Name of the client's key, or empty.
        path: What was called, such as ``"chat/completions"``.
        model: What the client asked for.
        router: Digest of the artifact.
        experts: Names, in the router's order.
        posterior: The router's posterior over them.
        price_weight: At which it decided, or none; between two vertices that of the likelier one.
        reason: Why the first choice is the first choice.
        chosen: Whom the policy chose first.
        propensity: Probability with which it was chosen, before the coin and the lots.
        propensities: Of all experts, in the order of ``experts``; 0 where one was left out.
        answered: Who answered, or empty.
        attempts: Experts that were asked.
        status: Status that the client saw; 499 if it went away.
        tokens_in: As the expert counted, or estimated.
        tokens_out: Likewise.
        dollars: Of the answer, at the prices of experts.yaml.
        baseline_dollars: What the baseline expert would have charged for the same tokens.
        decision_seconds: Time to decide, encoding included.
        first_byte_seconds: From the request's arrival to the first byte of the answer.
        seconds: From the request's arrival to the last byte.
        conversation: Digest of the conversation, or empty.
        shadow: What the shadow router chose, or empty.
        text: What was routed, if that is switched on, else none.
        request_id: The client's id of the request, which seeds the coin; empty where the text itself does.
        target: What the operating point was chosen by, such as ``"quality 0.95"``; empty for the router's own.
        first_choice: What the router alone would choose, before conversations, circuits and lots; empty without an opinion.
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
    chosen: str
    propensity: float
    propensities: tuple[float, ...]
    answered: str
    attempts: int
    status: int
    tokens_in: int
    tokens_out: int
    dollars: float
    baseline_dollars: float
    decision_seconds: float
    first_byte_seconds: float
    seconds: float
    conversation: str = ""
    shadow: str = ""
    text: str | None = None
    request_id: str = ""
    target: str = ""
    first_choice: str = ""


# The decision log: one line for each decision, written when its answer has ended.
#
# Lines are JSON, in the folder ``decisions`` of the log's folder; ``mildroute log tidy`` turns
# finished files into Parquet, and reading takes both. No line holds the text of a request unless
# that is switched on.


DECISIONS = "decisions"
"""Folder of the decisions within that of the log."""

_NAMES = tuple(field.name for field in fields(DecisionRecord))
_REQUIRED = tuple(field.name for field in fields(DecisionRecord) if field.default is MISSING)
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
        >>> log = DecisionLog(DecisionLogConfig(folder))
        >>> log.write(DecisionRecord("d1", 0.0, "", "chat/completions", "mildroute", "", ("a", "b"), (0.7, 0.3), None, "router", "a", 0.95,
        ...                  (0.95, 0.05), "a", 1, 200, 9, 3, 0.01, 0.02, 0.001, 0.2, 0.5, text="a secret"))
        >>> log.close()
        >>> [(record.decision_id, record.propensities, record.text) for record in read_log(folder)]
        [('d1', (0.95, 0.05), None)]
    """

    def __init__(self, rules: DecisionLogConfig) -> None:
        self._files = JsonlWriter(_folder(rules) / DECISIONS, rules.rows)
        self._keep_text = rules.keep_text

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._files.lost

    def write(self, record: DecisionRecord) -> None:
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


def read_log(folder: str | Path) -> Iterator[DecisionRecord]:
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


def record_of(row: dict[str, Any]) -> DecisionRecord:
    """A row as it was read."""
    lacking = [name for name in _REQUIRED if name not in row]
    if lacking:
        raise TableError(f"a line of the decision log needs {lacking[0]!r}, got none; is this another kind of file?")
    known = {name: row[name] for name in _NAMES if name in row}
    return DecisionRecord(**known | {name: tuple(known[name]) for name in _LISTS})


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


def _folder(rules: DecisionLogConfig) -> Path:
    if rules.folder is None:
        raise ArgumentError("a decision log needs a folder, got none; name one under log, or keep no log.")
    return rules.folder


def _finite(value: Any) -> Any:
    """Numbers that JSON does not know are none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_finite(item) for item in value] if isinstance(value, tuple) else value
