"""Run one answer and its tests in a separate process, which ``_sandbox.py`` starts.

The process reads a job as JSON from standard input and writes lines of JSON. Only lines with the
job's token count. They are composed before the answer's code runs, so that code that replaces
built-in functions cannot forge one. This file imports only the standard library.
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
# These events raise an error, because code may ignore the kernel's refusal, for example in the
# return value of os.system.
_FORBIDDEN = frozenset({
    "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system", "os.kill",
    "os.killpg", "subprocess.Popen", "socket.connect", "socket.bind", "socket.sendto",
    "socket.getaddrinfo",
})  # fmt: skip
_NO_VERDICT = "the tests compare an object of the answer's own class, which decides the result"


class SelfJudgedError(BaseException):
    """Raised if an object of the answer claims to equal, or to be close to, a plain value."""


class ClassGuard:
    """A guard that keeps the answer's classes from deciding comparisons with plain values.

    A class whose objects equal everything, or for which ``a - expected`` is 0, would pass all
    tests.
    """

    def __init__(self, answer: types.ModuleType) -> None:
        self._globals = answer.__dict__
        self._build_class = builtins.__build_class__
        self._ids_of_results: set[int] = set()
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
            has_plain_operand = bool(values) and not self._is_own(values[0])
            if operator in _NUMERIC:
                if id(owner) in self._ids_of_results:
                    self._refuse()
            elif has_plain_operand and result is not NotImplemented:
                self._check_result(operator, result)
            return result

        return operate

    def _check_result(self, operator: str, result: Any) -> None:
        if operator in _ARITHMETIC:
            if not self._is_own(result):
                self._refuse()
            self._ids_of_results.add(id(result))
        elif bool(result) is not (operator == "__ne__"):
            self._refuse()

    def _is_own(self, value: Any) -> bool:
        return type(value).__module__ == "answer"

    def _refuse(self) -> None:
        self.violated = True
        raise SelfJudgedError


def run_job(job: dict[str, Any], guard: ClassGuard, answer: types.ModuleType) -> None:
    """Run the answer, then its tests; raise an exception if they do not pass."""
    # The code may replace the built-in functions, or look for the text of its tests.
    pristine = dict(vars(builtins))
    execute = exec
    preamble = compile(job.pop("preamble"), "preamble.py", "exec")
    code = compile_first(job.pop("variants"))
    tests = compile(job.pop("tests"), "tests.py", "exec", dont_inherit=True)
    vars(builtins)["__build_class__"] = guard.build_class
    execute(preamble, answer.__dict__)
    execute(code, answer.__dict__)
    vars(builtins).update(pristine)
    vars(builtins)["__build_class__"] = guard.build_class
    names = names_for_tests(job["names"], answer.__dict__)
    namespace = {name: answer.__dict__[name] for name in names}
    namespace |= {"__name__": "tests", "__builtins__": pristine}
    # This process exists to run the tests of a query in its sandbox.
    execute(tests, namespace)
    if job["entry_point"]:
        namespace["check"](answer.__dict__[job["entry_point"]])
    for name in job["functions"]:
        run_function(namespace[name])
    for name in job["classes"]:
        run_class(namespace[name])


def compile_first(variants: list[str]) -> types.CodeType:
    """Compile the first variant that compiles, without this file's future features."""
    problem: BaseException = SyntaxError("there is no code")
    for code in variants:
        try:
            return compile(code, "answer.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
            problem = error
    raise problem


def names_for_tests(names: list[str], defined: dict[str, Any]) -> list[str]:
    """Return the names that the tests use and the code defines.

    Built-in names are returned only if there are no others: a task may ask for ``sum``, but code
    that redefines ``abs`` would decide ``abs(f(x) - 1) < 1e-9``.
    """
    shared = [name for name in names if name in defined and not name.startswith("__")]
    not_built_in = [name for name in shared if not hasattr(builtins, name)]
    return not_built_in or shared


def run_function(test: Callable[[], Any]) -> None:
    """Run a test function; if it is a coroutine function, run its coroutine."""
    outcome = test()
    if isinstance(outcome, types.CoroutineType):
        asyncio.run(outcome)


def run_class(cls: type) -> None:
    """Run a test class, which may be plain or a subclass of ``unittest.TestCase``."""
    if not issubclass(cls, unittest.TestCase):
        for name in [name for name in dir(cls) if name.startswith("test")]:
            run_function(getattr(cls(), name))
        return
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    problems = [text for _, text in (*result.failures, *result.errors)]
    # The code may raise SkipTest, so only skips by decorators of the tests are accepted.
    skipped_by_code = [test for test, _ in result.skipped if not is_skipped_by_decorator(test)]
    if problems or skipped_by_code or not result.wasSuccessful():
        raise AssertionError(
            problems[0].strip().splitlines()[-1] if problems else "the tests did not pass"
        )
    if len(result.skipped) == result.testsRun:
        raise AssertionError("all tests are skipped")


def is_skipped_by_decorator(test: unittest.TestCase) -> bool:
    """Return whether a decorator of a test or its class skips it."""
    method = getattr(test, test._testMethodName, None)
    return any(getattr(each, "__unittest_skip__", False) for each in (type(test), method))


def refuse_event(event: str, _arguments: tuple[Any, ...]) -> None:
    """Raise an error if Python is about to start a process or open a connection."""
    if event in _FORBIDDEN:
        raise PermissionError(f"{event} is not allowed here")


def limit_resources(cpu_seconds: int, memory_mb: int) -> None:
    """Limit the resources of the process, as far as the system supports each limit."""
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
    """Run the job on standard input and report its outcome."""
    job = json.load(sys.stdin)
    report = os.dup(1)
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.set_int_max_str_digits(0)
    # The code may replace these functions in their modules.
    write = os.write
    exit_now = os._exit
    dumps = json.dumps
    type_of = type
    token = job.pop("token")
    write(report, dumps({"token": token, "started": True}).encode() + b"\n")
    passed = b"\n" + dumps({"token": token, "passed": True}).encode() + b"\n"
    no_verdict = b"\n" + dumps({"token": token, "no_verdict": _NO_VERDICT}).encode() + b"\n"
    answer = types.ModuleType("answer")
    sys.modules["answer"] = sys.modules["solution"] = answer
    sys.modules["mildroute"] = None  # type: ignore[assignment]  # Answers must not import it.
    guard = ClassGuard(answer)
    result = passed
    try:
        limit_resources(job["cpu_seconds"], job["memory_mb"])
        sys.addaudithook(refuse_event)
        run_job(job, guard, answer)
    except BaseException as error:  # noqa: BLE001 - Exits and interrupts also count as failures of the code.
        result = b'\n{"failure": "the code raised an error without a message"}\n'
        with contextlib.suppress(BaseException):
            result = (
                b"\n" + dumps({"failure": f"{type_of(error).__name__}: {error}"[:200]}).encode()
            )
    write(report, no_verdict if guard.violated else result)
    # Run no exit hooks and wait for no threads.
    exit_now(0)


if __name__ == "__main__":
    main()
