"""Watches the interpreter.

While armed, anything that runs code, starts a process, imports or writes is recorded.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

FORBIDDEN = (
    "import",
    "exec",
    "compile",
    "code.",
    "function.",
    "marshal.",
    "pickle.",
    "ctypes.",
    "subprocess.",
    "socket.",
    "shutil.",
)
FORBIDDEN += (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.spawn",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_armed: list[list[str]] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _armed:
        return
    reads = event != "open" or not (
        "passwd" in str(arguments[0]) or (isinstance(arguments[2], int) and arguments[2] & _WRITING)
    )
    if event.startswith(FORBIDDEN) or not reads:
        _armed[-1].append(f"{event} {arguments!r:.200}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def nothing_runs() -> Iterator[None]:
    """Fails if the block runs code from elsewhere, imports, writes, or opens password files."""
    seen: list[str] = []
    _armed.append(seen)
    try:
        yield
    finally:
        _armed.pop()
    assert seen == []
