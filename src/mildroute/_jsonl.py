"""Append-only JSON Lines files, each written by one process and read by all.

When ``append`` returns, a line survives the death of the process, though not a power failure. The
writer holds a lock on its file, which the system releases when the process ends for any reason, so
a file that is not locked is complete.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mildroute._files import lock_now, open_filesystem
from mildroute.exceptions import ArgumentError, TableError

# Suffixes of a file while it is written, and of a Parquet copy.
LINES = ".jsonl"
TABLE = ".parquet"
OPENING = ".opening"

_LOG = logging.getLogger(__name__)
_MAX_ATTEMPTS = 1000
# Seconds between two checks that the file still exists; one takes about 10 us, like writing a line.
_LOOK_INTERVAL = 1.0
# Seconds without a lost line after which the next lost line is reported again.
_WARN_INTERVAL = 10.0


class JsonlFile:
    """A JSON Lines file that one process appends to.

    Args:
        path: A new file; it is locked until it is closed.
        permissions: Permissions of the file.
    """

    def __init__(self, path: Path, *, permissions: int = 0o644) -> None:
        opening_path = path.with_suffix(OPENING)
        file = os.open(
            opening_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, permissions
        )
        lock_now(file)
        if path.exists():
            os.close(file)
            opening_path.unlink()
            raise FileExistsError(path)
        # The file never appears unlocked under its name, because a reader would call it complete.
        opening_path.rename(path)
        self._start(path, file)

    def _start(self, path: Path, file: int) -> None:
        self.path = path
        self._file = file
        self.lines = 0
        self.size = 0
        self.is_cut = False

    def append(self, *lines: bytes) -> None:
        """Write lines, given without newlines: either all of them or none.

        Raises:
            OSError: The lines could not be written. ``is_cut`` tells whether a part of them is in
                the file.
        """
        content = b"".join(line + b"\n" for line in lines)
        written = os.write(self._file, content)
        if written != len(content):
            self.is_cut = True
            os.ftruncate(self._file, self.size)
            self.is_cut = False
            raise OSError(28, "the disk took a part of a line")
        self.size += written
        self.lines += len(lines)

    @property
    def is_in_place(self) -> bool:
        """Return whether the file is still the one at its path, as far as can be determined."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        except OSError:  # it may exist: the folder is unreadable, or a network disk is slow
            return not self.is_removed
        return os.path.samestat(status, os.fstat(self._file))

    @property
    def is_removed(self) -> bool:
        """Return whether the file has been removed, so that no reader can find it."""
        return os.fstat(self._file).st_nlink == 0

    def close(self) -> None:
        """Close the file and release its lock; later appends fail."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class WriteAheadLog(JsonlFile):
    """A new file of entries, each written before the work continues.

    Args:
        folder: Folder of the file, which gets a unique name.
    """

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        stem = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}"
        super().__init__(Path(folder) / f"{stem}{LINES}")

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write one entry."""
        try:
            self.append(json.dumps(entry, separators=(",", ":")).encode())
        except OSError as error:
            raise TableError(
                f"an entry must be written to {self.path.name}, got: {error.strerror}; is the disk"
                " full? Free some space and run the same command again: what was written is kept."
            ) from error


class JsonlWriter:
    """One process's growing file in a folder; a new file begins after some lines.

    Use it from one thread. A line that cannot be written is counted as lost and the caller
    continues: a request must not fail because of its log. A warning is issued when lines begin to
    be lost, not for every lost line.

    Args:
        folder: Folder of the file, created if necessary.
        rows: Number of lines per file.
        clock: Function that returns nanoseconds since 1970, for file names.
    """

    def __init__(
        self, folder: str | Path, rows: int, clock: Callable[[], int] = time.time_ns
    ) -> None:
        if rows < 1:
            raise ArgumentError(f"a file of the log needs at least one line, got rows={rows}.")
        self.folder = Path(folder)
        self.lost = 0
        self._rows = rows
        self._clock = clock
        self._is_losing = False
        self._next_check = 0.0
        self._is_removed = False
        self._next_warning = 0.0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = self._open_file()
        except OSError as error:
            raise ArgumentError(
                f"nothing can be written into {str(folder)!r}: {error.strerror}; check the folder."
            ) from error

    @property
    def path(self) -> Path:
        """Return the current file."""
        return self._file.path

    def append(self, line: bytes) -> tuple[str, int] | None:
        """Write one line, without its newline.

        If someone has moved or removed the file, a new one begins within a second.

        Returns:
            The stem of the line's file and the byte at which the line ends, or `None` if the line
            is lost.
        """
        try:
            self._replace_if_gone()
            self._file.append(line)
        except OSError as error:
            self.lost += 1
            self._next_warning = time.monotonic() + _WARN_INTERVAL
            if not self._is_losing:
                self._is_losing = True
                _LOG.warning(
                    "nothing can be written into %s: %s; lines are lost until it can",
                    self.folder,
                    error.strerror,
                )
            if self._file.is_cut:
                self._rotate()
            return None
        if time.monotonic() >= self._next_warning:
            self._is_losing = False
        end = self.path.stem, self._file.size
        if self._file.lines >= self._rows:
            self._rotate()
        return end

    def close(self) -> None:
        """Close the file, and remove it if it is empty. Later appends are lost."""
        if not self._file.lines:
            with contextlib.suppress(OSError):  # the folder may be gone
                self.path.unlink()
        self._file.close()

    def _open_file(self) -> JsonlFile:
        """Return a new file, skipping existing names."""
        for attempt in range(_MAX_ATTEMPTS):
            path = self.folder / f"{self._clock() + attempt:020d}-{os.getpid()}{LINES}"
            with contextlib.suppress(FileExistsError):
                return JsonlFile(path, permissions=0o640)
        raise ArgumentError(f"no name is left for a file in {str(self.folder)!r}; check the clock.")

    def _replace_if_gone(self) -> None:
        """Begin a new file if the old one was moved or removed.

        If that fails, a moved file keeps growing.

        Raises:
            OSError: No file could be created, and the old one was removed.
        """
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _LOOK_INTERVAL
            if self._file.is_in_place:
                self._is_removed = False
                return
            missing_path = self.path
            with contextlib.suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
            if self._rotate():
                text = "%s was moved or removed while it was written; a new file begins"
                _LOG.warning(text, missing_path)
            self._is_removed = self._file.is_removed
        if self._is_removed:
            raise OSError(errno.ENOENT, "its file was removed, and no new one can be made")

    def _rotate(self) -> bool:
        """Begin a new file; if that fails, the old one keeps growing."""
        try:
            new_file = self._open_file()
        except (OSError, ArgumentError):
            return False
        self._file.close()
        self._file = new_file
        return True


def read_rows(
    folder: str | Path, columns: Sequence[str] | None = None, *, since: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield the rows of all files in folders or at URLs, oldest file first.

    A missing folder has no rows.

    An incomplete last line is skipped, because its writer may have died or may still be writing.
    Other unreadable lines are an error.

    Args:
        folder: Folder or URL of the files, or a pattern with ``*`` that matches several.
        columns: Columns to read; rows from JSON lines have all columns anyway.
        since: Skip files not changed since this time, in seconds since 1970.
    """
    if "://" in str(folder):
        yield from _read_objects(str(folder), columns)
        return
    for path in log_files(folder):
        if path.stat().st_mtime >= since:
            yield from read_file(path, columns)


def check_log(folder: str | Path) -> None:
    """Raise a TableError unless a log is a URL, a folder or a pattern that matches folders."""
    if "://" not in str(folder) and not _match_folders(folder):
        raise TableError(f"the log {str(folder)!r} is not a folder; check the path.")


def log_part(folder: str | Path, name: str) -> str | Path:
    """Return a subfolder of a log, which may be a URL."""
    if "://" not in str(folder):
        return Path(folder) / name
    address, mark, options = str(folder).partition("?")
    return f"{address.rstrip('/')}/{name}{mark}{options}"


def log_files(folder: str | Path) -> list[Path]:
    """Return the files in a folder, or in all folders that match a pattern, oldest first."""
    paths = [
        path
        for match in _match_folders(folder)
        for path in match.glob("[0-9]*")
        if path.suffix in (LINES, TABLE)
    ]
    # Names begin with the time at which the file was created.
    return sorted(paths, key=lambda path: (path.name, path))


def _match_folders(folder: str | Path) -> list[Path]:
    if "*" not in str(folder):
        return [Path(folder)] if Path(folder).is_dir() else []
    pattern = Path(folder).absolute()
    matches = Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
    return [path for path in matches if path.is_dir()]


def read_file(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of one file, in the format of its suffix."""
    return _read_parquet(path, path.name, columns) if path.suffix == TABLE else _read_lines(path)


def _read_objects(url: str, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    import pyarrow.fs as pafs

    system, root, match_paths = open_filesystem(url)
    has_pattern = "*" in root and match_paths is not None
    roots = match_paths(root) if has_pattern else [root.rstrip("/")]
    selectors = [pafs.FileSelector(path, allow_not_found=True, recursive=True) for path in roots]
    paths = [info.path for selector in selectors for info in system.get_file_info(selector)]
    for path in sorted(paths, key=lambda path: (path.rpartition("/")[2], path)):
        if path.endswith(TABLE):
            with system.open_input_file(path) as file:
                yield from _read_parquet(file, path, columns)
        elif path.endswith((LINES, f"{LINES}.gz")):
            # Arrow decompresses files that end with .gz.
            with system.open_input_stream(path) as stream:
                yield from _parse_lines(io.BufferedReader(stream), path)


def _read_parquet(file: Any, name: str, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(
                batch_size=8192, columns=None if columns is None else list(columns)
            ):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise TableError(
            f"{name} is not a readable Parquet file: {str(error)[:200]}; put it aside."
        ) from error


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        yield from _parse_lines(file, path.name)


def _parse_lines(file: Iterable[bytes], name: str) -> Iterator[dict[str, Any]]:
    bad_line = 0
    for number, line in enumerate(file, 1):
        if bad_line:
            raise TableError(
                f"{name}:{bad_line}: a line must be one JSON object, got something else; put"
                " the file aside."
            )
        try:
            row = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            row = None
        if isinstance(row, dict):
            yield row
        else:
            bad_line = number
