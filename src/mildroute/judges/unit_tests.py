"""Unit tests as a judge: extract the code of an answer and run its tests in a sandbox."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import math
import re
import secrets
import shutil
import tempfile
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mildroute._fingerprint import version_of
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._normalize import trimmed, without_thinking
from mildroute.judges._sandbox import Finished, run_script
from mildroute.judges.base import Verdict

__all__ = ["Plan", "UnitTestJudge", "plan_of", "python_in", "tests_of"]


# Python code in an answer: between fences, or bare with prose around it.


_MAX_TEXT = 400_000
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n`]*\n(?P<code>.*?)(?:^[ \t]*)?(?:(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_CLOSED_LATE = re.compile(r"(?:`{3,}|~{3,})\s*\Z")
_PYTHON = {"python", "py", "python3", "py3", "python2", "pycon", "ipython"}
_DEFINED = re.compile(r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_CODE_LINE = re.compile(
    r"(?:from\s+\w[\w.]*\s+import\b|import\s+\w|(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[:(]|@\w|if\s+__name__"
    r"|\w+\s*(?::\s*\w[\w\[\], .]*)?=(?!=)|(?:for|while|try|with|if)\b.*:\s*$)"
)
_TRANSCRIPT = re.compile(r"\A\s*(?:>>>|\$ |In \[)")


def python_in(text: str, names: Sequence[str] = ()) -> list[str]:
    r"""Ways to read the Python code out of an answer, best first; the first one that compiles is meant.

    Args:
        text: What the expert wrote.
        names: Names that the code should define. Of several blocks all count up to the last one that defines any of them: later
            definitions replace earlier ones, and what follows are examples of use.

    Returns:
        Code; empty if there is none.

    Example:
        >>> python_in("Sure:\n\n```python\nx = 1\n```\nDone."), python_in("I cannot.")
        (['x = 1\n'], [])
    """
    text = without_thinking(text[:_MAX_TEXT].replace("\r\n", "\n").replace("\r", "\n"))
    blocks = [block for block in _blocks(trimmed(text)) if block.code.strip() and not _TRANSCRIPT.match(block.code)]
    tagged = [block for block in blocks if block.language in _PYTHON]
    chosen = tagged or [block for block in blocks if not block.language and _CODE_LINE.search(block.code)]
    if chosen:
        wanted = [at for at, block in enumerate(chosen) if block.defines(names)]
        last = wanted[-1] if wanted else len(chosen) - 1
        joined = "\n".join(block.code for block in chosen[: last + 1])
        return list(dict.fromkeys([joined, chosen[last].code]))
    return [] if blocks else _bare(text)


@dataclass(frozen=True)
class _Block:
    language: str
    code: str

    def defines(self, names: Sequence[str]) -> bool:
        return any(name in names for found in _DEFINED.finditer(self.code) for name in found.groups() if name)


def _blocks(text: str) -> list[_Block]:
    return [_Block(found["language"].lower(), _unindented(found["code"], found["indent"])) for found in _FENCE.finditer(text)]


def _unindented(code: str, indent: str) -> str:
    """Code without the indent of its fence, and without a fence that closes on its last line."""
    code = _CLOSED_LATE.sub("", code)
    lines = [line.removeprefix(indent) for line in code.split("\n")]
    return textwrap.dedent("\n".join(lines))


def _bare(text: str) -> list[str]:
    """All of it, or from the first line that looks like code, to the end or up to some blank line, after which prose may begin."""
    found: list[str] = []
    for code in (textwrap.dedent(text).strip("\n\ufeff"), trimmed(text)):
        lines = code.split("\n")
        start = next((at for at, line in enumerate(lines) if _CODE_LINE.match(line)), None)
        if start is not None:
            ends = [at for at in range(len(lines) - 1, start, -1) if not lines[at].strip()][:50]
            found += [code, *("\n".join(lines[start:end]) for end in (len(lines), *ends))]
    return list(dict.fromkeys(found))


# What a text of tests checks, so that tests which nobody calls are called, and tests that check
# nothing are refused.


@dataclass(frozen=True)
class Plan:
    """Tests, and what is to be called after they were run as a script.

    Args:
        code: The tests.
        functions: Test functions, by name.
        classes: Classes of tests, by name.
        entry_point: What is given to the function ``check`` of the tests; empty if there is no such function or they call it themselves.
        names: All names that the tests use, among them those of the answer.
    """

    code: str
    functions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    entry_point: str = ""
    names: tuple[str, ...] = ()


def tests_of(value: Any) -> str:
    r"""Tests as one text, from a text, a list of statements, or such a list as JSON.

    Example:
        >>> tests_of(["assert f(1) == 1", "assert f(2) == 4"])
        'assert f(1) == 1\nassert f(2) == 4'
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as broken:
            raise ArgumentError(f"tests must be Python code or a list of it, got {value[:60]!r}, which is neither.") from broken
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"tests must be Python code or a list of it, got {str(value)[:60]!r}.")
    return value


def plan_of(tests: str, entry_point: str = "") -> Plan:
    r"""What to run of a text of tests.

    Args:
        tests: Statements, functions named ``test_...``, classes of tests, or a function ``check`` that takes what it checks.
        entry_point: The name of what ``check`` takes.

    Returns:
        The plan.

    Example:
        >>> plan_of("def test_f():\n    assert f(1) == 1").functions
        ('test_f',)
        >>> plan_of("x = f(1)")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: tests must check something, got code without a check that runs: 'x = f(1)'.
    """
    try:
        tree = _parsed(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as broken:
        raise ArgumentError(f"tests must be Python code, got {tests[:60]!r}: {broken}.") from broken
    functions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    run = [node for node in tree.body if not _is_kept_back(node)]
    called = {node.func.id for node in _inside(run) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    test_functions = tuple(
        name for name, node in functions.items() if name.startswith("test") and name not in called and _needs_nothing(node)
    )
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef) and _has_tests(node))
    to_check = "check" in functions and "check" not in called
    if to_check and not entry_point:
        raise ArgumentError("tests with a function check need the name of what it checks; give the query a field 'entry_point'.")
    if not (test_functions or classes or to_check or called & functions.keys() or any(map(_checks, _inside(run)))):
        raise ArgumentError(f"tests must check something, got code without a check that runs: {tests[:60]!r}.")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return Plan(tests, test_functions, classes, entry_point if to_check else "", tuple(sorted({*names, *filter(None, [entry_point])})))


def _parsed(tests: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that are none
        return ast.parse(tests)


def _inside(nodes: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _is_kept_back(node: ast.stmt) -> bool:
    """Whether a statement does not run when the tests do: definitions, and what waits for being the main program."""
    if isinstance(node, ast.If):
        return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _checks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        return re.match(r"_*assert", name) is not None
    return isinstance(node, (ast.Assert, ast.Raise))


def _needs_nothing(node: ast.FunctionDef | ast.AsyncFunctionDef, given: int = 0) -> bool:
    required = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults) - given
    if required > 0 or any(default is None for default in node.args.kw_defaults):
        raise ArgumentError(f"test functions must take no arguments, got {node.name!r}; fixtures are not supported.")
    return True


def _has_tests(node: ast.ClassDef) -> bool:
    methods = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    tests = [method for method in methods if method.name.startswith("test")]
    if tests and any(method.name in ("setup_method", "setup_class") for method in methods):
        raise ArgumentError(f"classes of tests must be plain or of unittest, got {node.name!r} with a set-up of pytest's.")
    return bool(tests) and all(_needs_nothing(test, given=1) for test in tests)


# Unit tests: the code in an answer is right if it passes them.


_READING = 1
_SCRIPT = Path(__file__).with_name("_sandbox_child.py")


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
