"""Code of an answer and its tests in two processes, each in a sandbox that the system provides.

Bubblewrap, where it is installed and the kernel lets it, gives both an empty, read-only root with
Python and the system's libraries, a working folder in memory, and namespaces of their own without a
network. In any case both give up what Landlock and seccomp can take from them (see
``_sandbox_child.py``); where namespaces are refused, as in most containers, that is the sandbox.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from mildroute.judges import _sandbox_child

Sandbox = Literal["bubblewrap", "landlock", "none"]
NO_SANDBOX = (
    "no sandbox is possible here, so the answer's code was not run; install bubblewrap (apt-get"
    " install bubblewrap) or use Linux 5.13 or later with Landlock; allow_unsandboxed=True runs it"
    " without one"
)

_MAX_OUTPUT = 1 << 16
_MAX_FILES_MB = 64
_LOOK_SECONDS = 0.05
_NOBODY = 65534
_FOLDER = "/sandbox"
_QUIET = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_LIBRARIES = (
    "/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/System/Library",
    "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types",
    "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_LIBRARY_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_SCRIPT = Path(_sandbox_child.__file__)


@dataclass(frozen=True)
class Outcome:
    """How the tests ended.

    Args:
        code: What the process of the code reported before it ran any.
        tests: What the process of the tests reported.
        stopped: Why both were ended before the tests were through, or empty.
    """

    code: Mapping[str, Any]
    tests: Mapping[str, Any]
    stopped: str


@functools.cache
def available_sandbox() -> Sandbox:
    """The best sandbox that works here, found out by trying."""
    if program := shutil.which("bwrap"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = [*_wrapped(program), sys.executable, "-I", "-S", "-c", ""]
            subprocess.run(command, check=True, capture_output=True, timeout=20, env=_QUIET)  # noqa: S603
            return "bubblewrap"
    return "landlock" if _sandbox_child.landlock_version() > 0 else "none"


def run_tests(
    code: Mapping[str, Any], tests: Mapping[str, Any], limits: Mapping[str, Any], seconds: float
) -> Outcome:
    """Run code and its tests, and end both, with all that they started, after some seconds.

    Args:
        code: What the process of the code is given; nothing of the tests is in it.
        tests: What the process of the tests is given.
        limits: What both are given.
        seconds: After which both are killed.
    """
    sandbox = available_sandbox()
    shared = {
        **limits,
        "readable": [*_readable(), *_DEVICES],
        "landlock": sandbox == "landlock",
        "namespaces": sandbox == "bubblewrap",
    }
    to_code, to_tests = os.pipe(), os.pipe()
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as pipes:
        for end in (*to_code, *to_tests):
            pipes.callback(os.close, end)
        ends = ((to_code[0], to_tests[1]), (to_tests[0], to_code[1]))
        processes = [
            stack.enter_context(_started(sandbox, {**job, **shared}, *pair))
            for job, pair in zip((code, tests), ends, strict=True)
        ]
        # or neither process would notice that the other one ended
        pipes.close()
        stopped = _wait(processes[1], processes, seconds)
        for process in processes:
            process.end()
        return Outcome(processes[0].reported(), processes[1].reported(), stopped)


@dataclass(frozen=True)
class _Process:
    popen: subprocess.Popen[bytes]
    report: IO[bytes]
    folder: Path

    def end(self) -> None:
        # the group, also after its leader has ended: what it started must not stay behind
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def reported(self) -> dict[str, Any]:
        said: dict[str, Any] = {}
        self.report.seek(0)
        for line in self.report.read(_MAX_OUTPUT).split(b"\n"):
            with contextlib.suppress(ValueError):
                said.update(json.loads(line))
        return said


@contextlib.contextmanager
def _started(
    sandbox: Sandbox, job: dict[str, Any], reading: int, writing: int
) -> Iterator[_Process]:
    """A process that reads its job from, and reports to, files without names."""
    with contextlib.ExitStack() as stack:
        stdin, report = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        stdin.write(json.dumps({**job, "reading": reading, "writing": writing}).encode())
        stdin.seek(0)
        folder = tempfile.mkdtemp()
        stack.callback(_remove, folder)
        wrapped = sandbox == "bubblewrap"
        home = _FOLDER if wrapped else folder
        if not wrapped and os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
        environment = {name: os.environ[name] for name in _LIBRARY_PATHS if name in os.environ}
        popen = subprocess.Popen(  # noqa: S603
            [
                *(_wrapped(shutil.which("bwrap") or "bwrap") if wrapped else []),
                *(sys.executable, "-I", "-B", str(_SCRIPT)),
            ],
            stdin=stdin,
            stdout=report,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**_QUIET, **environment, "HOME": home, "TMPDIR": home},
            start_new_session=True,
            pass_fds=(reading, writing),
        )
        process = _Process(popen, report, Path(folder))
        stack.callback(process.end)
        yield process


def _wrapped(program: str) -> list[str]:
    """Bubblewrap's part of a command line."""
    mounts = [option for path in _readable() for option in ("--ro-bind-try", path, path)]
    devices = [option for path in _DEVICES for option in ("--dev-bind-try", path, path)]
    namespaces = [f"--unshare-{kind}" for kind in ("user", "pid", "net", "ipc", "uts")]
    user = ["--uid", str(_NOBODY), "--gid", str(_NOBODY), "--cap-drop", "ALL"]
    folder = ["--size", str(_MAX_FILES_MB << 20), "--tmpfs", _FOLDER, "--chdir", _FOLDER]
    ends = ["--die-with-parent", "--new-session", "--remount-ro", "/", "--"]
    return [program, *namespaces, "--unshare-cgroup-try", *user, *mounts, *devices, *folder, *ends]


@functools.cache
def _readable() -> list[str]:
    """What code may read: Python, its libraries and those of the system, and the child's script."""
    python = (sys.prefix, sys.base_prefix, sys.exec_prefix, str(_SCRIPT.parent))
    named = (os.environ.get(name, "") for name in _LIBRARY_PATHS)
    libraries = [path for paths in named for path in paths.split(os.pathsep) if path]
    found = dict.fromkeys((*_LIBRARIES, *python, *libraries))
    # Python in the root folder itself is a mistake, and would make all of it readable
    return [path for path in found if path != "/" and Path(path).exists()]


def _wait(awaited: _Process, processes: list[_Process], seconds: float) -> str:
    """Wait for a process to end, or for a limit: then which one."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            awaited.popen.wait(min(left, _LOOK_SECONDS))
            return ""
        # in a folder on disk nothing but looking limits how many files there are
        if any(_megabytes(process.folder) > _MAX_FILES_MB for process in processes):
            return f"the code wrote more than {_MAX_FILES_MB} MB of files"
    return f"the code ran for more than {seconds:g} s"


def _megabytes(folder: Path) -> float:
    total = 0
    with contextlib.suppress(OSError, RecursionError):
        for place, _, files in os.walk(folder):
            total += sum(os.lstat(f"{place}/{name}").st_blocks for name in files)
    return total / 2048


def _remove(folder: str) -> None:
    # code may leave folders behind that are too deep to walk through
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
