"""One worker of one expert: it takes blocks, fills their cells, and writes down every step."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mildroute.collecting.budget import Budget
from mildroute.collecting.entries import Entry, written
from mildroute.collecting.journal import Journal, held
from mildroute.collecting.runner import Round, ask_all, asked_by
from mildroute.collecting.tally import Tally
from mildroute.engine.collecting.blocks import read_block
from mildroute.engine.collecting.remains import Remains, journal_name, journals_of, remains_in
from mildroute.engine.collecting.treasury import LeasedBudget, Teller
from mildroute.errors import ArgumentError, MildrouteError, TableError
from mildroute.experts.protocol import Expert
from mildroute.judges.protocol import Judge

__all__ = ["Asker", "Assignment"]

_PATIENCE = 120.0
"""Seconds that an earlier attempt at the same block may live on."""
_LOOK = 0.5
"""Seconds between two looks whether the block is still there."""
_DEATHS = 10
"""Deaths of its worker that a block survives: a query that kills whoever reads it must not do so for ever."""
_COUNTS = {"done": pa.int64(), "errors": pa.int64(), "score": pa.float64(), "dollars": pa.float64(), "calls": pa.int64()}
_SCHEMA = pa.schema({"expert": pa.string(), **_COUNTS, "state": pa.string(), "failure": pa.string(), "message": pa.string()})
_SYNC = 1.0
"""Seconds of answers that the loss of a whole machine may cost."""


@dataclass(frozen=True)
class Assignment:
    """What the workers of one expert are told; all of it can be sent to another machine, and none of it is a key.

    Args:
        expert: Makes the expert.
        judge: Makes the judge.
        name: Name of the expert.
        versions: Versions of the expert and of the judge, which those made here must have.
        lanes: Batches that one worker asks at the same time.
        journals: Folder of the journals.
        treasury: Who leases money, or none without a cap.

    Example:
        >>> Assignment.__name__
        'Assignment'
    """

    expert: Callable[[], Expert]
    judge: Callable[[], Judge]
    name: str
    versions: tuple[str, str]
    lanes: int
    journals: Path
    treasury: Any = None


class Asker:
    """Fills blocks, one after the other.

    Expert and judge are made with the first block, so that what is wrong with them is an error of that block, and they keep their
    connections from block to block.

    Args:
        assignment: What to do with them.

    Example:
        >>> Asker.__name__
        'Asker'
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
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
            row = {"failure": "MildrouteError", "message": f"{rule}; run the same command again to go on."}
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
            for expert in (self._team[0], *asked_by(self._team[1])):
                self._loop.run_until_complete(expert.close())
        self._loop.close()
        self._loop = self._team = None

    def fill(self, path: Path) -> Tally:
        """Fill one block, or what earlier attempts left of it.

        Args:
            path: The block's file.

        Returns:
            Counts of all attempts.

        Example:
            >>> Asker.fill.__name__
            'fill'
        """
        if not path.exists():
            raise _unseen(path)
        # One attempt at a time: with the lock, the writers of all journals of this block are known to be gone.
        with held(path, _PATIENCE):
            before = _survived(path, self._assignment.journals)
            with closing(_Notes(path, self._assignment.journals)) as notes:
                self._loop = self._loop or asyncio.new_event_loop()
                self._team = self._team or _team(self._assignment)
                attempt = _Attempt(path, notes, remains_in(before), self._failures)
                tally = self._loop.run_until_complete(_fill(self._assignment, self._team, attempt))
        self._failures = tally.failures
        return tally


class _Notes:
    """The journal of an attempt."""

    def __init__(self, path: Path, journals: Path) -> None:
        self._journal = Journal(journals, journal_name(path), sync_seconds=_SYNC)
        self.close = self._journal.close

    def add(self, entry: Entry) -> None:
        self._journal.append(written(entry))


@dataclass(frozen=True)
class _Attempt:
    """A block, where to write, what earlier attempts left, and calls without an answer up to here, which a new block does not forgive."""

    path: Path
    notes: _Notes
    remains: Remains
    failures: int


async def _fill(assignment: Assignment, team: tuple[Expert, Judge], attempt: _Attempt) -> Tally:
    remains, cells = attempt.remains, read_block(attempt.path)
    queries, known = remains.left(cells, assignment.name)
    tally = remains.tally(cells, assignment.name)
    tally.failures = attempt.failures
    money = None if assignment.treasury is None else LeasedBudget(_teller(assignment.treasury), attempt.path.name)
    if money is not None:
        await money.begin(remains.dollars)
    tallies = {tally.expert: tally}
    todo = Round(queries, [team[0]], team[1], attempt.notes, known, money or Budget(), tallies=tallies, lanes=assignment.lanes)
    await _while_wanted(attempt.path, todo)
    if money is not None:
        await money.end()
    return tally


def _survived(path: Path, journals: Path) -> list[Path]:
    """Journals of earlier attempts; Ray repeats a block whose worker died as often as it takes, we do not."""
    before = journals_of(path, journals)
    if len(before) > _DEATHS:
        raise MildrouteError(
            f"a block may lose its worker {_DEATHS} times, got {len(before)} deaths over {path.name}; look for what ends the process, "
            "such as too little memory, and run the same command again to go on."
        )
    return before


def _teller(treasury: Any) -> Teller:
    def call(method: str, *given: Any) -> Any:
        return getattr(treasury, method).remote(*given)

    return call


async def _while_wanted(path: Path, todo: Round) -> None:
    """Ask until all is done, or until the block is gone, which calls the run off."""
    # The journal is there by now. Whoever called the run off has deleted the block before, or has seen the journal and waits for it.
    if not path.exists():
        raise _called_off(path)
    asking = asyncio.ensure_future(ask_all(todo))
    while not (await asyncio.wait({asking}, timeout=_LOOK))[0]:
        if not path.exists():
            asking.cancel()
            await asyncio.wait({asking})
            raise _called_off(path)
    asking.result()


def _team(assignment: Assignment) -> tuple[Expert, Judge]:
    try:
        expert, judge = assignment.expert(), assignment.judge()
    except MildrouteError as error:
        raise ArgumentError(
            f"{error} (On {socket.gethostname()}, one of Ray's machines: keys and files are looked up there and never sent. Export keys "
            "before Ray is started on it.)"
        ) from error
    found = (expert.version, judge.version)
    if found != assignment.versions:
        raise ArgumentError(
            f"expert {assignment.name!r} and its judge must be the same everywhere, got versions {found} on {socket.gethostname()} and "
            f"{assignment.versions} where the run was started; install the same software and files on all machines."
        )
    return expert, judge


def _unseen(path: Path) -> TableError:
    return TableError(
        f"every machine must see the folder of the run, got no {str(path)!r} on {socket.gethostname()}; "
        "put --out on a disk that all of Ray's machines share under the same path, or run without --ray."
    )


def _called_off(path: Path) -> TableError:
    return TableError(f"a block must stay until it is filled, got {str(path)!r} deleted; run the same command again to go on.")


def _row(tally: Tally) -> dict[str, Any]:
    return {name: getattr(tally, name) for name in ("expert", *_COUNTS, "state")}
