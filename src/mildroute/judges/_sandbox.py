"""Run the code of an answer with its tests in one process, inside bubblewrap.

The process sees an empty, read-only root with Python and the system's libraries, a working folder
in memory, and namespaces of its own without a network. A seccomp filter keeps it from starting
processes, opening sockets and reaching other processes. The job goes in as JSON, the result comes
out as JSON (``_test_runner.py``).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

NO_SANDBOX = (
    "the answer's code was not run, since bubblewrap does not work here; install it (apt-get"
    " install bubblewrap) and let the kernel make user namespaces, or set allow_unsandboxed to run"
    " the code with all rights of this user"
)
_MAX_OUTPUT = 1 << 16
_MAX_FILES_MB = 64
_NOBODY = "65534"
_FOLDER = "/sandbox"
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_LIBRARIES = (
    "/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime",
    "/etc/mime.types", "/sys/devices/system/cpu",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_SCRIPT = Path(__file__).with_name("_test_runner.py")

# System calls by architecture: its number for seccomp, clone, and the calls that are refused (fork,
# vfork, socket, ptrace, mount, unshare, setns, process_vm_readv and _writev, bpf, perf_event_open,
# add_key, request_key, keyctl, userfaultfd).
_CALLS = {
    "x86_64": (
        0xC000003E,
        56,
        (57, 58, 41, 101, 165, 272, 308, 310, 311, 321, 298, 248, 249, 250, 323),
    ),
    "aarch64": (0xC00000B7, 220, (198, 117, 40, 97, 268, 270, 271, 280, 241, 217, 218, 219, 282)),
}
_CLONE3, _IO_URING_SETUP, _FIRST_X32_CALL = 435, 425, 0x40000000
_CLONE_THREAD = 0x10000
_ALLOW, _NOT_PERMITTED, _NOT_IMPLEMENTED, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


@dataclass(frozen=True)
class Outcome:
    """How the tests ended.

    Args:
        started: Whether the process reached the point at which it runs code.
        passed: Whether all tests passed.
        no_verdict: Why there is none, or empty.
        failure: What the process reported, or empty.
        stopped: Why the process was killed, or empty.
    """

    started: bool = True
    passed: bool = False
    no_verdict: str = ""
    failure: str = ""
    stopped: str = ""


@functools.cache
def sandbox_works() -> bool:
    """Tell whether bubblewrap can make a sandbox here, by making one."""
    if shutil.which("bwrap") is None or platform.machine() not in _CALLS:
        return False
    with contextlib.suppress(OSError, subprocess.SubprocessError), _filter_file() as rules:
        subprocess.run(  # noqa: S603
            [*_bubblewrap(rules), sys.executable, "-I", "-S", "-c", ""],
            check=True,
            capture_output=True,
            timeout=20,
            env=_ENVIRONMENT,
            pass_fds=(rules,),
        )
        return True
    return False


def run_tests(job: Mapping[str, Any], seconds: float, *, sandboxed: bool = True) -> Outcome:
    """Run code and its tests, and kill the process after some seconds.

    Args:
        job: What ``_test_runner.py`` reads.
        seconds: Time after which the process is killed.
        sandboxed: Whether to run in bubblewrap.
    """
    token = secrets.token_hex()
    with contextlib.ExitStack() as stack:
        stdin, stdout = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        stdin.write(json.dumps({**job, "token": token}).encode())
        stdin.seek(0)
        folder = tempfile.mkdtemp()
        stack.callback(_remove, folder)
        command = [sys.executable, "-I", "-B", str(_SCRIPT)]
        rules: tuple[int, ...] = ()
        if sandboxed:
            rules = (stack.enter_context(_filter_file()),)
            command = [*_bubblewrap(*rules), *command]
        home = _FOLDER if sandboxed else folder
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**_ENVIRONMENT, **_library_paths(), "HOME": home, "TMPDIR": home},
            start_new_session=True,
            pass_fds=rules,
        )
        stopped = ""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            stopped = f"the code ran for more than {seconds:g} s"
        finally:
            # The group, also after its leader has ended: what it started must not stay behind.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return _read_outcome(stdout, token, stopped)


def _read_outcome(output: IO[bytes], token: str, stopped: str) -> Outcome:
    """Read the report; lines without the token come from the code and can only fail it."""
    output.seek(0)
    trusted: dict[str, Any] = {}
    failure = ""
    for line in output.read(_MAX_OUTPUT).split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            message = json.loads(line)
            if isinstance(message, dict) and message.get("token") == token:
                trusted |= message
            elif isinstance(message, dict):
                failure = failure or str(message.get("failure", ""))
    return Outcome(
        started="started" in trusted,
        passed="passed" in trusted,
        no_verdict=trusted.get("no_verdict", ""),
        failure=failure,
        stopped=stopped,
    )


def _bubblewrap(rules: int) -> list[str]:
    """Return bubblewrap's part of a command line."""
    program = shutil.which("bwrap") or "bwrap"
    mounts = [option for path in _readable() for option in ("--ro-bind-try", path, path)]
    devices = [option for path in _DEVICES for option in ("--dev-bind-try", path, path)]
    namespaces = [f"--unshare-{kind}" for kind in ("user", "pid", "net", "ipc", "uts")]
    user = ["--uid", _NOBODY, "--gid", _NOBODY, "--cap-drop", "ALL"]
    folder = ["--size", str(_MAX_FILES_MB << 20), "--tmpfs", _FOLDER, "--chdir", _FOLDER]
    ends = ["--die-with-parent", "--new-session", "--remount-ro", "/"]
    return [
        *(program, *namespaces, "--unshare-cgroup-try", *user, *mounts, *devices, *folder, *ends),
        *("--seccomp", str(rules), "--"),
    ]


def _readable() -> list[str]:
    """Return what code may read: Python, its libraries, those of the system, and the runner."""
    python = (sys.prefix, sys.base_prefix, sys.exec_prefix, str(_SCRIPT))
    libraries = [path for paths in _library_paths().values() for path in paths.split(os.pathsep)]
    paths = dict.fromkeys((*_LIBRARIES, *python, *libraries))
    # Python in the root folder itself is a mistake, and would make all of it readable.
    return [path for path in paths if path not in ("", "/")]


def _library_paths() -> dict[str, str]:
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


@contextlib.contextmanager
def _filter_file() -> Iterator[int]:
    """Yield a descriptor from which bubblewrap reads the seccomp filter."""
    with tempfile.TemporaryFile() as file:
        file.write(seccomp_filter())
        file.seek(0)
        yield file.fileno()


def seccomp_filter() -> bytes:
    """Return a BPF program: threads but no processes, and none of the refused calls."""
    architecture, clone, refused = _CALLS[platform.machine()]
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    code = [
        *[(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, _KILL), (load, 0, 0, 0)],
        *[(at_least, 0, 1, _FIRST_X32_CALL), (give, 0, 0, _NOT_PERMITTED)],
        # As on an older kernel, so that the C library uses clone, whose flags can be read.
        *[(equal, 0, 1, _CLONE3), (give, 0, 0, _NOT_IMPLEMENTED)],
    ]
    for number in (*refused, _IO_URING_SETUP):
        code += [(equal, 0, 1, number), (give, 0, 0, _NOT_PERMITTED)]
    code += [(equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 1, 0, _CLONE_THREAD)]
    code += [(give, 0, 0, _NOT_PERMITTED), (give, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in code)


def _remove(folder: str) -> None:
    # Code may leave folders behind that are too deep to walk through.
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
