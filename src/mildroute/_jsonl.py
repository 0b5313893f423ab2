"""Append-only files of JSON lines: locked while open, rotated by size, repaired if the last line was cut off."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mildroute.exceptions import ArgumentError, TableError

# Lines that outlive the process that wrote them: each is handed to the system at once, and read
# back even after a kill.


_OPENING = ".opening"
_LOOK = 0.05
"""Seconds between two looks at a lock."""


class WriteAheadLog:
    """An append-only file of JSON lines, locked while it is open: whoever can lock it knows that its writer is gone.

    A line is one call of ``write``: when it returns, the line survives the death of the process. The loss of the whole machine it
    survives only once it was synced.

    Args:
        folder: Where; the file gets a name of its own.
        name: Beginning of its name, or none.
        sync_seconds: How old a line may get before it is synced, at the next line; none for as old as the system lets it.

    Example:
        >>> import tempfile
        >>> journal = WriteAheadLog(tempfile.mkdtemp())
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
        >>> journal = WriteAheadLog(tempfile.mkdtemp())
        >>> with held(journal.path, 0):
        ...     pass
        Traceback (most recent call last):
        mildroute.exceptions.TableError: a file of a run must be free before another run goes on, got ...
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


# Files of JSON lines that outlive the process that writes them, and a way to read them while they
# grow.
#
# Each process writes a file of its own. When ``append`` returns, the line survives the death of
# the process, though not the loss of power. The writer holds a lock on its file, which the system
# lifts when the process ends, however it ends: what is not locked is finished.


if sys.platform != "win32":
    import fcntl


LINES, TABLE = ".jsonl", ".parquet"
"""Suffixes of a file as it is written, and of one that was tidied."""

_LOG = logging.getLogger(__name__)
_PERMISSIONS = 0o640
_TRIES = 1000


class JsonlWriter:
    """The growing file of one process in a folder; after some lines a new one begins. For one thread.

    A line is written as a whole or not at all: if the disk is full, what got through is taken back, the line is counted as lost, and the
    caller goes on, for a request must not fail with its log. A warning is given when lines begin to be lost, and not for each of them.

    Args:
        folder: Where; it is made.
        rows: Lines of a file.
        clock: Nanoseconds since 1970, for names of files.

    Attributes:
        path: The growing file.
        lost: Lines that could not be written.

    Example:
        >>> import tempfile
        >>> files = JsonlWriter(tempfile.mkdtemp(), rows=2)
        >>> [files.append(b'{"a":%d}' % number) for number in range(3)]
        [True, True, True]
        >>> files.close()
        >>> list(read_rows(files.folder)), len(list(files.folder.iterdir()))
        ([{'a': 0}, {'a': 1}, {'a': 2}], 2)
    """

    def __init__(self, folder: str | Path, rows: int, clock: Callable[[], int] = time.time_ns) -> None:
        if rows < 1:
            raise ArgumentError(f"a file of the log needs at least one line, got rows={rows}.")
        self.folder, self.lost = Path(folder), 0
        self._rows, self._clock = rows, clock
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path, self._file = self._opened()
        except OSError as error:
            raise ArgumentError(f"nothing can be written into {str(folder)!r}: {error.strerror}; check the folder.") from error
        self._size = self._lines = 0
        self._is_losing = False

    def append(self, line: bytes) -> bool:
        """Write one line, given without its end; false if it is lost."""
        whole = line + b"\n"
        why = "the disk took a part of a line"
        try:
            written = os.write(self._file, whole)
        except OSError as error:
            written, why = 0, error.strerror or why
        if written != len(whole):
            self._take_back(written, why)
            return False
        self._size, self._is_losing = self._size + written, False
        self._lines += 1
        if self._lines >= self._rows:
            self._turn()
        return True

    def close(self) -> None:
        """End the file; one without a line is removed. What is appended later is lost."""
        if self._file < 0:
            return
        if not self._lines:
            self.path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1

    def _opened(self) -> tuple[Path, int]:
        """A new file, locked; names of others, and files that were locked by someone who tidies, are passed over."""
        for attempt in range(_TRIES):
            path = self.folder / f"{self._clock() + attempt:020d}-{os.getpid()}{LINES}"
            try:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _PERMISSIONS)
            except FileExistsError:
                continue
            if _is_locked(file) is not False:
                return path, file
            os.close(file)
        raise ArgumentError(f"no name is left for a file in {str(self.folder)!r}; check the clock.")

    def _turn(self) -> None:
        """Begin a new file; if there can be none now, the old one grows on."""
        with contextlib.suppress(OSError, ArgumentError):
            path, file = self._opened()
            os.close(self._file)
            self.path, self._file = path, file
            self._size = self._lines = 0

    def _take_back(self, written: int, why: str) -> None:
        """No one else writes into the file, so that it can be cut back to its last whole line."""
        self.lost += 1
        if not self._is_losing:
            self._is_losing = True
            _LOG.warning("nothing can be written into %s: %s; lines are lost until it can", self.folder, why)
        if written:
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                self._turn()


def lock_of(path: Path) -> int | None:
    """The file, opened and locked, or none while its writer lives or where files cannot be locked; whoever closes it gives the lock back.

    Example:
        >>> import tempfile
        >>> files = JsonlWriter(tempfile.mkdtemp(), rows=9)
        >>> lock_of(files.path) is None
        True
    """
    file = os.open(path, os.O_RDONLY)
    if _is_locked(file):
        return file
    os.close(file)
    return None


def _is_locked(file: int) -> bool | None:
    """Whether we hold the lock now; none where the system or the file system has no such locks: there, files are not tidied."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def read_rows(folder: str | Path, columns: Sequence[str] | None = None, *, since: float = 0.0) -> Iterator[dict[str, Any]]:
    """Rows of all files of a folder, oldest file first, tidied or not; a folder that is not there has none.

    The last line of a file may have been cut off by the death of its writer, or may be half written yet: it is left out. Other lines that
    cannot be read are an error.

    Args:
        folder: Where.
        columns: Those that are wanted; a row of lines has all of them anyway.
        since: Files that nobody has touched since then, in seconds since 1970, are passed over.

    Yields:
        One mapping per line.

    Example:
        >>> list(read_rows("no/such/folder"))
        []
    """
    for path in _files(Path(folder)):
        try:
            if path.stat().st_mtime < since:
                continue
            yield from read_file(path, columns)
        except FileNotFoundError:  # it was tidied a moment ago
            yield from read_file(path.with_suffix(TABLE), columns)


def _files(folder: Path) -> list[Path]:
    """A file that is there in both forms was tidied, and only its removal was not reached."""
    names = [path for path in folder.glob("[0-9]*") if path.suffix in {LINES, TABLE}] if folder.is_dir() else []
    tidied = {path.stem for path in names if path.suffix == TABLE}
    return sorted(path for path in names if path.suffix == TABLE or path.stem not in tidied)


def read_file(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    r"""Rows of one file, by its suffix.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "1.jsonl")
        >>> _ = path.write_bytes(b'{"a":1}\n{"a":')
        >>> list(read_file(path))
        [{'a': 1}]
    """
    return _of_table(path, columns) if path.suffix == TABLE else _of_lines(path)


def _of_table(path: Path, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=8192, columns=None if columns is None else list(columns)):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise TableError(f"{path.name} is not a readable Parquet file: {str(error)[:200]}; put it aside.") from error


def _of_lines(path: Path) -> Iterator[dict[str, Any]]:
    bad = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if bad:
                raise TableError(f"{path.name}:{bad}: a line must be one JSON object, got something else; put the file aside.")
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                row = None
            if isinstance(row, dict):
                yield row
            else:
                bad = number
