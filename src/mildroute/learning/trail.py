"""The state of a learner: an audit trail whose last entry holds everything needed to continue.

Entries are files in a folder or objects below a URL, each written atomically.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from mildroute._files import atomic_write, file_lock, open_location
from mildroute.exceptions import TableError

__all__ = ["State", "Store", "Trail"]


_LEASE = 900.0
_TRAIL, _LOCK = "trail", "lock.json"
_is_entry = re.compile(r"\d{9}\.jsonl").fullmatch
PHASES = ("collecting", "candidate", "watching")


@dataclass(frozen=True)
class State:
    """The knowledge of a learner besides the log.

    Args:
        phase: ``"collecting"``, ``"candidate"`` or ``"watching"``.
        candidate: Digest of the candidate, or of the router that is watched.
        previous: Digest of the router before the one that is watched.
        fitted: Time at which the candidate was fitted; only later decisions judge it.
        stages: Shares of the candidate, each with the time since which it applies.
        weight: Errors that a dollar is worth in the comparison.
        bound: Maximum cost in the comparison.
        alpha: The candidate's part of the month's error.
        month: Time at which the month began.
        tested: Number of candidates in the month.
        rows: Number of scored rows at the last fit.
        changed: Time of the last change of each expert, by what changed.
        repriced: Factors by which dollars of each expert from before a time are multiplied.
        epoch: Time since which the same router serves; residuals are compared from then on.
    """

    phase: str = "collecting"
    candidate: str = ""
    previous: str = ""
    fitted: float = 0.0
    stages: tuple[tuple[float, float], ...] = ()
    weight: float = 0.0
    bound: float = 1.0
    alpha: float = 0.0
    month: float = 0.0
    tested: int = 0
    rows: int = 0
    changed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    repriced: tuple[tuple[str, float, float], ...] = ()
    epoch: float = 0.0

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> State:
        """Return the state of an entry."""
        pairs = {name: tuple(map(tuple, document[name])) for name in ("stages", "repriced")}
        state = cls(**{**document, **pairs})
        if state.phase not in PHASES:
            raise ValueError(f"phase {state.phase!r}")
        return state

    @property
    def share(self) -> float:
        """Return the candidate's current share of the requests; 0 in the shadow stage."""
        return self.stages[-1][0] if self.stages else 0.0

    def share_at(self, moment: float, settle: float) -> float:
        """Return the candidate's share at a time; 0 also while gateways pick up a new one."""
        past = [(share, since) for share, since in self.stages if since <= moment]
        return past[-1][0] if past and moment >= past[-1][1] + settle else 0.0

    def since(self, expert: str, kind: str) -> float:
        """Return the time of the last change of an expert's observations of this kind."""
        return self.changed.get(expert, {}).get(kind, 0.0)


class Store:
    """The files of a state, in a folder or in object storage, each written atomically."""

    def __init__(self, location: str) -> None:
        self._system, self._root = open_location(location)
        self.is_local = isinstance(self._system, pafs.LocalFileSystem)
        if self.is_local:
            Path(self._root).mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> str:
        """Return the path of a file in its file system."""
        return posixpath.join(self._root, name)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or `None` if it does not exist."""
        try:
            with self._system.open_input_stream(self.path(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically."""
        if self.is_local:
            path = Path(self.path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as beside:
                beside.write_bytes(content)
            return
        with self._system.open_output_stream(self.path(name)) as stream:
            stream.write(content)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder."""
        entries = self._system.get_file_info(
            pafs.FileSelector(self.path(folder), allow_not_found=True)
        )
        names = [posixpath.basename(info.path) for info in entries if info.is_file]
        return sorted(name for name in names if not name.startswith("."))

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """Provide a folder of the state as a local folder."""
        if self.is_local:
            yield Path(self.path(name))
            return
        with tempfile.TemporaryDirectory() as local:
            for file in self.names(name):
                Path(local, file).write_bytes(self.read(f"{name}/{file}") or b"")
            yield Path(local)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other learners out, by a system lock or by a lease in object storage."""
        if self.is_local:
            with file_lock(self.path(".lock"), create=True):
                yield
            return
        token = secrets.token_hex(8)
        self._lease(token)
        try:
            yield
        finally:
            self.write(_LOCK, b"{}")

    def _lease(self, token: str) -> None:
        held = json.loads(self.read(_LOCK) or b"{}")
        if held.get("until", 0.0) > time.time() and not _is_dead(held):
            raise TableError(
                f"one learner at a time may use a state, got one on {held['host']} until"
                f" {held['until']:.0f}; wait, or stop it."
            )
        mine = {"host": socket.gethostname(), "pid": os.getpid(), "token": token}
        self.write(_LOCK, json.dumps({**mine, "until": time.time() + _LEASE}).encode())
        # Object storage has no locks: if two learners write at the same time, the last write stays.
        time.sleep(0.5)
        if json.loads(self.read(_LOCK) or b"{}").get("token") != token:
            raise TableError("one learner at a time may use a state, got two; run it again.")


def _is_dead(held: Mapping[str, Any]) -> bool:
    """Return whether a lease belongs to a process of this machine that no longer exists."""
    if held["host"] != socket.gethostname():
        return False
    try:
        os.kill(held["pid"], 0)
    except ProcessLookupError:
        return True
    return False


class Trail:
    """The audit trail: one numbered JSON file per entry, each with the state after it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        names = [name for name in store.names(_TRAIL) if _is_entry(name)]
        self.last: dict[str, Any] = {}
        self._number = 0
        self.state = State()
        if names:
            path = store.path(f"{_TRAIL}/{names[-1]}")
            try:
                self.last = json.loads(store.read(f"{_TRAIL}/{names[-1]}") or b"")
                self._number = int(self.last["number"])
                self.state = State.of(self.last["state"])
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise TableError(
                    f"the last entry of the trail cannot be read: {path!r} ({error!r:.100}); it was"
                    " changed by hand or written by another version: restore it, or use a new"
                    " state."
                ) from None

    def add(self, event: str, state: State, now: float, **details: Any) -> dict[str, Any]:
        """Append an entry, which is completely written when this returns."""
        self._number += 1
        entry = {"number": self._number, "time": now, "event": event, **details}
        self.last, self.state = {**entry, "state": asdict(state)}, state
        content = json.dumps(self.last, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        self._store.write(f"{_TRAIL}/{self._number:09d}.jsonl", content)
        return self.last
