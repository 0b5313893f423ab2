"""Plans for running a query's tests.

A plan lists the tests that the code itself does not call. Tests without any check are refused.
"""

from __future__ import annotations

import ast
import json
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mildroute.exceptions import ArgumentError

# Judges run in several threads, but the parser of CPython 3.11 is not thread-safe ("AST constructor
# recursion depth mismatch"), and warning filters apply to the whole process.
_PARSER_LOCK = threading.Lock()


@dataclass(frozen=True)
class UnitTestPlan:
    """Tests to run as a script, and the functions and classes to run afterwards.

    Args:
        tests: The code of the tests.
        functions: Names of the functions to call.
        classes: Names of the test classes to run.
        entry_point: Name of the object to pass to the tests' function ``check``; empty if there is
            no such function or the tests call it themselves.
        names: All names that the tests use, including those that the answer defines.
    """

    tests: str
    functions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    entry_point: str = ""
    names: tuple[str, ...] = ()


def parse_tests(value: Any) -> str:
    """Return tests as one text, from a text, a list of statements, or a JSON list of statements."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(
                f"tests must be Python code or a list of it, got {value[:60]!r}."
            ) from error
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"tests must be Python code or a list of it, got {str(value)[:60]!r}.")
    return value


def plan_tests(tests: str, entry_point: str = "") -> UnitTestPlan:
    """Return the plan for running a text of tests.

    Args:
        tests: Statements, functions named ``test_...``, classes of tests, or a function ``check``
            that takes the object to check.
        entry_point: Name of this object.
    """
    try:
        # The parser warns about invalid escapes.
        with _PARSER_LOCK, warnings.catch_warnings(action="ignore"):
            tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArgumentError(f"tests must be Python code, got {tests[:60]!r}: {error}.") from error
    functions = {
        node.name: node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    statements = [node for node in tree.body if not _is_deferred(node)]
    called = {
        node.func.id
        for node in _descendants(statements)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    test_functions = [
        node for name, node in functions.items() if name.startswith("test") and name not in called
    ]
    for node in test_functions:
        _refuse_parameters(node)
    test_classes = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and _test_methods(node)
    ]
    needs_object = "check" in functions and "check" not in called
    if needs_object and not entry_point:
        raise ArgumentError(
            "tests with a function check need the name of the object that it checks; give the query"
            " a field 'entry_point'."
        )
    has_checks = (
        test_functions
        or test_classes
        or needs_object
        or called & functions.keys()
        or any(map(_is_check, _descendants(statements)))
    )
    if not has_checks:
        raise ArgumentError(
            f"tests must check something, got code without a check that runs: {tests[:60]!r}."
        )
    return UnitTestPlan(
        tests,
        functions=tuple(node.name for node in test_functions),
        classes=tuple(node.name for node in test_classes),
        entry_point=entry_point if needs_object else "",
        names=tuple(sorted(_used_names(tree) | ({entry_point} if entry_point else set()))),
    )


def _used_names(tree: ast.Module) -> set[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return names | {alias.name for node in imports for alias in node.names}


def _descendants(nodes: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _is_deferred(node: ast.stmt) -> bool:
    """Return whether a statement does not run when the tests are executed as a script.

    Definitions and code under ``if __name__ == "__main__"`` do not.
    """
    if isinstance(node, ast.If):
        return any(
            isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
        )
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_check(node: ast.AST) -> bool:
    """Return whether a node raises an error, asserts, or calls an assertion."""
    if isinstance(node, ast.Call):
        name = ""
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
        elif isinstance(node.func, ast.Name):
            name = node.func.id
        return re.match(r"_*assert", name) is not None
    return isinstance(node, (ast.Assert, ast.Raise))


def _refuse_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, allowed: int = 0) -> None:
    """Raise an error if a test has more required parameters than allowed."""
    required = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    if required > allowed or any(default is None for default in node.args.kw_defaults):
        raise ArgumentError(
            f"test functions must take no arguments, got {node.name!r}; fixtures are not supported."
        )


def _test_methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the tests of a class, or raise an error if they cannot be run."""
    methods = [
        part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    tests = [method for method in methods if method.name.startswith("test")]
    if tests and any(method.name in ("setup_method", "setup_class") for method in methods):
        raise ArgumentError(
            f"test classes must be plain classes or subclasses of unittest.TestCase, got"
            f" {node.name!r} with a setup method of pytest."
        )
    for test in tests:
        _refuse_parameters(test, allowed=1)
    return tests
