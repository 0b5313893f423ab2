"""The store of calls, answers and verdicts, from which a run resumes.

A store is a folder of Parquet parts and of journals, which are later converted to parts. If the
process is killed at any moment, all parts are intact, and only the last line of a journal may be
truncated. A journal is deleted only after its parts have been written; an entry that is in both is
counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mildroute._files import atomic_write, file_lock
from mildroute._format import format_dollars, pluralize
from mildroute._jsonl import OPENING, WriteAheadLog, read_file
from mildroute.collection.entries import ANSWERS, SCHEMAS, STARTED, VERDICTS, Entry, to_row

__all__ = ["AnswerStore", "Spending", "StoredState", "unanswered_calls"]

Row: TypeAlias = dict[str, Any]

# Maximum lines and bytes of a journal, which is held in memory while it is converted to parts.
_MAX_JOURNAL_LINES = 20_000
_MAX_JOURNAL_BYTES = 32 << 20
# Number of rows to read at a time, without and with texts.
_BATCH_ROWS = 8192
_BATCH_ROWS_WITH_TEXTS = 256


class Spending(NamedTuple):
    """The dollars of the calls in a folder.

    Args:
        paid: Dollars of answers and verdicts.
        reserved: Upper bound on the dollars of calls whose answers were lost, which may have been
            charged.
        lost_calls: Number of those calls.

    Example:
        >>> print(Spending(2.0, 0.5, 3))
        $2.00 paid, up to $0.50 for 3 lost calls
    """

    paid: float = 0.0
    reserved: float = 0.0
    lost_calls: int = 0

    @property
    def total(self) -> float:
        """The dollars that count toward a cap."""
        return self.paid + self.reserved

    def __str__(self) -> str:
        """Return both amounts as text."""
        if not self.lost_calls:
            return f"{format_dollars(self.paid)} paid"
        lost = f"{format_dollars(self.reserved)} for {pluralize(self.lost_calls, 'lost call')}"
        return f"{format_dollars(self.paid)} paid, up to {lost}"


@dataclass
class StoredState:
    """The stored answers of some experts and verdicts of a judge.

    Args:
        experts: Names of the experts.
        answered: Digests of the queries that each expert has answered in its present version.
        judged: Digests of the queries for which each expert has a score of the judge.
        texts: Answers without a verdict, by expert and digest.
        spending: Dollars of all entries, including those of other versions.
    """

    experts: tuple[str, ...]
    answered: dict[str, set[str]] = field(default_factory=dict)
    judged: dict[str, set[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending)

    def __post_init__(self) -> None:
        """Add a set for each expert."""
        for name in self.experts:
            self.answered.setdefault(name, set())
            self.judged.setdefault(name, set())


class AnswerStore:
    """A folder of entries; one process writes at a time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._journal: WriteAheadLog | None = None
        self._lock = ExitStack()

    def __enter__(self) -> AnswerStore:
        """Lock the folder and convert the journals of earlier runs to parts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as lock:
            lock.enter_context(file_lock(self.folder / "lock", create=True))
            self.compact()
            self._lock = lock.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Convert the journal to parts and unlock the folder."""
        with self._lock:
            self.compact()

    @property
    def journals(self) -> Path:
        """The folder of the journals."""
        return self.folder / "journals"

    def add(self, entry: Entry) -> None:
        """Write an entry, which survives a kill of the process once this method has returned."""
        if self._journal is None:
            self._journal = WriteAheadLog(self.journals)
        self._journal.add(to_row(entry))
        if self._journal.lines >= _MAX_JOURNAL_LINES or self._journal.size >= _MAX_JOURNAL_BYTES:
            self._rotate(self._journal)

    def compact(self) -> None:
        """Convert all journals to parts."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        for path in sorted(self.journals.glob("*.jsonl")):
            rows = _rows_by_kind(path)
            rows[STARTED] = unanswered_calls(rows)
            self._write_parts(path, rows)
            path.unlink()
        for path in self.journals.glob(f"*{OPENING}"):
            path.unlink(missing_ok=True)

    def _rotate(self, journal: WriteAheadLog) -> None:
        """Begin a new journal with the calls in flight, and convert the old one to parts."""
        journal.close()
        rows = _rows_by_kind(journal.path)
        self._journal = WriteAheadLog(self.journals)
        for row in unanswered_calls(rows):
            self._journal.add({"kind": STARTED, **row, "attempt": 1})
        rows[STARTED] = []
        self._write_parts(journal.path, rows)
        journal.path.unlink()

    def entries(self, kind: str, columns: list[str] | None = None) -> Iterator[Row]:
        """Yield all entries of a kind as rows, in the order in which they were written.

        Entries of a journal are left out until they are in a part.
        """
        for batch in self._batches(kind, columns):
            yield from batch.to_pylist()

    def read_state(self, versions: dict[str, str], judge: tuple[str, str]) -> StoredState:
        """Return the stored state of some experts and a judge.

        Args:
            versions: Version of each expert.
            judge: Name and version of the judge.
        """
        state = StoredState(tuple(versions))
        state.spending = self.spending()
        for row in self.entries(
            VERDICTS, ["expert", "version", "query", "judge", "judge_version", "score"]
        ):
            is_current = (
                versions.get(row["expert"]) == row["version"]
                and (row["judge"], row["judge_version"]) == judge
            )
            if is_current and row["score"] is not None:
                state.judged[row["expert"]].add(row["query"])
        for row in self.entries(ANSWERS, ["expert", "version", "query", "text", "error"]):
            expert = row["expert"]
            query = row["query"]
            if versions.get(expert) == row["version"] and not row["error"]:
                state.answered[expert].add(query)
                if query not in state.judged[expert]:
                    state.texts[expert, query] = row["text"]
        return state

    def spending(self) -> Spending:
        """Return the dollars that were paid, and the upper bound on those of lost calls."""
        paid = 0.0
        reserved = 0.0
        lost_calls = 0
        for kind in (ANSWERS, VERDICTS):
            for batch in self._batches(kind, ["dollars", "unconfirmed_cost"]):
                unconfirmed = batch.column("unconfirmed_cost")
                paid += _sum(batch.column("dollars"))
                reserved += _sum(unconfirmed)
                lost_calls += int(_sum(pc.greater(unconfirmed, 0.0)))
        for batch in self._batches(STARTED, ["worst"]):
            reserved += _sum(batch.column("worst"))
            lost_calls += batch.num_rows
        return Spending(paid, reserved, lost_calls)

    def _batches(self, kind: str, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        has_texts = columns is None or "text" in columns
        for path in sorted((self.folder / kind).glob("*.parquet")):
            yield from pq.ParquetFile(path).iter_batches(
                _BATCH_ROWS_WITH_TEXTS if has_texts else _BATCH_ROWS, columns=columns
            )

    def _write_parts(self, journal: Path, rows_by_kind: dict[str, list[Row]]) -> None:
        """Write a part for each kind, named after the journal so that no entry counts twice."""
        for kind, rows in rows_by_kind.items():
            if not rows:
                continue
            (self.folder / kind).mkdir(exist_ok=True)
            target = self.folder / kind / f"{journal.stem}.parquet"
            table = pa.Table.from_pylist(rows, schema=SCHEMAS[kind])
            with atomic_write(target) as beside:
                pq.write_table(table, beside, write_page_checksum=True)


def _sum(column: Any) -> float:
    return float(pc.sum(column).as_py() or 0.0)


def _rows_by_kind(journal: Path) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for row in read_file(journal):
        rows.setdefault(row["kind"], []).append(
            {name: value for name, value in row.items() if name != "kind"}
        )
    return rows


def unanswered_calls(rows: dict[str, list[Row]]) -> list[Row]:
    """Return the last attempts of calls without an answer or a verdict in the same journal.

    A cell is called again only after the answer to its last call.

    Args:
        rows: The rows of a journal, by kind.
    """
    finished = Counter(map(_call_key, (*rows.get(ANSWERS, []), *rows.get(VERDICTS, []))))
    calls: dict[tuple[str, ...], list[Row]] = {}
    for row in rows.get(STARTED, []):
        started = calls.setdefault(_call_key(row), [])
        if started and row.get("attempt", 1) > 1:
            started.pop()
        started.append(row)
    return [row for call, started in calls.items() for row in started[finished[call] :]]


def _call_key(row: Row) -> tuple[str, ...]:
    return row["expert"], row["version"], row["query"], row.get("judge", "")
