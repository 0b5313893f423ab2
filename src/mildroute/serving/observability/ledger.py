"""The ledger: each call of an expert, once, in a database, and spend reports."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mildroute._jsonl import TABLE, check_log, log_files
from mildroute.exceptions import ArgumentError
from mildroute.serving.auth.database import Database
from mildroute.serving.observability.decision_log import (
    DECISIONS,
    check_decision,
    read_decisions,
    rows_behind,
)
from mildroute.serving.observability.feedback import SAMPLES, read_samples

__all__ = ["GROUPS", "Ledger", "SpendEntry", "read_entries", "summarize_spend"]


# What a report may be grouped by.
GROUPS = ("key", "team", "expert", "day")

_REQUIRED = ("decision_id", "time", "seconds", "key", "attempts")
# Logs of before November 2026 have no team.
_COLUMNS = (*_REQUIRED, "team")
# Lines of a transaction.
_BATCH = 2000
_TABLES = (
    """CREATE TABLE IF NOT EXISTS mildroute_spend (
        decision_id TEXT NOT NULL, attempt INTEGER NOT NULL, time DOUBLE NOT NULL,
        key_name TEXT NOT NULL, team TEXT NOT NULL, expert TEXT NOT NULL,
        tokens_in BIGINT NOT NULL, tokens_out BIGINT NOT NULL, cost_usd DOUBLE NOT NULL,
        PRIMARY KEY (decision_id, attempt))""",
    "CREATE INDEX IF NOT EXISTS mildroute_spend_time ON mildroute_spend (time)",
    """CREATE TABLE IF NOT EXISTS mildroute_ingested (
        file TEXT PRIMARY KEY, bytes BIGINT NOT NULL, lines BIGINT NOT NULL)""",
)


class SpendEntry(NamedTuple):
    """One call of an expert.

    Args:
        attempt: Its position among the calls of its decision, from 0.
        time: End of the answer, in seconds since 1970; budgets use the same time.
    """

    decision_id: str
    attempt: int
    time: float
    key: str
    team: str
    expert: str
    tokens_in: int
    tokens_out: int
    cost_usd: float


def _entries_of(row: dict[str, Any]) -> Iterator[SpendEntry]:
    check_decision(row, _REQUIRED)
    ended = row["time"] + (row["seconds"] or 0.0)
    for number, call in enumerate(row["attempts"]):
        yield SpendEntry(
            row["decision_id"],
            number,
            ended,
            row["key"],
            row.get("team") or "",
            call["expert"],
            call["tokens_in"] or 0,
            call["tokens_out"] or 0,
            call["cost_usd"] or 0.0,
        )


# Key of sampled calls in reports; a client's key cannot have such a name.
SAMPLING_KEY = "(sampling)"
# Number of the first sampled call of a decision, behind all that served it.
_FIRST_SAMPLED = 1000


def _entries_of_sample(row: dict[str, Any]) -> Iterator[SpendEntry]:
    """Yield sampled calls and the cost of judging; the call that served is in its decision."""
    empty = [0] * len(row["experts"])
    calls = zip(
        row["experts"],
        row.get("tokens_in") or empty,
        row.get("tokens_out") or empty,
        row["cost_usd"],
        strict=True,
    )
    entries = [call for call in calls if call[0] != row.get("served_by") and call[3] is not None]
    if row.get("judge_usd"):
        entries.append((row.get("judged_by") or "", 0, 0, row["judge_usd"]))
    for number, call in enumerate(entries, _FIRST_SAMPLED):
        yield SpendEntry(row["decision_id"], number, row["time"], SAMPLING_KEY, "", *call)


def read_entries(
    folder: str | Path, since: float = 0.0, until: float = math.inf
) -> Iterator[SpendEntry]:
    """Yield the calls of a log within a time range, including sampled ones."""
    check_log(folder)
    found = itertools.chain(
        map(_entries_of, read_decisions(folder, since=since)),
        map(_entries_of_sample, read_samples(folder)),
    )
    for entries in found:
        yield from (entry for entry in entries if since <= entry.time < until)


class Ledger(Database):
    """Calls of experts in a database, unique by their decision and their position in it.

    The position up to which each file of a log was read is committed together with its calls. So a
    log may be ingested again, by several processes at once, or after a kill: each call counts once.

    Args:
        url: URL of the database, as for client keys.
        create: Whether to create missing tables, and a missing SQLite file.
    """

    tables = _TABLES

    def __init__(self, url: str, *, create: bool = False) -> None:
        super().__init__(url, create=create)
        # Size of each file when it was last entered: most of them never change again.
        self._sizes: dict[Path, int] = {}

    def ingest(self, folder: str | Path) -> int:
        """Add the new calls of a decision log and return their number."""
        check_log(folder)
        added = 0
        for part in (DECISIONS, SAMPLES):
            for path in log_files(Path(folder) / part):
                try:
                    added += self._ingest_file(path, part)
                except FileNotFoundError:  # it was tidied a moment ago
                    added += self._ingest_file(path.with_suffix(TABLE), part)
        return added

    def entries(self, since: float = 0.0, until: float = math.inf) -> Iterator[SpendEntry]:
        """Yield the calls within a time range."""
        query = (
            "SELECT decision_id, attempt, time, key_name, team, expert, tokens_in, tokens_out,"
            " cost_usd FROM mildroute_spend WHERE time >= %s AND time < %s"
        )
        return (SpendEntry(*row) for row in self.stream(query, since, min(until, 1e300)))

    def _ingest_file(self, path: Path, part: str) -> int:
        size = path.stat().st_size
        if self._sizes.get(path) == size:
            return 0
        columns, entries_of = (
            (_COLUMNS, _entries_of) if part == DECISIONS else (None, _entries_of_sample)
        )
        first = next(rows_behind(path, 0, 0, columns), None)
        if first is None:
            return 0
        # Files of two machines may have one name, but not one decision.
        name = f"{path.stem}/{check_decision(first[0], ('decision_id',))['decision_id']}"
        if part != DECISIONS:
            name = f"{part}/{name}"
        known = self.execute("SELECT bytes, lines FROM mildroute_ingested WHERE file = %s", name)
        end, lines = known[0] if known else (0, 0)
        rows = rows_behind(path, end, lines, columns)
        added = 0
        while batch := list(itertools.islice(rows, _BATCH)):
            end, lines = batch[-1][1], lines + len(batch)
            entries = [entry for row, _ in batch for entry in entries_of(row)]
            added += self._enter(entries, name, end, lines)
        self._sizes[path] = size
        return added

    def _enter(self, entries: list[SpendEntry], name: str, end: int, lines: int) -> int:
        with self.transaction():
            added = self.execute_many(
                "INSERT INTO mildroute_spend VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                entries,
            )
            # Of two processes, the one that lags behind must not turn the other one back.
            self.execute(
                "INSERT INTO mildroute_ingested VALUES (%s, %s, %s) ON CONFLICT (file) DO UPDATE"
                " SET bytes = excluded.bytes, lines = excluded.lines"
                " WHERE excluded.lines > mildroute_ingested.lines",
                *(name, end, lines),
            )
        return added if entries else 0


def summarize_spend(entries: Iterable[SpendEntry], by: Sequence[str]) -> list[dict[str, Any]]:
    """Sum calls, tokens and dollars of each group, in the order of their names.

    Sums of dollars are exact and rounded once, like those of ``math.fsum``: databases add in any
    order, and their sums would differ from those of the log in the last digits.

    Args:
        entries: Calls, as a ledger or a log has them.
        by: Some of :data:`GROUPS`.
    """
    unknown = [name for name in by if name not in GROUPS]
    if unknown or not by:
        raise ArgumentError(
            f"a report is grouped by some of {', '.join(GROUPS)}, got"
            f" {', '.join(unknown) or 'none'}; write --by key,day."
        )
    groups: dict[tuple[str, ...], list[int]] = {}
    for entry in entries:
        label = tuple(_day(entry.time) if name == "day" else getattr(entry, name) for name in by)
        sums = groups.setdefault(label, [0, 0, 0, 0])
        sums[0] += 1
        sums[1] += entry.tokens_in
        sums[2] += entry.tokens_out
        sums[3] += _exact(entry.cost_usd)
    return [
        dict(zip(by, label, strict=True))
        | {"calls": calls, "tokens_in": tokens_in, "tokens_out": tokens_out}
        | {"dollars": dollars / _UNIT}
        for label, (calls, tokens_in, tokens_out, dollars) in sorted(groups.items())
    ]


# The smallest number that a double can hold is 2**-1074, and all others are multiples of it.
_BITS = 1074
_UNIT = 2**_BITS


def _exact(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_BITS + 1 - denominator.bit_length())


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
