"""Processes below another one, what kills one of them, and clients in threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self


def children(parent: int) -> Iterator[int]:
    """Processes below another."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            yield int(path.parent.name)
            yield from children(int(path.parent.name))


def kill_a_worker(folder: Path, pattern: str, title: bytes, killed: list[int]) -> None:
    """Kill one child with this title once a file of this pattern is below the folder."""
    while not list(folder.rglob(pattern)):
        time.sleep(0.005)
    for pid in children(os.getpid()):
        if title in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return


class BackgroundLoad:
    """Clients in threads of their own, which ask until a block has ended."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
