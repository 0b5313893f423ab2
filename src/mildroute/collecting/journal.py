"""Lines that outlive the process that wrote them: each is handed to the system at once, and read back even after a kill."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mildroute.errors import TableError

__all__ = ["Journal", "read_journal"]


class Journal:
    """An append-only file of JSON lines.

    A line is one call of ``write``: when it returns, the line survives the death of the process, though not the loss of power.

    Args:
        folder: Where; the file gets a name of its own.

    Example:
        >>> import tempfile
        >>> journal = Journal(tempfile.mkdtemp())
        >>> journal.append({"a": 1})
        >>> journal.close()
        >>> list(read_journal(journal.path))
        [{'a': 1}]
    """

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.path = Path(folder) / f"{time.time_ns():020d}-{os.getpid()}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self.lines = 0

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise TableError(f"a line must be written whole, got {written} of {len(line)} bytes into {self.path.name}; is the disk full?")
        self.lines += 1

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


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
