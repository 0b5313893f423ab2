"""A Python script in a process of its own, which is given a text, and which ends after some seconds whatever it does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_OUTPUT = 1 << 16
_QUIET = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Finished:
    """How a script ended.

    Args:
        code: Its exit code, or minus the signal that ended it.
        output: The first 64 KiB of what it wrote.
        timed_out: Whether it was ended because its time was up.
    """

    code: int
    output: bytes
    timed_out: bool


def run_script(script: Path, given: Mapping[str, Any], seconds: float, *, folder: str, options: Sequence[str] = ()) -> Finished:
    r"""Run a script and end it, with all processes of its group, after some seconds at the latest.

    The script runs isolated (``python -I``) and sees none of this process's environment, files or pipes: it reads from and writes to
    files without names, so that nothing that it starts can keep anyone waiting.

    Args:
        script: The script.
        given: What it finds on its standard input, as JSON.
        seconds: After which it is killed.
        folder: Where it runs, also its home and its folder for temporary files.
        options: Further options of Python.

    Returns:
        How it ended.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     script = Path(folder) / "loud.py"
        ...     _ = script.write_text("print(input())")
        ...     run_script(script, {"a": 1}, 10.0, folder=folder).output
        b'{"a": 1}\n'
    """
    libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
        stdin.write(json.dumps(given).encode())
        stdin.seek(0)
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-B", *options, str(script)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**_QUIET, **libraries, "HOME": folder, "TMPDIR": folder},
            start_new_session=True,
        )
        try:
            timed_out = _outlasts(process, seconds)
        finally:
            # the group, also after its leader has ended: what it started must not stay behind
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        stdout.seek(0)
        return Finished(code, stdout.read(_MAX_OUTPUT), timed_out)


def _outlasts(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False
