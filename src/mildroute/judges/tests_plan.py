"""What a text of tests checks, so that tests which nobody calls are called, and tests that check nothing are refused."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mildroute.errors import ArgumentError

__all__ = ["Plan", "plan_of", "tests_of"]


@dataclass(frozen=True)
class Plan:
    """Tests, and what is to be called after they were run as a script.

    Args:
        code: The tests.
        functions: Test functions, by name.
        classes: Classes of tests, by name.
        entry_point: What is given to the function ``check`` of the tests; empty if there is no such function or they call it themselves.
        names: All names that the tests use, among them those of the answer.

    Example:
        >>> Plan("assert True").functions
        ()
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
        mildroute.errors.ArgumentError: tests must check something, got code without a check that runs: 'x = f(1)'.
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
