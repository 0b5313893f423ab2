"""``mildroute collect`` as a process of its own.

What it wrote, how it ended, and how much memory it took at most.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# What the system counts for a child that has ended begins with the memory of its parent. And a
# process that a shell starts in the background ignores Ctrl-C, as do those that it starts.
PEAK = """
import atexit, pathlib, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    pathlib.Path("said.peak").write_text(status.split("VmHWM:")[1].split()[0])
atexit.register(peak)
"""
START = "from mildroute.cli.app import app; app()"


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str
    peak: float

    @property
    def said(self) -> str:
        return self.out + self.err


def collect(
    folder: Path,
    *more: str,
    judge: str = "exact",
    start: str = START,
    environment: Mapping[str, str] | None = None,
    interrupt_when: Callable[[], bool] | None = None,
) -> Finished:
    """Run the command in a folder with queries.jsonl and experts.yaml.

    Ctrl-C as soon as a condition holds, if one is given.

    Standard output and error are kept in files called ``said.out`` and ``said.err`` beside them;
    the peak of memory is in MiB.
    """
    clean = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    command = [
        sys.executable,
        "-c",
        PEAK + start,
        "collect",
        "queries.jsonl",
        "--experts",
        "experts.yaml",
        "--judge",
        judge,
        "--yes",
        *more,
    ]
    with (folder / "said.out").open("wb") as out, (folder / "said.err").open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=out,
            stderr=err,
            env={**clean, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
        if interrupt_when is not None:
            _wait(interrupt_when)
            process.send_signal(signal.SIGINT)
        process.wait(600)
    said = [(folder / name).read_text(errors="replace") for name in ("said.out", "said.err")]
    return Finished(process.returncode, *said, peak=int((folder / "said.peak").read_text()) / 1024)


def _wait(condition: Callable[[], bool], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
