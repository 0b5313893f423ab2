"""Unit tests: the code in an answer is right if it passes them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.experts.protocol import Query
from mildroute.judges.bounded import Finished, run_script
from mildroute.judges.code_blocks import python_in
from mildroute.judges.protocol import Verdict
from mildroute.judges.tests_plan import Plan, plan_of, tests_of
from mildroute.judges.versions import version_of

__all__ = ["UnitTestJudge"]

_READING = 1
_SCRIPT = Path(__file__).with_name("unit_tests_script.py")


@dataclass(frozen=True)
class UnitTestJudge:
    r"""Right if the Python code in the answer passes all tests.

    The tests are in ``query.fields["tests"]``, else in the reference: statements, functions named ``test_...``, classes of tests, or a
    function ``check`` that is given what ``query.fields["entry_point"]`` names. They see all names of the answer, and may import it as
    ``answer`` or ``solution``. Tests that cannot run, or that check nothing, give no verdict.

    The code runs in a process of its own and in an empty folder, without this process's environment, within limits of time, memory and
    size of a file. An audit hook refuses new processes, signals, network, writing outside the folder, and opening files that are neither
    there nor Python's or the system's; where the kernel allows it (Linux, user namespaces), the process has no network and takes all its
    descendants with it when it ends. This stops accidents and carelessness. It is no prison: code that reaches past Python (``ctypes``)
    escapes the audit hook, code that attacks the script which runs it can fake a pass, many small files can fill a disk, and outside
    Linux the memory limit may not hold. Judge answers of experts that you do not trust inside a container or a virtual machine.

    Args:
        cpu_seconds: Of computing, whatever else the machine does.
        wall_seconds: After which the process is killed.
        memory_mb: Of address space.
        preamble: Code that runs before the answer, such as imports that the prompt promised.
        require_isolation: Whether to give no verdict where the kernel cannot keep the code from the network.
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> query = Query("q1", "Write add(a, b).", fields={"tests": "assert add(1, 2) == 3"})
        >>> asyncio.run(UnitTestJudge().judge(query, "def add(a, b):\n    return a + b")).score
        1.0
    """

    cpu_seconds: int = 10
    wall_seconds: float = 30.0
    memory_mb: int = 1024
    preamble: str = ""
    require_isolation: bool = False
    name: str = "tests"

    def __post_init__(self) -> None:
        """Check the limits and the preamble."""
        if self.cpu_seconds < 1 or self.memory_mb < 1 or not 0 < self.wall_seconds < math.inf:
            limits = f"cpu_seconds={self.cpu_seconds!r}, wall_seconds={self.wall_seconds!r}, memory_mb={self.memory_mb!r}"
            raise ArgumentError(f"limits must be positive, got {limits}.")
        try:
            compile(self.preamble, "preamble", "exec")
        except (SyntaxError, ValueError) as broken:
            raise ArgumentError(f"preamble must be Python code, got {self.preamble[:60]!r}: {broken}.") from broken

    @property
    def version(self) -> str:
        """Changes with all that changes verdicts."""
        return version_of(self, _READING)

    async def judge(self, query: Query, text: str) -> Verdict:
        """Run the tests on the code."""
        if lack := self.lacks(query):
            return Verdict(None, lack)
        plan = _plan(query)
        variants = python_in(text, plan.names)
        if not variants:
            return Verdict(0.0, "no Python code could be read")
        return await asyncio.to_thread(self._run, plan, variants)

    def lacks(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        if query.fields.get("tests", query.reference) is None:
            return "the query has no tests"
        try:
            _plan(query)
        except ArgumentError as broken:
            return str(broken)
        return ""

    def _run(self, plan: Plan, variants: list[str]) -> Verdict:
        token = secrets.token_hex(16)
        limits = {"cpu_seconds": int(self.cpu_seconds), "memory_mb": int(self.memory_mb), "require_isolation": self.require_isolation}
        work = {"tests": plan.code, **{key: value for key, value in asdict(plan).items() if key not in ("code", "names")}}
        folder = tempfile.mkdtemp()
        try:
            job = {**work, **limits, "variants": variants, "preamble": self.preamble, "token": token}
            finished = run_script(_SCRIPT, job, self.wall_seconds, folder=folder)
        except OSError as error:
            return Verdict(None, f"the tests could not be started: {error}")
        finally:
            # code may leave folders behind that are too deep to walk through
            with contextlib.suppress(RecursionError):
                shutil.rmtree(folder, ignore_errors=True)
        return self._verdict(finished, _said(finished.output, token))

    def _verdict(self, finished: Finished, said: dict[str, Any]) -> Verdict:
        if "refused" in said:
            return Verdict(None, said["refused"])
        if "started" not in said:
            return Verdict(None, f"the tests could not be started: code {finished.code}; is memory_mb too small?")
        if "passed" in said:
            return Verdict(1.0, "all tests pass")
        if "failure" in said:
            return Verdict(0.0, said["failure"])
        if finished.timed_out:
            return Verdict(0.0, f"the code ran for more than {self.wall_seconds:g} s")
        return Verdict(0.0, f"the code ended before its tests did, or used too much time or memory: code {finished.code}")


def _plan(query: Query) -> Plan:
    return plan_of(tests_of(query.fields.get("tests", query.reference)), str(query.fields.get("entry_point") or ""))


def _said(output: bytes, token: str) -> dict[str, Any]:
    """All that the script said: lines with the right token, whatever else the code may have written between them."""
    said: dict[str, Any] = {}
    for line in output.split(b"\n"):
        try:
            words = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(words, dict) and words.pop("token", None) == token:
            said.update(words)
    return said
