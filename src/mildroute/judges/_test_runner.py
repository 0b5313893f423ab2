"""Run one answer and its tests; a process of its own, started by ``_sandbox.py``.

Reads a job as JSON from standard input and writes lines of JSON. Lines that count have the job's
token. The lines are made before any of the answer runs, so that code which replaces built-in
functions cannot make one. This file imports nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import json
import os
import resource
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

_MAX_FILE_BYTES = 1 << 24
_MAX_OPEN_FILES = 64
_COMPARING = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_ARITHMETIC = tuple(
    f"__{side}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
    for side in ("", "r")
)
_NUMERIC = ("__abs__", "__float__", "__int__", "__index__", "__round__")
# These raise an error, where the kernel's refusal is one that code may overlook, such as the result
# of os.system.
_FORBIDDEN = frozenset({
    "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system", "os.kill",
    "os.killpg", "subprocess.Popen", "socket.connect", "socket.bind", "socket.sendto",
    "socket.getaddrinfo",
})  # fmt: skip
_NO_VERDICT = "the tests compare an object of the answer's own class, which decides the result"


class SelfJudgedError(BaseException):
    """An object of the answer claims to equal, or to be close to, a plain value."""


class ClassGuard:
    """Keep classes of the answer from deciding comparisons with the tests' plain values.

    A class whose objects equal everything, or for which ``a - expected`` is 0, would pass all
    tests.
    """

    def __init__(self, answer: types.ModuleType) -> None:
        self._globals = answer.__dict__
        self._build_class = builtins.__build_class__
        self._from_plain: set[int] = set()
        self.violated = False

    def build_class(self, function: Any, name: str, *bases: Any, **options: Any) -> Any:
        """Build a class as Python does, and guard it if the answer defines it."""
        cls = self._build_class(function, name, *bases, **options)
        if function.__globals__ is self._globals and isinstance(cls, type):
            for operator in (*_COMPARING, *_ARITHMETIC, *_NUMERIC):
                if callable(original := cls.__dict__.get(operator)):
                    with contextlib.suppress(AttributeError, TypeError):
                        setattr(cls, operator, self._guarded(operator, original))
        return cls

    def _guarded(self, operator: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def operate(owner: Any, *values: Any) -> Any:
            result = original(owner, *values)
            if sys._getframe(1).f_globals is self._globals:
                return result
            plain = bool(values) and not self._is_own(values[0])
            if operator in _NUMERIC:
                if id(owner) in self._from_plain:
                    self._refuse()
            elif plain and result is not NotImplemented:
                self._check_result(operator, result)
            return result

        return operate

    def _check_result(self, operator: str, result: Any) -> None:
        if operator in _ARITHMETIC:
            if not self._is_own(result):
                self._refuse()
            self._from_plain.add(id(result))
        elif bool(result) is not (operator == "__ne__"):
            self._refuse()

    def _is_own(self, value: Any) -> bool:
        return type(value).__module__ == "answer"

    def _refuse(self) -> None:
        self.violated = True
        raise SelfJudgedError


def run_job(job: dict[str, Any], guard: ClassGuard, answer: types.ModuleType) -> None:
    """Run the answer, then its tests; an exception means that they do not pass."""
    # The code may replace the built-in functions, or look for the text of its tests.
    pristine, execute = dict(vars(builtins)), exec
    preamble = compile(job.pop("preamble"), "preamble.py", "exec")
    code = compile_first(job.pop("variants"))
    tests = compile(job.pop("tests"), "tests.py", "exec", dont_inherit=True)
    vars(builtins)["__build_class__"] = guard.build_class
    execute(preamble, answer.__dict__)
    execute(code, answer.__dict__)
    vars(builtins).update(pristine)
    vars(builtins)["__build_class__"] = guard.build_class
    space = {name: answer.__dict__[name] for name in wanted_names(job["names"], answer.__dict__)}
    space |= {"__name__": "tests", "__builtins__": pristine}
    # Running the tests of a query is what this process, in its sandbox, is for.
    execute(tests, space)
    if job["entry_point"]:
        space["check"](answer.__dict__[job["entry_point"]])
    for name in job["functions"]:
        run_one(space[name])
    for name in job["classes"]:
        run_class(space[name])


def compile_first(variants: list[str]) -> Any:
    """Compile the first of several texts that compiles, without this file's future features."""
    problem: BaseException = SyntaxError("there is no code")
    for code in variants:
        try:
            return compile(code, "answer.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
            problem = error
    raise problem


def wanted_names(names: list[str], defined: dict[str, Any]) -> list[str]:
    """Return the names of the tests that the code defines.

    A built-in name only if the code defines no other one of them: a task may ask for ``sum``, but
    code that brings its own ``abs`` would decide ``abs(f(x) - 1) < 1e-9``.
    """
    known = [name for name in names if name in defined and not name.startswith("__")]
    own = [name for name in known if not hasattr(builtins, name)]
    return own or known


def run_one(test: Callable[[], Any]) -> None:
    """Run a function of tests, to its end if it is a coroutine."""
    outcome = test()
    if isinstance(outcome, types.CoroutineType):
        asyncio.run(outcome)


def run_class(cls: Any) -> None:
    """Run a class of tests, plain or of unittest."""
    if not issubclass(cls, unittest.TestCase):
        for name in [name for name in dir(cls) if name.startswith("test")]:
            run_one(getattr(cls(), name))
        return
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    problems = [text for _, text in (*result.failures, *result.errors)]
    # The code may raise SkipTest; only decorators of the tests skip.
    skipped_by_code = [test for test, _ in result.skipped if not is_skipped_by_decorator(test)]
    if problems or skipped_by_code or not result.wasSuccessful():
        raise AssertionError(
            problems[0].strip().splitlines()[-1] if problems else "the tests did not pass"
        )
    if len(result.skipped) == result.testsRun:
        raise AssertionError("all tests are skipped")


def is_skipped_by_decorator(test: unittest.TestCase) -> bool:
    """Tell whether a test or its class says that it is to be skipped."""
    method = getattr(test, test._testMethodName, None)
    return any(getattr(each, "__unittest_skip__", False) for each in (type(test), method))


def refuse_event(event: str, _arguments: tuple[Any, ...]) -> None:
    """Raise an error if Python is about to start a process or to open a connection."""
    if event in _FORBIDDEN:
        raise PermissionError(f"{event} is not allowed here")


def limit_resources(cpu_seconds: int, memory_mb: int) -> None:
    """Limit what the process may use, as far as the system knows the limit."""
    limits = {
        "RLIMIT_CPU": cpu_seconds,
        "RLIMIT_AS": memory_mb << 20,
        "RLIMIT_FSIZE": _MAX_FILE_BYTES,
        "RLIMIT_NOFILE": _MAX_OPEN_FILES,
        "RLIMIT_CORE": 0,
    }
    for name, value in limits.items():
        with contextlib.suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), (value, value))


def main() -> None:
    """Run the job on standard input and report."""
    job, report = json.load(sys.stdin), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.set_int_max_str_digits(0)
    write, end, dumps, kind_of = os.write, os._exit, json.dumps, type
    token = job.pop("token")
    write(report, dumps({"token": token, "started": True}).encode() + b"\n")
    passed = b"\n" + dumps({"token": token, "passed": True}).encode() + b"\n"
    no_verdict = b"\n" + dumps({"token": token, "no_verdict": _NO_VERDICT}).encode() + b"\n"
    answer = types.ModuleType("answer")
    sys.modules["answer"] = sys.modules["solution"] = answer
    sys.modules["mildroute"] = None  # type: ignore[assignment]  # answers do not need the grader
    guard = ClassGuard(answer)
    result = passed
    try:
        limit_resources(job["cpu_seconds"], job["memory_mb"])
        sys.addaudithook(refuse_event)
        run_job(job, guard, answer)
    except BaseException as error:  # noqa: BLE001 - exits and interrupts of the code are failures of the code
        result = b'\n{"failure": "it raised an error without words"}\n'
        with contextlib.suppress(BaseException):
            result = (
                b"\n" + dumps({"failure": f"{kind_of(error).__name__}: {error}"[:200]}).encode()
            )
    write(report, no_verdict if guard.violated else result)
    # No exit hooks, no waiting for threads.
    end(0)


if __name__ == "__main__":
    main()
