"""Unit tests as a judge: extract the code of an answer and run its tests in a sandbox."""

from __future__ import annotations

import ast
import asyncio
import json
import math
import re
import textwrap
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._sandbox import NO_SANDBOX, Outcome, run_tests, sandbox_works
from mildroute.judges.base import Verdict, VersionedJudge
from mildroute.text import drop_thinking, strip_spaces

__all__ = ["UnitTestJudge", "UnitTestPlan", "plan_of", "python_in", "tests_of"]


# Python code in an answer: between fences, or bare with prose around it.


_MAX_TEXT = 400_000
# Possessive quantifiers, and one line at a time: a search that goes back and forth took minutes for
# 100,000 times the same letter.
_OPENING = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^`]*+")
_CLOSED_LATE = re.compile(r"(?:`{3,}+|~{3,}+)\s*+\Z")
_MAX_LINE = 1000
_PYTHON = {"python", "py", "python3", "py3", "python2", "pycon", "ipython"}
_DEFINED = re.compile(
    r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE
)
_CODE_LINE = re.compile(
    r"from\s++\w[\w.]*+\s++import\b|import\s++\w|(?:async\s++)?+def\s++\w++\s*+\("
    r"|class\s++\w++\s*+[:(]|@\w|if\s++__name__"
    r"|(?<!\w)\w++\s*+(?::\s*+\w[\w\[\], .]*+)?+=(?!=)|\b(?:for|while|try|with|if)\b.*:\s*$"
)
_TRANSCRIPT = re.compile(r"\A\s*(?:>>>|\$ |In \[)")
_PARSER = threading.Lock()


def python_in(text: str, names: Sequence[str] = ()) -> list[str]:
    r"""Return ways to read the Python code in an answer, best first.

    The first one that compiles counts.

    Args:
        text: What the expert wrote.
        names: Names that the code should define. If the answer has several blocks, all count up to
            the last one that defines any of these names: later definitions replace earlier ones,
            and blocks after it are usage examples.

    Returns:
        Code; empty if there is none.
    """
    text = drop_thinking(text[:_MAX_TEXT].replace("\r\n", "\n").replace("\r", "\n"))
    blocks = [
        block
        for block in _blocks(strip_spaces(text))
        if block.code.strip() and not _TRANSCRIPT.match(block.code)
    ]
    tagged = [block for block in blocks if block.language in _PYTHON]
    chosen = tagged or [block for block in blocks if not block.language and _has_code(block.code)]
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
        return any(
            name in names
            for found in _DEFINED.finditer(self.code)
            for name in found.groups()
            if name
        )


def _blocks(text: str) -> list[_Block]:
    """What stands between fences; the last one may be left open, or closed on a line of code."""
    blocks: list[_Block] = []
    opened: re.Match[str] | None = None
    code: list[str] = []
    for line in text.split("\n"):
        if opened is None:
            opened, code = _OPENING.fullmatch(line), []
        elif (end := line.rstrip(" \t")).endswith(opened[2]):
            last = end.removesuffix(opened[2])
            blocks.append(_block(opened, [*code, last if last.strip() else ""]))
            opened = None
        else:
            code.append(line)
    if opened is not None:
        blocks.append(_block(opened, code))
    return blocks


def _block(opened: re.Match[str], code: list[str]) -> _Block:
    return _Block(opened[3].lower(), _unindented("\n".join(code), opened[1]))


def _has_code(code: str) -> bool:
    return any(_CODE_LINE.search(line[:_MAX_LINE]) for line in code.split("\n"))


def _unindented(code: str, indent: str) -> str:
    """Code without the indent of its fence, and without a fence that closes on its last line."""
    code = _CLOSED_LATE.sub("", code)
    lines = [line.removeprefix(indent) for line in code.split("\n")]
    return textwrap.dedent("\n".join(lines))


def _bare(text: str) -> list[str]:
    """What may be the code in a text without fences.

    That is all of it, or from the first line that looks like code, to the end or up to some blank
    line, after which prose may begin.
    """
    found: list[str] = []
    for code in (textwrap.dedent(text).strip("\n\ufeff"), strip_spaces(text)):
        lines = code.split("\n")
        start = next(
            (at for at, line in enumerate(lines) if _CODE_LINE.match(line[:_MAX_LINE])), None
        )
        if start is not None:
            ends = [at for at in range(len(lines) - 1, start, -1) if not lines[at].strip()][:50]
            found += [code, *("\n".join(lines[start:end]) for end in (len(lines), *ends))]
    return list(dict.fromkeys(found))


# What a text of tests checks, so that tests that are never called are called, and tests that check
# nothing are refused.


@dataclass(frozen=True)
class UnitTestPlan:
    """Tests, and what to call after they have run as a script.

    Args:
        entry_point: What is given to the function ``check`` of the tests; empty if there is no such
            function or they call it themselves.
        names: All names that the tests use, among them those of the answer.
    """

    tests: str
    functions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    entry_point: str = ""
    names: tuple[str, ...] = ()


def tests_of(value: Any) -> str:
    r"""Tests as one text, from a text, a list of statements, or such a list as JSON."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as broken:
            raise ArgumentError(
                f"tests must be Python code or a list of it, got {value[:60]!r}, which is neither."
            ) from broken
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"tests must be Python code or a list of it, got {str(value)[:60]!r}.")
    return value


def plan_of(tests: str, entry_point: str = "") -> UnitTestPlan:
    r"""What to run of a text of tests.

    Args:
        tests: Statements, functions named ``test_...``, classes of tests, or a function ``check``
            that takes what it checks.
        entry_point: The name of what ``check`` takes.
    """
    try:
        tree = _parsed(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as broken:
        raise ArgumentError(f"tests must be Python code, got {tests[:60]!r}: {broken}.") from broken
    functions = {
        node.name: node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    run = [node for node in tree.body if not _is_kept_back(node)]
    called = {
        node.func.id
        for node in _inside(run)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    test_functions = tuple(
        name
        for name, node in functions.items()
        if name.startswith("test") and name not in called and _needs_nothing(node)
    )
    classes = tuple(
        node.name for node in tree.body if isinstance(node, ast.ClassDef) and _has_tests(node)
    )
    to_check = "check" in functions and "check" not in called
    if to_check and not entry_point:
        raise ArgumentError(
            "tests with a function check need the name of what it checks; give the query a field"
            " 'entry_point'."
        )
    if not (
        test_functions
        or classes
        or to_check
        or called & functions.keys()
        or any(map(_checks, _inside(run)))
    ):
        raise ArgumentError(
            f"tests must check something, got code without a check that runs: {tests[:60]!r}."
        )
    names = _names_in(tree) | set(filter(None, [entry_point]))
    checked = entry_point if to_check else ""
    return UnitTestPlan(tests, test_functions, classes, checked, tuple(sorted(names)))


def _names_in(tree: ast.Module) -> set[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return names | {alias.name for node in imports for alias in node.names}


def _parsed(tests: str) -> ast.Module:
    # Judges read in threads: the parser of CPython 3.11 fails in two at once ("AST constructor
    # recursion depth mismatch"), and filters of warnings belong to the whole process.
    with _PARSER, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that are none
        return ast.parse(tests)


def _inside(nodes: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _is_kept_back(node: ast.stmt) -> bool:
    """Whether a statement does not run when the tests do.

    Definitions, and what waits for being the main program.
    """
    if isinstance(node, ast.If):
        return any(
            isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
        )
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _checks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = (
            node.func.attr
            if isinstance(node.func, ast.Attribute)
            else node.func.id
            if isinstance(node.func, ast.Name)
            else ""
        )
        return re.match(r"_*assert", name) is not None
    return isinstance(node, (ast.Assert, ast.Raise))


def _needs_nothing(node: ast.FunctionDef | ast.AsyncFunctionDef, given: int = 0) -> bool:
    required = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults) - given
    if required > 0 or any(default is None for default in node.args.kw_defaults):
        raise ArgumentError(
            f"test functions must take no arguments, got {node.name!r}; fixtures are not supported."
        )
    return True


def _has_tests(node: ast.ClassDef) -> bool:
    methods = [
        part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    tests = [method for method in methods if method.name.startswith("test")]
    if tests and any(method.name in ("setup_method", "setup_class") for method in methods):
        raise ArgumentError(
            f"classes of tests must be plain or of unittest, got {node.name!r} with a set-up of"
            " pytest's."
        )
    return bool(tests) and all(_needs_nothing(test, given=1) for test in tests)


# Unit tests: the code in an answer is right if it passes them.


@dataclass(frozen=True)
class UnitTestJudge(VersionedJudge):
    r"""Right if the Python code in the answer passes all tests.

    The tests are in ``query.fields["tests"]``, else in the reference: statements, functions named
    ``test_...``, classes of tests, or a function ``check`` that receives the object named by
    ``query.fields["entry_point"]``. They use the names of the answer, and may import it as
    ``answer`` or ``solution``. Tests that cannot run, or that check nothing, give no verdict.

    The code and its tests run in one process inside bubblewrap. The process can read Python and the
    system's libraries and write to one empty folder, but cannot start programs, use the network,
    reach other processes or read this process's environment; time, memory and files are limited.
    Where bubblewrap is missing or the kernel refuses namespaces, the judge refuses to run anything.

    The sandbox protects the machine. The verdict is protected against the usual ways to fake a
    pass: code that ends the process, skips its tests, replaces built-in functions, or returns
    objects that equal everything. An object of the answer's class that claims to equal a plain
    value gives no verdict. Code that is written to search the stack can still find its tests.

    Args:
        cpu_seconds: CPU time, whatever else the machine does.
        wall_seconds: Elapsed time after which the process is killed.
        memory_mb: Limit of the address space.
        preamble: Code that runs before the answer, such as imports promised in the prompt.
        allow_unsandboxed: Whether to run code where bubblewrap does not work, which gives it all
            rights of this user: files, keys and network.
        name: Its name in tables.

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
        """Check the limits and the preamble."""
        if self.cpu_seconds < 1 or self.memory_mb < 1 or not 0 < self.wall_seconds < math.inf:
            limits = (
                f"cpu_seconds={self.cpu_seconds!r}, wall_seconds={self.wall_seconds!r},"
                f" memory_mb={self.memory_mb!r}"
            )
            raise ArgumentError(f"limits must be positive, got {limits}.")
        try:
            compile(self.preamble, "preamble", "exec")
        except (SyntaxError, ValueError) as broken:
            raise ArgumentError(
                f"preamble must be Python code, got {self.preamble[:60]!r}: {broken}."
            ) from broken

    async def judge(self, query: Query, text: str) -> Verdict:
        """Run the tests on the code."""
        return await asyncio.to_thread(self._judge, query, text)

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        if query.fields.get("tests", query.reference) is None:
            return "the query has no tests"
        try:
            _plan(query)
        except ArgumentError as broken:
            return str(broken)
        if not self.allow_unsandboxed and not sandbox_works():
            return NO_SANDBOX
        return ""

    def _judge(self, query: Query, text: str) -> Verdict:
        if lack := self.missing_fields(query):
            return Verdict(None, lack)
        plan = _plan(query)
        variants = python_in(text, plan.names)
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
        return _verdict(outcome)


def _verdict(outcome: Outcome) -> Verdict:
    if not outcome.started:
        return Verdict(None, "the tests could not be started: no report; is memory_mb too small?")
    if outcome.no_verdict:
        return Verdict(None, outcome.no_verdict)
    if outcome.passed:
        return Verdict(1.0, "all tests pass")
    ended = "the code ended before its tests did, or used too much time or memory"
    return Verdict(0.0, outcome.failure or outcome.stopped or ended)


def _plan(query: Query) -> UnitTestPlan:
    return plan_of(
        tests_of(query.fields.get("tests", query.reference)),
        str(query.fields.get("entry_point") or ""),
    )
