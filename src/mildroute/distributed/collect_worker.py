"""The worker of a collection on Ray.

Blocks in, journals out, and recovery of what a dead worker left.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute._files import atomic_write, file_lock
from mildroute._jsonl import WriteAheadLog
from mildroute.collection.queries import query_digest
from mildroute.collection.runner import Budget, CollectionRun, ExpertProgress, Task, run_all
from mildroute.collection.store import (
    ANSWERS,
    VERDICTS,
    Entry,
    Row,
    StoredState,
    dollars_in,
    rows_by_kind,
    unanswered_in,
    written,
)
from mildroute.distributed.budget import LeasedBudget, RemoteCall
from mildroute.exceptions import ArgumentError, MildrouteError, TableError
from mildroute.experts.base import Expert, Query
from mildroute.judges.base import Judge

__all__ = [
    "CollectWorker",
    "RecoveredBlock",
    "WorkerSpec",
    "block_size",
    "journal_name",
    "journals_of",
    "read_block",
    "recover_entries",
    "write_blocks",
]


# What earlier attempts at a block have left: a worker that died has written down all that was
# answered, judged and called.


def journals_of(block: Path, journals: Path) -> list[Path]:
    """The journals of all attempts at a block, oldest first."""
    return sorted(journals.glob(f"{journal_name(block)}-*.jsonl"))


def journal_name(block: Path) -> str:
    """Beginning of the names of a block's journals.

    They sort by the run, whose folder is named after its time.
    """
    return f"{block.parent.name}-{block.stem}"


@dataclass
class RecoveredBlock:
    """Entries of dead attempts at one block.

    Args:
        answers: The last answer to each query, by its digest; one with a text stands against later
            errors.
        dollars: All that the attempts were charged, or may have been.
    """

    answers: dict[str, Row] = field(default_factory=dict)
    verdicts: dict[str, Row] = field(default_factory=dict)
    dollars: float = 0.0
    paid: float = 0.0
    unconfirmed: float = 0.0
    calls: int = 0

    def is_settled(self, digest: str) -> bool:
        """Whether this run is done with a cell.

        It has a verdict, or an error, which a later run tries again.
        """
        return digest in self.verdicts or bool(
            digest in self.answers and self.answers[digest]["error"]
        )

    def left(self, cells: Iterable[Task], expert: str) -> tuple[list[Query], StoredState]:
        """The queries of the cells that are still to do, and what is known of them."""
        queries, known = [], StoredState((expert,))
        for cell in cells:
            if self.is_settled(cell.digest):
                continue
            queries.append(cell.query)
            text = self.answers[cell.digest]["text"] if cell.digest in self.answers else cell.text
            if text is not None:
                known.answered[expert].add(cell.digest)
                known.texts[expert, cell.digest] = text
        return queries, known

    def tally(self, cells: Iterable[Task], expert: str) -> ExpertProgress:
        """What the dead attempts count for."""
        scores = [
            self.verdicts.get(cell.digest, {}).get("score")
            for cell in cells
            if self.is_settled(cell.digest)
        ]
        told = [score for score in scores if score is not None]
        errors = len(scores) - len(told)
        return ExpertProgress(
            expert,
            done=len(scores),
            errors=errors,
            score=sum(told, 0.0),
            dollars=self.paid,
            reserved=self.unconfirmed,
            calls=self.calls,
        )


def recover_entries(journals: Sequence[Path]) -> RecoveredBlock:
    """Read the journals of dead attempts."""
    found = RecoveredBlock()
    for path in journals:
        rows = rows_by_kind(path)
        answers, verdicts = rows.get(ANSWERS, []), rows.get(VERDICTS, [])
        found.verdicts |= {row["query"]: row for row in verdicts}
        for row in answers:
            if not row["error"] or row["query"] not in found.answers:
                found.answers[row["query"]] = row
        unconfirmed = sum(row.get("unconfirmed_cost", 0.0) for row in (*answers, *verdicts))
        spent = dollars_in(answers, verdicts, [])
        found.paid += spent - unconfirmed
        found.unconfirmed += unconfirmed
        found.dollars += spent + dollars_in([], [], unanswered_in(rows))
        found.calls += sum(row["attempts"] for row in answers)
    return found


# Blocks of work: files with some empty cells of one expert each, which all machines can read.


_TEXTS = ("digest", "query_id", "input", "reference", "text")
# Batches in a row that a block is for each lane: enough to be worth a message, at most about a
# minute at a second a call.
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 64
# So many that workers of unequal speed end at about the same time.
_BLOCKS_PER_WORKER = 8
_MOST_CELLS = 4096
_MOST_CHARACTERS = 1 << 25


def block_size(cells: int, workers: int, at_once: int) -> int:
    """How many cells a block should have.

    Args:
        cells: Cells of the expert that are empty.
        workers: Processes that call it.
        at_once: Queries of each of them at the same time.
    """
    fair = math.ceil(cells / (workers * _BLOCKS_PER_WORKER))
    return min(
        max(fair, at_once * _FEWEST_ROUNDS), at_once * _MOST_ROUNDS, max(_MOST_CELLS, at_once)
    )


def write_blocks(cells: Iterable[Task], folder: Path, name: str, size: int) -> list[Path]:
    """Write cells into files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for place, block in enumerate(_cut(cells, size)):
        path = folder / f"{name}-{place:06d}.parquet"
        with atomic_write(path) as beside:
            pq.write_table(_table(block), beside, write_page_checksum=True)
        paths.append(path)
    return paths


def read_block(path: Path) -> list[Task]:
    """The cells of a file."""
    cells = [_cell(row) for row in pq.ParquetFile(path).read().to_pylist()]
    changed = [cell.query.query_id for cell in cells if query_digest(cell.query) != cell.digest]
    if changed:
        raise TableError(
            f"a query must reach a worker unchanged, got a change in {changed[0]!r:.60}; write its"
            " columns as plain texts."
        )
    return cells


def _cut(cells: Iterable[Task], size: int) -> Iterator[list[Task]]:
    block: list[Task] = []
    characters = 0
    for cell in cells:
        block.append(cell)
        characters += len(cell.query.input) + len(cell.text or "")
        if len(block) >= size or characters >= _MOST_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _table(cells: list[Task]) -> pa.Table:
    rows = [
        (cell.digest, cell.query.query_id, cell.query.input, cell.query.reference, cell.text)
        for cell in cells
    ]
    try:
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    except UnicodeEncodeError as error:
        raise TableError(
            f"texts must be Unicode, got half a character in {error.object!r:.60}; drop or repair"
            " that row."
        ) from None
    return pa.table([*columns, _fields(cells)], names=[*_TEXTS, "fields"])


def _fields(cells: list[Task]) -> pa.Array:
    """As JSON, which keeps what JSON files hold.

    Dates and other types of columnar files keep their own.
    """
    try:
        return pa.array([json.dumps(dict(cell.query.fields)) for cell in cells], pa.string())
    except TypeError:
        return pa.array([dict(cell.query.fields) for cell in cells])


def _cell(row: dict[str, Any]) -> Task:
    fields = json.loads(row["fields"]) if isinstance(row["fields"], str) else row["fields"]
    return Task(
        Query(row["query_id"], row["input"], row["reference"], fields), row["digest"], row["text"]
    )


# One worker of one expert: it takes blocks, fills their cells, and writes down every step.


# Seconds that an earlier attempt at the same block may live on.
_PATIENCE = 120.0
# Seconds between two looks whether the block is still there.
_LOOK = 0.5
# Deaths of its worker that a block survives: a query that kills its worker must not do so for
# ever.
_DEATHS = 10
_COUNTS = {
    "done": pa.int64(),
    "errors": pa.int64(),
    "score": pa.float64(),
    "dollars": pa.float64(),
    "reserved": pa.float64(),
    "calls": pa.int64(),
}
_SCHEMA = pa.schema(
    {
        "expert": pa.string(),
        **_COUNTS,
        "state": pa.string(),
        "failure": pa.string(),
        "message": pa.string(),
    }
)
# Seconds of answers that the loss of a whole machine may cost.
_SYNC = 1.0


@dataclass(frozen=True)
class WorkerSpec:
    """What the workers of one expert are told.

    All of it can be sent to another machine, and none of it is a key.

    Args:
        versions: Versions of the expert and of the judge, which those made here must have.
        lanes: Batches of one worker at the same time.
        budget_server: Leases money, or none without a cap.
    """

    expert: Callable[[], Expert]
    judge: Callable[[], Judge]
    name: str
    versions: tuple[str, str]
    lanes: int
    journals: Path
    budget_server: Any = None


class CollectWorker:
    """Fills blocks, one after the other.

    Expert and judge are made with the first block, so that what is wrong with them is an error of
    that block, and they keep their connections from block to block.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._loop: asyncio.AbstractEventLoop | None = None
        self._team: tuple[Expert, Judge] | None = None
        self._failures = 0

    def __call__(self, blocks: pa.Table) -> pa.Table:
        """Fill the block whose file the table names, and return its counts, or what is wrong."""
        from ray.exceptions import RayActorError

        try:
            row = _row(self.fill(Path(blocks["path"][0].as_py())))
        except RayActorError:
            rule = "a run with a cap needs the process that counts its dollars, which is gone"
            row = {
                "failure": "MildrouteError",
                "message": f"{rule}; run the same command again to resume.",
            }
        except MildrouteError as error:
            # As a row: Ray would add words of its own to an exception.
            row = {"failure": type(error).__name__, "message": str(error)}
        return pa.Table.from_pylist([row], schema=_SCHEMA)

    def __del__(self) -> None:
        """Ray ends a worker in this way."""
        self.close()

    def close(self) -> None:
        """Let go of the expert's connections and processes."""
        if self._loop is None or self._loop.is_running():
            return
        if self._team is not None:
            for expert in (self._team[0], *self._team[1].experts()):
                self._loop.run_until_complete(expert.close())
        self._loop.close()
        self._loop = self._team = None

    def fill(self, path: Path) -> ExpertProgress:
        """Fill one block, or what earlier attempts left of it."""
        if not path.exists():
            raise _unseen(path)
        # One attempt at a time: with the lock, the writers of all journals of this block are known
        # to be gone.
        with file_lock(path, _PATIENCE):
            before = _survived(path, self._spec.journals)
            with closing(_Notes(path, self._spec.journals)) as notes:
                self._loop = self._loop or asyncio.new_event_loop()
                self._team = self._team or _team(self._spec)
                attempt = _Attempt(path, notes, recover_entries(before), self._failures)
                tally = self._loop.run_until_complete(_fill(self._spec, self._team, attempt))
        self._failures = tally.failures
        return tally


class _Notes:
    """The journal of an attempt."""

    def __init__(self, path: Path, journals: Path) -> None:
        self._journal = WriteAheadLog(journals, journal_name(path), sync_seconds=_SYNC)
        self.close = self._journal.close

    def add(self, entry: Entry) -> None:
        self._journal.add(written(entry))


@dataclass(frozen=True)
class _Attempt:
    """A block, where to write, and what earlier attempts left.

    The calls without an answer up to here are kept: a new block does not forgive them.
    """

    path: Path
    notes: _Notes
    remains: RecoveredBlock
    failures: int


async def _fill(spec: WorkerSpec, team: tuple[Expert, Judge], attempt: _Attempt) -> ExpertProgress:
    remains, cells = attempt.remains, read_block(attempt.path)
    queries, known = remains.left(cells, spec.name)
    tally = remains.tally(cells, spec.name)
    tally.failures = attempt.failures
    money = (
        None
        if spec.budget_server is None
        else LeasedBudget(_remote_call(spec.budget_server), attempt.path.name)
    )
    if money is not None:
        await money.begin(remains.dollars)
    tallies = {tally.expert: tally}
    todo = CollectionRun(
        queries,
        [team[0]],
        team[1],
        attempt.notes,
        known,
        money or Budget(),
        tallies=tallies,
        lanes=spec.lanes,
    )
    await _while_wanted(attempt.path, todo)
    if money is not None:
        await money.end()
    return tally


def _survived(path: Path, journals: Path) -> list[Path]:
    """Journals of earlier attempts.

    Ray repeats a block whose worker died as often as it takes, we do not.
    """
    before = journals_of(path, journals)
    if len(before) > _DEATHS:
        raise MildrouteError(
            f"a block may lose its worker {_DEATHS} times, got {len(before)} deaths over"
            f" {path.name}; look for what ends the process, such as too little memory, and run the"
            " same command again to resume."
        )
    return before


def _remote_call(budget_server: Any) -> RemoteCall:
    def call(method: str, *given: Any) -> Any:
        return getattr(budget_server, method).remote(*given)

    return call


async def _while_wanted(path: Path, todo: CollectionRun) -> None:
    """Run until all is done, or until the block is gone, which cancels the run."""
    # The journal is there by now. A process that canceled the run has deleted the block before, or
    # has seen the journal and waits for it.
    if not path.exists():
        raise _called_off(path)
    running = asyncio.ensure_future(run_all(todo))
    while not (await asyncio.wait({running}, timeout=_LOOK))[0]:
        if not path.exists():
            running.cancel()
            await asyncio.wait({running})
            raise _called_off(path)
    running.result()


def _team(spec: WorkerSpec) -> tuple[Expert, Judge]:
    try:
        expert, judge = spec.expert(), spec.judge()
    except MildrouteError as error:
        raise ArgumentError(
            f"{error} (On {socket.gethostname()}, one of Ray's machines: keys and files are looked"
            " up there and never sent. Export keys before Ray is started on it.)"
        ) from error
    found = (expert.version, judge.version)
    if found != spec.versions:
        raise ArgumentError(
            f"expert {spec.name!r} and its judge must be the same everywhere, got versions"
            f" {found} on {socket.gethostname()} and {spec.versions} where the run was"
            " started; install the same software and files on all machines."
        )
    return expert, judge


def _unseen(path: Path) -> TableError:
    return TableError(
        f"every machine must see the folder of the run, got no {str(path)!r} on"
        f" {socket.gethostname()}; put --out on a disk that all of Ray's machines share under the"
        " same path, or run without --ray."
    )


def _called_off(path: Path) -> TableError:
    return TableError(
        f"a block must stay until it is filled, got {str(path)!r} deleted; run the same command"
        " again to resume."
    )


def _row(tally: ExpertProgress) -> dict[str, Any]:
    return {name: getattr(tally, name) for name in ("expert", *_COUNTS, "state")}
