"""A judge that runs a query's unit tests on the code in an answer, in a sandbox."""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict, dataclass
from typing import ClassVar

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_code import find_python
from mildroute.judges._sandbox import NO_SANDBOX, Outcome, run_tests, sandbox_works
from mildroute.judges._test_plan import UnitTestPlan, parse_tests, plan_tests
from mildroute.judges.base import Verdict, VersionedJudge

__all__ = ["UnitTestJudge"]


@dataclass(frozen=True)
class UnitTestJudge(VersionedJudge):
    """A judge that scores 1 if the Python code in the answer passes all tests.

    The tests are in ``query.fields["tests"]``, or else in the reference: statements, functions
    named ``test_...``, classes of tests, or a function ``check`` that receives the object named by
    ``query.fields["entry_point"]``. They use the names that the answer defines, and may import it
    as ``answer`` or ``solution``. If the tests cannot run or check nothing, there is no score.

    The code and its tests run in one process inside bubblewrap. The process can read Python and the
    system's libraries and write to one empty folder, but cannot start programs, use the network,
    reach other processes or read this process's environment; time, memory and files are limited. If
    bubblewrap is missing or the kernel refuses namespaces, the judge refuses to run anything.

    The sandbox protects the machine. The verdict is protected against the usual ways to fake a
    pass: code that ends the process, skips its tests, replaces built-in functions, or returns
    objects that equal everything. If an object of the answer's own class claims to equal a plain
    value, there is no score. Code that is written to search the stack can still find its tests.

    Args:
        cpu_seconds: Limit of CPU time.
        wall_seconds: Elapsed time after which the process is killed.
        memory_mb: Limit of the address space.
        preamble: Code that runs before the answer, such as imports promised in the prompt.
        allow_unsandboxed: Whether to run code even if bubblewrap does not work, which gives it all
            rights of this user: files, keys and network.
        name: The judge's name in tables.

    Example:
        >>> query = Query("q1", "Write add(a, b).", fields={"tests": "add(1, 2)"})
        >>> UnitTestJudge(allow_unsandboxed=True).missing_fields(query)
        "tests must check something, got code without a check that runs: 'add(1, 2)'."
    """

    reading: ClassVar[int] = 2
    cpu_seconds: int = 10
    wall_seconds: float = 30.0
    memory_mb: int = 1024
    preamble: str = ""
    allow_unsandboxed: bool = False
    name: str = "tests"

    def __post_init__(self) -> None:
        """Validate the limits and the preamble."""
        if self.cpu_seconds < 1 or self.memory_mb < 1 or not 0 < self.wall_seconds < math.inf:
            limits = (
                f"cpu_seconds={self.cpu_seconds!r}, wall_seconds={self.wall_seconds!r},"
                f" memory_mb={self.memory_mb!r}"
            )
            raise ArgumentError(f"limits must be positive, got {limits}.")
        try:
            compile(self.preamble, "preamble", "exec")
        except (SyntaxError, ValueError) as error:
            raise ArgumentError(
                f"preamble must be Python code, got {self.preamble[:60]!r}: {error}."
            ) from error

    async def judge(self, query: Query, text: str) -> Verdict:
        """Run the tests on the code."""
        return await asyncio.to_thread(self._run_tests, query, text)

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        if query.fields.get("tests", query.reference) is None:
            return "the query has no tests"
        try:
            _plan_query(query)
        except ArgumentError as error:
            return str(error)
        if not self.allow_unsandboxed and not sandbox_works():
            return NO_SANDBOX
        return ""

    def _run_tests(self, query: Query, text: str) -> Verdict:
        if reason := self.missing_fields(query):
            return Verdict(None, reason)
        plan = _plan_query(query)
        variants = find_python(text, plan.names)
        if not variants:
            return Verdict(0.0, "no Python code could be read")
        job = {
            **asdict(plan),
            "variants": variants,
            "preamble": self.preamble,
            "cpu_seconds": int(self.cpu_seconds),
            "memory_mb": int(self.memory_mb),
        }
        try:
            outcome = run_tests(job, self.wall_seconds, sandboxed=sandbox_works())
        except OSError as error:
            return Verdict(None, f"the tests could not be started: {error}")
        return _verdict_on(outcome)


def _verdict_on(outcome: Outcome) -> Verdict:
    if not outcome.started:
        return Verdict(None, "the tests could not be started: no report; is memory_mb too small?")
    if outcome.no_verdict:
        return Verdict(None, outcome.no_verdict)
    if outcome.passed:
        return Verdict(1.0, "all tests pass")
    reason = outcome.failure or outcome.stopped
    if not reason:
        reason = "the code ended before its tests did, or used too much time or memory"
    return Verdict(0.0, reason)


def _plan_query(query: Query) -> UnitTestPlan:
    tests = parse_tests(query.fields.get("tests", query.reference))
    return plan_tests(tests, str(query.fields.get("entry_point") or ""))
