"""Runs as a process of its own, twice for each judged answer: once its code, once its tests.

Both processes give up all that they do not need before either runs a line of the answer. They talk
by values (``_remote.py``); the verdict comes from the process of the tests, which the code cannot
reach. This file imports nothing but the standard library.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib.util
import io
import json
import os
import platform
import resource
import struct
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_FILE_SIZE = 1 << 24
# Events of Python that end in a clear error instead of one that honest code may overlook, such as
# the result of os.system. The kernel refuses them in any case.
_FORBIDDEN = frozenset({
    "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system",
    "subprocess.Popen", "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo",
})  # fmt: skip
_OPEN_FILES = 64
_PROCESSES = 64
_NOBODY = 65534

# Linux system calls for Python, its libraries and SQLite, without any that starts a program, opens
# a network, names another process or changes permissions: number of the architecture for seccomp,
# and ranges of numbers. Made from <asm/unistd_64.h> and <asm-generic/unistd.h>.
_CALLS = {
    "x86_64": (
        0xC000003E,
        "0-28 32-33 35-40 44-48 51-55 60 63 72-75 77-89 95-100 102 104 107-108 110-111 115 118"
        " 120-121 124 127-128 130-131 137-138 143 145-147 158 186 201-202 204 213 217-219 221-224"
        " 226 228-233 239 257-258 262-267 269-271 273-274 277 281 283 285-287 289-293 295-296 309"
        " 316 318 324 326 332 334 436-437 439 441",
    ),
    "aarch64": (
        0xC00000B7,
        "17 19-25 29 32 34-38 43-44 46-50 56-57 59 61-74 78-80 82-87 93-94 96 98-103 107-108"
        " 110-111 113-115 120-121 123-126 128 132-137 139 148 150 153 155-156 158 160 163 165-166"
        " 168-169 172-179 199 204-212 214-216 222-223 226-227 232-233 236 276 278 283 285 291 293"
        " 436-437 439 441",
    ),
}
# Calls of which only some forms are allowed: clone, kill, tgkill, prlimit64, fcntl, ioctl.
_SPECIAL = {"x86_64": (56, 62, 234, 302, 72, 16), "aarch64": (220, 129, 131, 261, 25, 29)}
_CLONE3 = 435
_THREAD = 0x10000
# of fcntl and ioctl: who is signaled about a descriptor, and input as if typed
_DENIED_FCNTL, _DENIED_IOCTL = (8, 10, 15), (0x8901, 0x8902, 0x5412)
_ALLOW, _DENY, _NO_CALL, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000

_SET_DUMPABLE, _SET_KEEPCAPS, _SET_SECCOMP, _NO_NEW_PRIVS = 4, 8, 22, 38
_CAPSET = {"x86_64": 126, "aarch64": 91}
_READ_ALL = 1 << 2  # CAP_DAC_READ_SEARCH
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
# Landlock: execute, write, read, list ..., of which files have only some; how many a version knows
_READING, _LISTING, _WRITING, _OF_FILES = 1 << 2, 1 << 3, 1 << 1, 0b1100000000000111
_NOT_IN_FOLDER = 1 | 1 << 6 | 1 << 9 | 1 << 11  # execute, devices, sockets
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}


def landlock_version() -> int:
    """The version of Landlock that the kernel has; below 1 if none, or if there is no seccomp."""
    if sys.platform != "linux" or platform.machine() not in _CALLS:
        return 0
    system = ctypes.CDLL(None, use_errno=True)
    version: int = system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return version if system.prctl(21, 0, 0, 0, 0) >= 0 else 0


def confine(job: dict[str, Any]) -> None:
    """Give up files, processes, network and rights; an error if that is needed and not possible."""
    version = landlock_version()
    if job["landlock"] and version < 1:
        raise OSError("the kernel has no Landlock")
    rules = _file_rules(version, job["readable"]) if version > 0 else None
    _limit(job["cpu_seconds"], job["memory_mb"], processes=job["namespaces"])
    if sys.platform != "linux":
        return
    _drop_user()
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    _check(system.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if rules is not None:
        _check(system.syscall(_RESTRICT_SELF, rules, 0), "Landlock")
        os.close(rules)
    if platform.machine() in _CALLS:
        code = call_filter(os.getpid())
        memory = ctypes.create_string_buffer(code)
        program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(memory))
        _check(system.prctl(_SET_SECCOMP, 2, program, 0, 0), "seccomp")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _file_rules(version: int, readable: list[str]) -> int:
    """A Landlock ruleset: libraries can be read, the working folder used, and nothing else."""
    system = ctypes.CDLL(None, use_errno=True)
    handled = (1 << _RIGHTS.get(version, 16)) - 1
    # since version 4 TCP, since version 6 signals and abstract sockets
    wanted = struct.pack("QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules: int = system.syscall(_CREATE_RULESET, wanted, ctypes.c_size_t(len(wanted)), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "Landlock")
    granted = dict.fromkeys(readable, _READING | _LISTING)
    granted |= {os.devnull: _READING | _WRITING, ".": handled & ~_NOT_IN_FOLDER}
    for path, rights in granted.items():
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            usable = rights if os.path.isdir(path) else rights & _OF_FILES  # noqa: PTH112
            rule = struct.pack("=Qi", usable & handled, descriptor)
            _check(system.syscall(_ADD_RULE, rules, 1, rule, 0), path)
            os.close(descriptor)
    return rules


def call_filter(pid: int) -> bytes:
    """A program for seccomp: allow the calls of the list, refuse all others with EPERM."""
    machine = platform.machine()
    architecture, ranges = _CALLS[machine]
    clone, kill, tgkill, prlimit, fcntl, ioctl = _SPECIAL[machine]
    # load, equal, greater, greater or equal, any bit set, return
    load, equal, above, from_, bits, give = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
    code = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, _KILL), (load, 0, 0, 0)]

    def special(number: int, argument: int, test: int, values: tuple[int, ...], hit: int) -> None:
        """One call: ``hit`` if an argument passes the test with a value, else the opposite."""
        code.extend([(equal, 0, 2 * len(values) + 2, number), (load, 0, 0, 16 + 8 * argument)])
        for value in values:
            code.extend([(test, 0, 1, value), (give, 0, 0, hit)])
        code.append((give, 0, 0, _DENY if hit == _ALLOW else _ALLOW))

    special(clone, 0, bits, (_THREAD,), _ALLOW)
    special(kill, 0, equal, (pid,), _ALLOW)
    special(tgkill, 0, equal, (pid,), _ALLOW)
    special(prlimit, 0, equal, (0,), _ALLOW)
    special(fcntl, 1, equal, _DENIED_FCNTL, _DENY)
    special(ioctl, 1, equal, _DENIED_IOCTL, _DENY)
    # as on an older kernel, so that the C library falls back to clone
    code += [(equal, 0, 1, _CLONE3), (give, 0, 0, _NO_CALL)]
    for numbers in ranges.split():
        first, _, last = numbers.partition("-")
        code += [(from_, 0, 2, int(first)), (above, 1, 0, int(last or first)), (give, 0, 0, _ALLOW)]
    code.append((give, 0, 0, _DENY))
    return b"".join(struct.pack("HBBI", *step) for step in code)


def _drop_user() -> None:
    """Switch from root to the user ``nobody``.

    Where ``nobody`` cannot reach Python itself, such as below ``/root``, one right stays: to read
    what root can read. Landlock says what that is.
    """
    if os.geteuid() != 0:
        return
    system, number = ctypes.CDLL(None, use_errno=True), _CAPSET.get(platform.machine())
    system.prctl(_SET_KEEPCAPS, number is not None, 0, 0, 0)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    if number is not None:
        reached = all(os.access(path, os.R_OK) for path in (sys.prefix, sys.base_prefix))
        rights = 0 if reached else _READ_ALL
        header = struct.pack("Ii", 0x20080522, 0)
        sets = struct.pack("6I", rights, rights, 0, 0, 0, 0)
        _check(system.syscall(number, header, sets), "capset")


def _limit(cpu_seconds: int, memory_mb: int, *, processes: bool) -> None:
    limits = {
        "RLIMIT_CPU": cpu_seconds,
        "RLIMIT_AS": memory_mb << 20,
        "RLIMIT_FSIZE": _FILE_SIZE,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_CORE": 0,
    }
    if processes:
        # elsewhere all processes of the user count, and a busy machine would fail the code
        limits["RLIMIT_NPROC"] = _PROCESSES
    for name, value in limits.items():
        with contextlib.suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), (value, value))


def _refuse(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN:
        raise PermissionError(f"{event} is not allowed here")


class _Output(io.TextIOBase):
    """What the code prints, which reaches the tests with its next result."""

    def __init__(self, printed: list[str]) -> None:
        self._printed = printed
        self._left = 1 << 20

    def write(self, text: str, /) -> int:
        if self._left > 0:
            self._printed.append(text[: self._left])
            self._left -= len(text)
        return len(text)


class _Input(io.TextIOBase):
    """The standard input of the tests, for code that reads one."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def readline(self, _size: int | None = -1, /) -> str:  # type: ignore[override]
        return str(self._ask("read line"))

    def read(self, _size: int | None = -1, /) -> str:
        return "".join(self)

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self.readline, "")


def _serve_code(remote: Any, job: dict[str, Any], reading: Any, writing: Any) -> None:
    """Run the code of an answer and do what its tests ask for."""
    module = types.ModuleType("answer")
    sys.modules["answer"] = sys.modules["solution"] = module
    # the code may replace the built-in ones
    execute, build = builtins.exec, builtins.compile

    def load() -> list[str]:
        code = _compiled(build, job["variants"], "answer.py")
        execute(build(job["preamble"], "preamble.py", "exec"), module.__dict__)
        execute(code, module.__dict__)
        return list(module.__dict__)

    def operate(name: str, *values: Any) -> Any:
        return (
            remote.classes_of(peer, *values)
            if name == "__class__"
            else remote.OPERATORS[name](*values)
        )

    peer = remote.Peer(
        reading,
        writing,
        {
            "load": load,
            "name": lambda name: module.__dict__[name],
            "set name": lambda name, value: setattr(module, name, value),
            "delete name": lambda name: delattr(module, name),
            "attribute": getattr,
            "set attribute": setattr,
            "call": _call,
            "operator": operate,
            "await": _await,
        },
        trusting=True,
    )
    sys.stdout, sys.stdin = _Output(peer.printed), _Input(peer.ask)
    builtins.input = lambda prompt="", /: peer.ask("input", prompt)
    peer.serve()


def _call(function: Callable[..., Any], names: list[str], *values: Any) -> Any:
    by_place = len(values) - len(names)
    return function(*values[:by_place], **dict(zip(names, values[by_place:], strict=True)))


def _compiled(build: Callable[..., Any], variants: list[str], name: str) -> Any:
    """The first of several texts that compiles, without this file's future features."""
    problem: BaseException = SyntaxError("there is no code")
    for code in variants:
        try:
            return build(code, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
            problem = error
    raise problem


class _Answer(types.ModuleType):
    """The module of the code, as the tests import it."""

    def __init__(self, ask: Callable[..., Any], names: list[str]) -> None:
        super().__init__("answer")
        self.__dict__["_ask"] = ask
        self.__dict__["__all__"] = [name for name in names if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.__dict__["_ask"]("name", name)
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["_ask"]("set name", name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__["_ask"]("delete name", name)


def _run_tests(remote: Any, job: dict[str, Any], reading: Any, writing: Any) -> dict[str, Any]:
    """Run the tests on the code in the other process: what came of it."""
    peer = remote.Peer(
        reading,
        writing,
        {
            "call": _call,
            "attribute": lambda value, name: getattr(_shared(value, name), name),
            "set attribute": lambda value, name, new: setattr(_shared(value, name), name, new),
            "operator": lambda name, value, *values: remote.OPERATORS[name](
                value if name in ("__iter__", "__next__") else _shared(value), *values
            ),
            "await": _await,
            "input": lambda prompt: input(prompt),
            "read line": lambda: sys.stdin.readline(),
        },
        trusting=False,
    )
    failure: BaseException | None = None
    try:
        _run(job, peer)
    except BaseException as error:  # noqa: BLE001 - exits and interrupts of the code are failures of the code
        failure = error
    # the fault of the conversation comes first: tests may have caught it
    if isinstance(peer.fault, remote.UnsupportedTests):
        return {"unsupported": str(peer.fault)}
    if peer.fault is not None:
        return {"ended": True}
    return {"passed": True} if failure is None else {"failure": _words(failure)}


def _shared(value: Any, name: str = "") -> Any:
    """An object of a class of the tests, of which the code may use what is no inner working."""
    if type(value).__module__ != "tests" or name.startswith("_"):
        raise TypeError(f"the code cannot use {name or 'this'} of a {type(value).__name__}")
    return value


def _run(job: dict[str, Any], peer: Any) -> None:
    defined = peer.ask("load")
    sys.modules["answer"] = sys.modules["solution"] = _Answer(peer.ask, defined)
    space = {name: peer.ask("name", name) for name in _wanted(job, set(defined))}
    space["__name__"] = "tests"
    # Running the tests of a query is what this process, in its sandbox, is for.
    exec(compile(job["tests"], "tests.py", "exec", dont_inherit=True), space)  # noqa: S102  # nosec B102
    if job["entry_point"]:
        space["check"](peer.ask("name", job["entry_point"]))
    for name in job["functions"]:
        _run_one(space[name])
    for name in job["classes"]:
        _run_class(space[name])


def _wanted(job: dict[str, Any], defined: set[str]) -> list[str]:
    """Names of the tests that the code defines.

    A built-in name only if the code defines no other one of them: a task may ask for ``sum``, but
    code that brings its own ``abs`` would decide ``abs(f(x) - 1) < 1e-9``.
    """
    names = [name for name in job["names"] if name in defined and not name.startswith("__")]
    own = [name for name in names if not hasattr(builtins, name)]
    return own or names


def _run_class(cls: Any) -> None:
    import unittest

    if not issubclass(cls, unittest.TestCase):
        for name in [name for name in dir(cls) if name.startswith("test")]:
            _run_one(getattr(cls(), name))
        return
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    problems = [text for _, text in (*result.failures, *result.errors)]
    if problems or not result.wasSuccessful() or len(result.skipped) == result.testsRun:
        raise AssertionError(
            problems[0].strip().splitlines()[-1] if problems else "the tests did not pass"
        )


def _run_one(test: Callable[[], Any]) -> None:
    outcome = test()
    if isinstance(outcome, types.CoroutineType):
        _await(outcome)


def _await(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _main() -> None:
    job, report = json.load(sys.stdin), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.set_int_max_str_digits(0)
    reading, writing = os.fdopen(job["reading"], "rb"), os.fdopen(job["writing"], "wb")
    spec: Any = importlib.util.spec_from_file_location(
        "_remote", Path(__file__).parent / "_remote.py"
    )
    remote = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(remote)
    try:
        confine(job)
    except OSError as error:
        os.write(report, json.dumps({"refused": str(error)}).encode())
        os._exit(1)
    os.write(report, b'{"ready": true}\n')
    sys.addaudithook(_refuse)
    if "variants" in job:
        # from here on nothing in this process leads to a verdict
        os.close(report)
        with contextlib.suppress(BaseException):
            _serve_code(remote, job, reading, writing)
    else:
        os.write(report, json.dumps(_run_tests(remote, job, reading, writing)).encode())
    # no exit hooks, no waiting for threads
    os._exit(0)


if __name__ == "__main__":
    _main()
