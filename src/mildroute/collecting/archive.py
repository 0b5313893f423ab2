"""All that was ever asked, answered and judged in a folder: Parquet parts, and the journals that become parts.

A kill at any moment leaves whole parts and journals whose last line may be cut off. A journal is deleted only when the parts made of it
are in place; an entry that is in both counts once.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute.collecting.entries import ANSWERS, ASKED, SCHEMAS, VERDICTS, Entry, written
from mildroute.collecting.journal import Journal, read_journal
from mildroute.errors import TableError

__all__ = ["Archive", "Known"]

_ROTATE = 20_000
_RUN = 8192


@dataclass
class Known:
    """What an archive holds of some experts and a judge.

    Args:
        answered: Digests of the queries that each expert has answered in its present version.
        judged: Those whose answers the judge has scored.
        texts: Answers that wait for a verdict, by expert and digest.
        spent: Dollars of all entries, those of other versions too, with all that may have been charged.

    Example:
        >>> Known(("small",)).answered
        {'small': set()}
    """

    experts: tuple[str, ...]
    answered: dict[str, set[str]] = field(default_factory=dict)
    judged: dict[str, set[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    spent: float = 0.0

    def __post_init__(self) -> None:
        """A set for each expert."""
        for name in self.experts:
            self.answered.setdefault(name, set())
            self.judged.setdefault(name, set())


class Archive:
    """A folder of entries; one process writes at a time.

    Args:
        folder: Where.

    Example:
        >>> import tempfile
        >>> from mildroute.collecting.entries import AskedEntry
        >>> with Archive(tempfile.mkdtemp()) as archive:
        ...     archive.add(AskedEntry("small", "v1", "ab12", 0.5))
        ...     archive.tidy()
        ...     archive.known({"small": "v1"}, ("exact", "j1")).spent
        0.5
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._journal: Journal | None = None
        self._lock = -1

    def __enter__(self) -> Archive:
        """Take the folder and bring order into what earlier runs left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise TableError(
                f"one process at a time may write to {str(self.folder)!r}; another one does, wait for it or stop it."
            ) from None
        self.tidy()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Make parts of the journal and let go."""
        self.tidy()
        os.close(self._lock)

    def add(self, entry: Entry) -> None:
        """Write an entry down; when this returns, a kill cannot undo it."""
        if self._journal is None:
            self._journal = Journal(self.folder / "journals")
        self._journal.append(written(entry))
        if self._journal.lines >= _ROTATE:
            self._turn_over()

    def tidy(self) -> None:
        """Make parts of all journals."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        for path in sorted((self.folder / "journals").glob("*.jsonl")):
            rows = _rows_by_kind(path)
            rows[ASKED] = _unanswered(rows)
            self._make_parts(path, rows)
            path.unlink()

    def _turn_over(self) -> None:
        """Begin a new journal with the calls that are under way, and make parts of the old one."""
        old = self._journal
        if old is None:
            return
        old.close()
        rows = _rows_by_kind(old.path)
        self._journal = Journal(self.folder / "journals")
        for row in _unanswered(rows):
            self._journal.append({"kind": ASKED, **row})
        rows[ASKED] = []
        self._make_parts(old.path, rows)
        old.path.unlink()

    def entries(self, kind: str, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """All entries of a kind as plain rows, in the order in which they were written; those of a journal only once it is a part."""
        for path in sorted((self.folder / kind).glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(batch_size=_RUN, columns=columns):
                yield from batch.to_pylist()

    def known(self, versions: dict[str, str], judge: tuple[str, str]) -> Known:
        """What is there already for experts in these versions and a judge (its name and version)."""
        found = Known(tuple(versions))
        found.spent = self._spent()
        for row in self.entries(VERDICTS, ["expert", "version", "query", "judge", "judge_version", "score"]):
            is_wanted = versions.get(row["expert"]) == row["version"] and (row["judge"], row["judge_version"]) == judge
            if is_wanted and row["score"] is not None:
                found.judged[row["expert"]].add(row["query"])
        for row in self.entries(ANSWERS, ["expert", "version", "query", "text", "error"]):
            expert, query = row["expert"], row["query"]
            if versions.get(expert) == row["version"] and not row["error"]:
                found.answered[expert].add(query)
                if query not in found.judged[expert]:
                    found.texts[expert, query] = row["text"]
        return found

    def _spent(self) -> float:
        """Dollars of answers and verdicts, and of calls whose answers were lost in a kill, at their upper bound."""
        answers = sum(row["dollars"] + row["doubtful_dollars"] for row in self.entries(ANSWERS, ["dollars", "doubtful_dollars"]))
        verdicts = sum(row["dollars"] for row in self.entries(VERDICTS, ["dollars"]))
        return float(answers + verdicts + sum(row["worst"] for row in self.entries(ASKED, ["worst"])))

    def _make_parts(self, path: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
        """A part for each kind, named after the journal: made twice, it is the same part."""
        for kind, found in rows.items():
            if not found:
                continue
            (self.folder / kind).mkdir(exist_ok=True)
            target = self.folder / kind / f"{path.stem}.parquet"
            beside = target.with_suffix(".partial")
            pq.write_table(pa.Table.from_pylist(found, schema=SCHEMAS[kind]), beside, write_page_checksum=True)
            beside.replace(target)


def _rows_by_kind(path: Path) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in read_journal(path):
        rows.setdefault(line["kind"], []).append({name: value for name, value in line.items() if name != "kind"})
    return rows


def _unanswered(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Calls that have no answer in the same journal; a cell is asked again only after the answer to the last time."""
    answers = Counter((row["expert"], row["version"], row["query"]) for row in rows.get(ANSWERS, []))
    asked = Counter((row["expert"], row["version"], row["query"]) for row in rows.get(ASKED, []))
    left = asked - answers
    found = []
    for row in rows.get(ASKED, []):
        key = (row["expert"], row["version"], row["query"])
        if left[key] > 0:
            left[key] -= 1
            found.append(row)
    return found
