"""Runs as a process of its own: code of an answer and the tests of it, fenced in as far as the system allows.

The code and its tests share one interpreter, so code that was written against this very script can pass without being right; nothing
else should. What the code prints, when it exits and how often it forks does not matter: it passed if, and only if, the process that ran
all tests writes the token that it was given at the start, after the last test.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import resource
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

_NEW_USER, _NEW_PID, _NEW_NET, _NEW_IPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
_DEATH_SIGNAL = 1
_FILE_SIZE = 1 << 24
_OPEN_FILES = 64
_PROCESSES = 64
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = frozenset({
    "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system", "os.startfile", "os.kill", "os.killpg", "pty.spawn",
    "signal.pthread_kill", "subprocess.Popen", "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
    "socket.gethostbyname", "socket.gethostbyaddr",
})  # fmt: skip
_CHANGING = frozenset({
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate", "os.utime",
    "os.chflags", "shutil.rmtree", "shutil.move", "shutil.copyfile", "shutil.copytree", "shutil.chown",
})  # fmt: skip
_LIBRARIES = (
    "/usr", "/lib", "/lib64", "/System/Library", "/etc/localtime", "/etc/mime.types", "/dev/zero", "/dev/random", "/dev/urandom",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system",
)  # fmt: skip
# kept aside: the code of an answer may replace the built-in ones
_exec, _compile = builtins.exec, builtins.compile


def fence_in(folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that refuses new processes, signals, network, changes outside a folder, and files but for Python's and the system's.

    Example:
        >>> fence_in("/tmp/x")("os.system", ("ls",))
        Traceback (most recent call last):
        PermissionError: os.system is not allowed here
    """
    own = {os.path.realpath(folder), os.devnull}
    readable = own | {os.path.realpath(root) for root in (sys.prefix, sys.base_prefix, *filter(None, sys.path), *_LIBRARIES)}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN:
            raise PermissionError(f"{event} is not allowed here")
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & _WRITING
            allowed = _is_below(arguments[0], own if writes else readable)
        else:
            allowed = event not in _CHANGING or all(_is_below(argument, own) for argument in arguments)
        if not allowed:
            raise PermissionError(f"{event} is not allowed outside the working folder")

    return hook


def _is_below(path: object, roots: set[str]) -> bool:
    """Whether a path leads into one of the folders; what is no path leads nowhere."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return True
    place = os.path.realpath(os.fsdecode(path))
    return any(place == root or place.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


def _main() -> None:
    job = json.load(sys.stdin)
    token, report = job.pop("token"), os.dup(1)
    _silence()
    isolated = _isolate()
    owner = os.getpid()

    def say(**words: Any) -> None:
        # a fork of this process must not speak for it
        if os.getpid() == owner:
            os.write(report, (json.dumps({"token": token, **words}) + "\n").encode())

    if job["require_isolation"] and not isolated:
        say(refused="the kernel allows no namespaces here, so the code could not be kept from the network")
        os._exit(0)
    _limit(job["cpu_seconds"], job["memory_mb"], isolated=isolated)
    say(started=True)
    sys.addaudithook(fence_in("."))
    try:
        _run(job)
    except BaseException as error:  # noqa: BLE001 - exits and interrupts of the code are failures of the code
        say(failure=_words(error))
    else:
        say(passed=True)
    # no exit hooks, no waiting for threads
    os._exit(0)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _isolate() -> bool:
    """Go on as the first process of namespaces without a network; the kernel ends all others in them when it ends."""
    try:
        import ctypes

        system = ctypes.CDLL(None)
        ways = (_NEW_USER | _NEW_NET | _NEW_PID | _NEW_IPC, _NEW_NET | _NEW_PID | _NEW_IPC)
        if not any(system.unshare(way) == 0 for way in ways):
            return False
    except (ImportError, OSError, AttributeError):
        return False
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    system.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    return True


def _limit(cpu_seconds: int, memory_mb: int, *, isolated: bool) -> None:
    memory = memory_mb << 20
    limits = {"RLIMIT_CPU": cpu_seconds, "RLIMIT_AS": memory, "RLIMIT_FSIZE": _FILE_SIZE, "RLIMIT_NOFILE": _OPEN_FILES, "RLIMIT_CORE": 0}
    if isolated:
        # elsewhere all processes of the user count, and a busy machine would fail the code
        limits["RLIMIT_NPROC"] = _PROCESSES
    for name, value in limits.items():
        with contextlib.suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), (value, value))


def _run(job: dict[str, Any]) -> None:
    tests = _compiled([job["tests"]], "tests.py")
    module = types.ModuleType("answer")
    sys.modules["answer"] = sys.modules["solution"] = module
    code = _compiled(job["variants"], "answer.py")
    _exec(_compiled([job["preamble"]], "preamble.py"), module.__dict__)
    _exec(code, module.__dict__)
    space = {**module.__dict__, "__name__": "tests"}
    _exec(tests, space)
    if job["entry_point"]:
        space["check"](module.__dict__[job["entry_point"]])
    for name in job["functions"]:
        _call(space[name])
    for name in job["classes"]:
        _run_class(space[name])


def _compiled(variants: list[str], name: str) -> Any:
    """The first of several texts that compiles, without the features that this file imports from the future."""
    problem: BaseException = SyntaxError("there is no code")
    for code in variants:
        try:
            return _compile(code, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
            problem = error
    raise problem


def _run_class(cls: Any) -> None:
    import unittest

    if not issubclass(cls, unittest.TestCase):
        for name in [name for name in dir(cls) if name.startswith("test")]:
            _call(getattr(cls(), name))
        return
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    problems = [text for _, text in (*result.failures, *result.errors)]
    if problems or not result.wasSuccessful() or len(result.skipped) == result.testsRun:
        raise AssertionError(problems[0].strip().splitlines()[-1] if problems else "the tests did not pass")


def _call(test: Callable[[], Any]) -> None:
    outcome = test()
    if isinstance(outcome, types.CoroutineType):
        import asyncio

        asyncio.run(outcome)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


if __name__ == "__main__":
    _main()
