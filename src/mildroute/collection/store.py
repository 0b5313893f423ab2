"""The store of answers and verdicts.

A journal that is compacted to Parquet, from which a run resumes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mildroute._files import atomic_write, file_lock
from mildroute._format import as_dollars, pluralize
from mildroute._jsonl import OPENING, WriteAheadLog, read_file
from mildroute.experts.base import Answer

__all__ = [
    "ANSWERS",
    "SCHEMAS",
    "STARTED",
    "VERDICTS",
    "AnswerStore",
    "CallFinished",
    "CallStarted",
    "Entry",
    "Judged",
    "Spending",
    "StoredState",
    "cell_reasons",
    "empty_reasons",
    "group_reasons",
    "rows_by_kind",
    "unanswered_in",
    "written",
]


# What is written down of a cell: that a call began, its answer, and the verdict.


STARTED, ANSWERS, VERDICTS = "started", "answers", "verdicts"


@dataclass(frozen=True)
class CallStarted:
    """A call that may cost money is about to be made, or another attempt at it.

    If no answer follows, it may have been charged up to its upper bound.

    Args:
        worst: Upper bound of this attempt and of earlier ones that may have been charged.
        attempt: From 1; those after the first stand for the same call.
        judge: Name of the judge, if the call is for a verdict.
    """

    expert: str
    version: str
    query: str
    worst: float
    attempt: int = 1
    judge: str = ""

    kind = STARTED


@dataclass(frozen=True)
class CallFinished:
    """What an expert gave to a query, or why it gave nothing.

    Args:
        text: The answer, or none.
        error: Why there is none.
        tokens_in: Tokens that went in, or none.
        tokens_out: Tokens that came out, or none.
        logprob: Mean log-probability of the answer's tokens, or none.
    """

    expert: str
    version: str
    query: str
    query_id: str
    text: str | None
    error: str
    dollars: float
    unconfirmed_cost: float
    latency: float
    tokens_in: int | None
    tokens_out: int | None
    attempts: int
    logprob: float | None

    kind = ANSWERS

    @classmethod
    def of(
        cls, answer: Answer, expert: str, version: str, query: str, query_id: str
    ) -> CallFinished:
        """From an answer."""
        return cls(
            expert,
            version,
            query,
            query_id,
            answer.text,
            answer.error,
            float(answer.dollars),
            float(answer.unconfirmed_cost),
            float(answer.latency),
            answer.tokens_in,
            answer.tokens_out,
            int(answer.attempts),
            answer.logprob,
        )


@dataclass(frozen=True)
class Judged:
    """What a judge said of an answer.

    Args:
        score: From 0 to 1, or none if it could not tell.
        unconfirmed_cost: Upper bound for attempts without a reply.
    """

    expert: str
    version: str
    query: str
    judge: str
    judge_version: str
    score: float | None
    reason: str
    dollars: float
    unconfirmed_cost: float = 0.0

    kind = VERDICTS


Entry = CallStarted | CallFinished | Judged
# Columns of each kind of entry.
SCHEMAS: Mapping[str, pa.Schema] = {
    ANSWERS: pa.schema(
        {
            "expert": pa.string(),
            "version": pa.string(),
            "query": pa.string(),
            "query_id": pa.string(),
            "text": pa.string(),
            "error": pa.string(),
            "dollars": pa.float64(),
            "unconfirmed_cost": pa.float64(),
            "latency": pa.float64(),
            "tokens_in": pa.int64(),
            "tokens_out": pa.int64(),
            "attempts": pa.int64(),
            # Stores from before have no such column.
            "logprob": pa.float64(),
        }
    ),
    VERDICTS: pa.schema(
        {
            "expert": pa.string(),
            "version": pa.string(),
            "query": pa.string(),
            "judge": pa.string(),
            "judge_version": pa.string(),
            "score": pa.float64(),
            "reason": pa.string(),
            "dollars": pa.float64(),
            # Stores from before have no such column.
            "unconfirmed_cost": pa.float64(),
        }
    ),
    STARTED: pa.schema(
        {"expert": pa.string(), "version": pa.string(), "query": pa.string(), "worst": pa.float64()}
    ),
}


def written(entry: Entry) -> dict[str, Any]:
    """The line of an entry."""
    return {"kind": entry.kind, **vars(entry)}


# All that was ever called, answered and judged in a folder: Parquet parts, and the journals that
# become parts.
#
# A kill at any moment leaves whole parts and journals whose last line may be cut off. A journal
# is deleted only when the parts made of it are in place; an entry that is in both counts once.


Row: TypeAlias = dict[str, Any]
# Lines and bytes of a journal, after which it becomes parts: making them holds it in memory as a
# whole.
_ROTATE, _LARGEST = 20_000, 32 << 20
_RUN, _RUN_OF_TEXTS = 8192, 256


class Spending(NamedTuple):
    """Dollars of the calls in a folder.

    Args:
        paid: For answers and verdicts.
        reserved: Upper bound for calls whose answers were lost, which may have been charged.
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
        """What counts toward a cap."""
        return self.paid + self.reserved

    def __str__(self) -> str:
        """Both amounts in words."""
        lost = (
            f", up to {as_dollars(self.reserved)} for {pluralize(self.lost_calls, 'lost call')}"
            if self.lost_calls
            else ""
        )
        return f"{as_dollars(self.paid)} paid{lost}"


@dataclass
class StoredState:
    """What an archive holds of some experts and a judge.

    Args:
        answered: Digests of the queries that each expert has answered in its present version.
        texts: Answers that wait for a verdict, by expert and digest.
        spending: Dollars of all entries, those of other versions too.
    """

    experts: tuple[str, ...]
    answered: dict[str, set[str]] = field(default_factory=dict)
    judged: dict[str, set[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending)

    def __post_init__(self) -> None:
        """A set for each expert."""
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
        """Take the folder and bring order into what earlier runs left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as lock:
            lock.enter_context(file_lock(self.folder / "lock", create=True))
            self.compact()
            self._lock = lock.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Make parts of the journal and let go."""
        with self._lock:
            self.compact()

    @property
    def journals(self) -> Path:
        """Folder of the journals."""
        return self.folder / "journals"

    def add(self, entry: Entry) -> None:
        """Write an entry down; when this returns, a kill cannot undo it."""
        if self._journal is None:
            self._journal = WriteAheadLog(self.journals)
        self._journal.add(written(entry))
        if self._journal.lines >= _ROTATE or self._journal.size >= _LARGEST:
            self._turn_over()

    def compact(self) -> None:
        """Make parts of all journals."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        for path in sorted(self.journals.glob("*.jsonl")):
            rows = rows_by_kind(path)
            rows[STARTED] = unanswered_in(rows)
            self._make_parts(path, rows)
            path.unlink()
        for path in self.journals.glob(f"*{OPENING}"):
            path.unlink(missing_ok=True)

    def _turn_over(self) -> None:
        """Begin a new journal with the calls that are in flight, and make parts of the old one."""
        old = self._journal
        if old is None:
            return
        old.close()
        rows = rows_by_kind(old.path)
        self._journal = WriteAheadLog(self.journals)
        for row in unanswered_in(rows):
            self._journal.add({"kind": STARTED, **row, "attempt": 1})
        rows[STARTED] = []
        self._make_parts(old.path, rows)
        old.path.unlink()

    def entries(self, kind: str, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """All entries of a kind as plain rows, in the order in which they were written.

        Those of a journal only once it is a part.
        """
        for batch in self._batches(kind, columns):
            yield from batch.to_pylist()

    def known(self, versions: dict[str, str], judge: tuple[str, str]) -> StoredState:
        """What is there already for experts in these versions and a judge (name and version)."""
        found = StoredState(tuple(versions))
        found.spending = self.spending()
        for row in self.entries(
            VERDICTS, ["expert", "version", "query", "judge", "judge_version", "score"]
        ):
            is_wanted = (
                versions.get(row["expert"]) == row["version"]
                and (row["judge"], row["judge_version"]) == judge
            )
            if is_wanted and row["score"] is not None:
                found.judged[row["expert"]].add(row["query"])
        for row in self.entries(ANSWERS, ["expert", "version", "query", "text", "error"]):
            expert, query = row["expert"], row["query"]
            if versions.get(expert) == row["version"] and not row["error"]:
                found.answered[expert].add(query)
                if query not in found.judged[expert]:
                    found.texts[expert, query] = row["text"]
        return found

    def spent(self) -> float:
        """Dollars of answers and verdicts, and of calls whose answers were lost in a kill.

        The latter count at their upper bound.
        """
        return self.spending().total

    def spending(self) -> Spending:
        """Dollars that were paid, and those of lost calls at their upper bound."""
        paid = reserved = 0.0
        lost = 0
        for kind in (ANSWERS, VERDICTS):
            for batch in self._batches(kind, ["dollars", "unconfirmed_cost"]):
                paid += _sum(batch.column("dollars"))
                if "unconfirmed_cost" in batch.schema.names:
                    unconfirmed = batch.column("unconfirmed_cost")
                    reserved += _sum(unconfirmed)
                    lost += int(_sum(pc.greater(unconfirmed, 0.0)))
        for batch in self._batches(STARTED, ["worst"]):
            reserved += _sum(batch.column("worst"))
            lost += batch.num_rows
        return Spending(paid, reserved, lost)

    def _batches(self, kind: str, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        has_texts = columns is None or "text" in columns
        for path in sorted((self.folder / kind).glob("*.parquet")):
            yield from pq.ParquetFile(path).iter_batches(
                _RUN_OF_TEXTS if has_texts else _RUN, columns=columns
            )

    def _make_parts(self, path: Path, rows: dict[str, list[Row]]) -> None:
        """A part for each kind, named after the journal: made twice, it is the same part."""
        for kind, found in rows.items():
            if not found:
                continue
            (self.folder / kind).mkdir(exist_ok=True)
            target = self.folder / kind / f"{path.stem}.parquet"
            table = pa.Table.from_pylist(found, schema=SCHEMAS[kind])
            with atomic_write(target) as beside:
                pq.write_table(table, beside, write_page_checksum=True)


def _sum(column: Any) -> float:
    return float(pc.sum(column).as_py() or 0.0)


def rows_by_kind(path: Path) -> dict[str, list[Row]]:
    """The entries of a journal, by their kind."""
    rows: dict[str, list[Row]] = {}
    for line in read_file(path):
        rows.setdefault(line["kind"], []).append(
            {name: value for name, value in line.items() if name != "kind"}
        )
    return rows


def unanswered_in(rows: dict[str, list[Row]]) -> list[Row]:
    """The last attempts of calls that have no answer, or no verdict, in the same journal.

    A cell is called again only after the answer to the last call.
    """
    finished = Counter(map(_call_of, (*rows.get(ANSWERS, []), *rows.get(VERDICTS, []))))
    calls: dict[tuple[str, ...], list[Row]] = {}
    for row in rows.get(STARTED, []):
        started = calls.setdefault(_call_of(row), [])
        if started and row.get("attempt", 1) > 1:
            started.pop()
        started.append(row)
    return [row for call, started in calls.items() for row in started[finished[call] :]]


def _call_of(row: Row) -> tuple[str, ...]:
    return row["expert"], row["version"], row["query"], row.get("judge", "")


# Why cells are empty.


_ATTEMPTS = re.compile(r" \(the last of \d+ attempts\)$")
# What a reason quotes of one query, answer or reply.
_QUOTED = re.compile(r"(?<!\w)(['\"]).*?\1(?!\w)", re.DOTALL)
_SHOWN = 160


def group_reasons(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Reasons and how often each was given, the commonest first.

    Those that differ only in what they quote count as one, and its quotations are left out.

    Example:
        >>> group_reasons(["'a' is no number", "'b' is no number", "timeout"])
        [("'...' is no number", 2), ('timeout', 1)]
    """
    groups: dict[str, Counter[str]] = {}
    for reason in reasons:
        groups.setdefault(_QUOTED.sub("'...'", reason), Counter())[reason] += 1
    counts = Counter[str]()
    for general, texts in groups.items():
        counts[(general if len(texts) > 1 else next(iter(texts)))[:_SHOWN]] += texts.total()
    return counts.most_common()


def empty_reasons(
    archive: AnswerStore, versions: Mapping[str, str], judge: tuple[str, str]
) -> dict[str, list[tuple[str, int]]]:
    """What experts and judge said where there is no score, the commonest first.

    Returns:
        Reasons and how many cells have them, by expert; only of experts that have any.
    """
    found: dict[str, list[str]] = {}
    for (expert, _), reason in cell_reasons(archive, versions, judge).items():
        found.setdefault(expert, []).append(_ATTEMPTS.sub("", reason))
    return {expert: group_reasons(reasons) for expert, reasons in found.items()}


def cell_reasons(
    archive: AnswerStore, versions: Mapping[str, str], judge: tuple[str, str]
) -> dict[tuple[str, str], str]:
    """Why cells that were called have no score, by expert and digest of the query."""
    last: dict[tuple[str, str], str] = {}
    for row in archive.entries(ANSWERS, ["expert", "version", "query", "error"]):
        if versions.get(row["expert"]) == row["version"] and row["error"]:
            last[row["expert"], row["query"]] = row["error"]
    for row in archive.entries(
        VERDICTS, ["expert", "version", "query", "judge", "judge_version", "score", "reason"]
    ):
        if (
            versions.get(row["expert"]) == row["version"]
            and (row["judge"], row["judge_version"]) == judge
        ):
            key = (row["expert"], row["query"])
            if row["score"] is None:
                last[key] = f"the judge could not tell: {row['reason']}"
            else:
                last.pop(key, None)
    return last
