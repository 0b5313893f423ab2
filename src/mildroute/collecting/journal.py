"""Lines that outlive the process that wrote them: each is handed to the system at once, and read back even after a kill."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mildroute.errors import TableError

__all__ = ["Journal", "held", "read_journal"]

_OPENING = ".opening"
_LOOK = 0.05
"""Seconds between two looks at a lock."""


class Journal:
    """An append-only file of JSON lines, locked while it is open: whoever can lock it knows that its writer is gone.

    A line is one call of ``write``: when it returns, the line survives the death of the process. The loss of the whole machine it
    survives only once it was synced.

    Args:
        folder: Where; the file gets a name of its own.
        name: Beginning of its name, or none.
        sync_seconds: How old a line may get before it is synced, at the next line; none for as old as the system lets it.

    Example:
        >>> import tempfile
        >>> journal = Journal(tempfile.mkdtemp())
        >>> journal.append({"a": 1})
        >>> journal.close()
        >>> list(read_journal(journal.path))
        [{'a': 1}]
    """

    def __init__(self, folder: str | Path, name: str | None = None, *, sync_seconds: float | None = None) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        unique = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}"
        self.path = Path(folder) / f"{unique if name is None else f'{name}-{unique}'}.jsonl"
        beside = self.path.with_suffix(_OPENING)
        self._file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        # Under its name it is never seen unlocked, else a reader might take it for finished and delete it.
        beside.rename(self.path)
        self.lines = self.bytes = 0
        self._sync_seconds, self._synced = sync_seconds, time.monotonic()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise TableError(f"a line must be written whole, got {written} of {len(line)} bytes into {self.path.name}; is the disk full?")
        self.lines += 1
        self.bytes += written
        if self._sync_seconds is not None and time.monotonic() - self._synced >= self._sync_seconds:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


@contextmanager
def held(path: str | Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file, after waiting for whoever holds it.

    Args:
        path: The file.
        seconds: How long to wait at most.

    Example:
        >>> import tempfile
        >>> journal = Journal(tempfile.mkdtemp())
        >>> with held(journal.path, 0):
        ...     pass
        Traceback (most recent call last):
        mildroute.errors.TableError: a file of a run must be free before another run goes on, got ...
    """
    file = os.open(path, os.O_RDWR)
    try:
        _wait_for(file, Path(path), seconds)
        yield
    finally:
        os.close(file)


def _wait_for(file: int, path: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not _is_mine(file):
        if time.monotonic() >= end:
            raise TableError(
                f"a file of a run must be free before another run goes on, got {path.name!r} still in use after {seconds:g} s; "
                "stop the process that writes it, and run the same command again."
            )
        time.sleep(_LOOK)


def _is_mine(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_journal(path: str | Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal; one that was cut off by a kill is left out.

    Args:
        path: The file.

    Yields:
        Its entries, in order.

    Example:
        >>> list(read_journal(os.devnull))
        []
    """
    with Path(path).open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield json.loads(line)
