"""Processes below another one, and what kills one of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path


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
