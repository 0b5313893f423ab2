"""A sandbox that runs the code of an answer and its tests in one process, inside bubblewrap.

The process sees an empty, read-only root with Python and the system's libraries, a working folder
in memory, and its own namespaces without a network. A seccomp filter keeps it from starting
processes, opening sockets and reaching other processes. ``_test_runner.py`` reads the job and
writes the result as JSON.
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
    "the answer's code was not run, because bubblewrap does not work here; install it (apt-get"
    " install bubblewrap) and allow the kernel to create user namespaces, or set allow_unsandboxed"
    " to run the code with all rights of this user"
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

# For each architecture: its number for seccomp, the number of clone, and the numbers of the system
# calls that are refused (fork, vfork, socket, ptrace, mount, unshare, setns, process_vm_readv and
# process_vm_writev, bpf, perf_event_open, add_key, request_key, keyctl, userfaultfd).
_CALLS = {
    "x86_64": (
        0xC000003E,
        56,
        (57, 58, 41, 101, 165, 272, 308, 310, 311, 321, 298, 248, 249, 250, 323),
    ),
    "aarch64": (0xC00000B7, 220, (198, 117, 40, 97, 268, 270, 271, 280, 241, 217, 218, 219, 282)),
}
_CLONE3 = 435
_IO_URING_SETUP = 425
_FIRST_X32_CALL = 0x40000000
_CLONE_THREAD = 0x10000
_ALLOW = 0x7FFF0000
_NOT_PERMITTED = 0x00050001
_NOT_IMPLEMENTED = 0x00050026
_KILL = 0x80000000
# Operations of BPF.
_LOAD = 0x20
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_AT_LEAST = 0x35
_JUMP_IF_ANY_BIT = 0x45
_RETURN = 0x06


@dataclass(frozen=True)
class Outcome:
    """The outcome of running tests.

    Args:
        started: Whether the process reached the point at which it runs code.
        passed: Whether all tests passed.
        no_verdict: Reason why the outcome allows no verdict, or an empty text.
        failure: Failure that the process reported, or an empty text.
        stopped: Reason why the process was killed, or an empty text.
    """

    started: bool = True
    passed: bool = False
    no_verdict: str = ""
    failure: str = ""
    stopped: str = ""


@functools.cache
def sandbox_works() -> bool:
    """Return whether bubblewrap can create a sandbox on this machine, by creating one."""
    if shutil.which("bwrap") is None or platform.machine() not in _CALLS:
        return False
    with contextlib.suppress(OSError, subprocess.SubprocessError), _filter_file() as descriptor:
        subprocess.run(  # noqa: S603
            [*_bubblewrap_command(descriptor), sys.executable, "-I", "-S", "-c", ""],
            check=True,
            capture_output=True,
            timeout=20,
            env=_ENVIRONMENT,
            pass_fds=(descriptor,),
        )
        return True
    return False


def run_tests(job: Mapping[str, Any], seconds: float, *, sandboxed: bool = True) -> Outcome:
    """Run code and its tests, and kill the process after some seconds.

    Args:
        job: The job that ``_test_runner.py`` reads.
        seconds: Time after which the process is killed.
        sandboxed: Whether to run in bubblewrap.
    """
    token = secrets.token_hex()
    with contextlib.ExitStack() as stack:
        stdin, stdout = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        stdin.write(json.dumps({**job, "token": token}).encode())
        stdin.seek(0)
        folder = tempfile.mkdtemp()
        stack.callback(_remove_folder, folder)
        command = [sys.executable, "-I", "-B", str(_SCRIPT)]
        descriptors: tuple[int, ...] = ()
        if sandboxed:
            descriptor = stack.enter_context(_filter_file())
            descriptors = (descriptor,)
            command = [*_bubblewrap_command(descriptor), *command]
        home = _FOLDER if sandboxed else folder
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**_ENVIRONMENT, **_library_paths(), "HOME": home, "TMPDIR": home},
            start_new_session=True,
            pass_fds=descriptors,
        )
        stopped = ""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            stopped = f"the code ran for more than {seconds:g} s"
        finally:
            # The process group may outlive its leader, and no process of the code may remain.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return _read_outcome(stdout, token, stopped)


def _read_outcome(output: IO[bytes], token: str, stopped: str) -> Outcome:
    """Return the reported outcome; lines without the token can only report a failure."""
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


def _bubblewrap_command(descriptor: int) -> list[str]:
    """Return bubblewrap's part of a command line.

    Args:
        descriptor: File descriptor of the seccomp filter.
    """
    program = shutil.which("bwrap") or "bwrap"
    mounts = [option for path in _readable_paths() for option in ("--ro-bind-try", path, path)]
    devices = [option for path in _DEVICES for option in ("--dev-bind-try", path, path)]
    namespaces = [f"--unshare-{kind}" for kind in ("user", "pid", "net", "ipc", "uts")]
    user = ["--uid", _NOBODY, "--gid", _NOBODY, "--cap-drop", "ALL"]
    folder = ["--size", str(_MAX_FILES_MB << 20), "--tmpfs", _FOLDER, "--chdir", _FOLDER]
    return [
        program,
        *namespaces,
        "--unshare-cgroup-try",
        *user,
        *mounts,
        *devices,
        *folder,
        "--die-with-parent",
        "--new-session",
        "--remount-ro",
        "/",
        "--seccomp",
        str(descriptor),
        "--",
    ]


def _readable_paths() -> list[str]:
    """Return the paths that code may read: Python, libraries and the test runner."""
    python = (sys.prefix, sys.base_prefix, sys.exec_prefix, str(_SCRIPT))
    libraries = [path for paths in _library_paths().values() for path in paths.split(os.pathsep)]
    paths = dict.fromkeys((*_LIBRARIES, *python, *libraries))
    # If Python were in the root folder, the code could read all files.
    return [path for path in paths if path not in ("", "/")]


def _library_paths() -> dict[str, str]:
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


@contextlib.contextmanager
def _filter_file() -> Iterator[int]:
    """Yield the descriptor of a file from which bubblewrap reads the seccomp filter."""
    with tempfile.TemporaryFile() as file:
        file.write(seccomp_filter())
        file.seek(0)
        yield file.fileno()


def seccomp_filter() -> bytes:
    """Return a BPF program that allows new threads, but no new processes or refused calls."""
    architecture, clone, refused = _CALLS[platform.machine()]
    # Each step: operation, steps to skip if true, steps to skip if false, operand.
    steps = [
        (_LOAD, 0, 0, 4),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_JUMP_IF_AT_LEAST, 0, 1, _FIRST_X32_CALL),
        (_RETURN, 0, 0, _NOT_PERMITTED),
        # The C library falls back to clone, as on an older kernel, whose flags the filter can read.
        (_JUMP_IF_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _NOT_IMPLEMENTED),
    ]
    for number in (*refused, _IO_URING_SETUP):
        steps += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOT_PERMITTED)]
    steps += [
        (_JUMP_IF_EQUAL, 0, 3, clone),
        (_LOAD, 0, 0, 16),
        (_JUMP_IF_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _NOT_PERMITTED),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _remove_folder(folder: str) -> None:
    # Code may leave folders behind that are nested too deeply for rmtree.
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
