"""Every name that a package exports is documented, with an example that runs (pytest runs them all
as doctests).
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mildroute
from mildroute.cli.app import app


def packages() -> Iterator[ModuleType]:
    """What users import from.

    A module inside a package is public only through what its package exports.
    """
    yield mildroute
    for found in pkgutil.walk_packages(mildroute.__path__, "mildroute."):
        if found.ispkg:
            yield importlib.import_module(found.name)


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(mildroute.__path__, "mildroute."):
        yield importlib.import_module(found.name)


def public_objects() -> dict[str, Any]:
    """Functions and classes in __all__, by the name of the module that defines them."""
    objects = {}
    for module in packages():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                objects[f"{value.__module__}.{value.__qualname__}"] = value
    return objects


def commands() -> set[str]:
    callbacks = [command.callback for command in app.registered_commands]
    return {f"{callback.__module__}.{callback.__qualname__}" for callback in callbacks if callback}


@pytest.mark.parametrize("module", list(modules()), ids=lambda module: module.__name__)
def test_every_module_is_documented_and_what_it_declares_exists(module: ModuleType) -> None:
    assert module.__doc__
    declared = getattr(module, "__all__", [])
    assert sorted(set(declared)) == sorted(declared)
    assert all(hasattr(module, name) for name in declared)
    assert not (module.__name__.rpartition(".")[2].startswith("_") and declared), (
        "a private module declares nothing public"
    )


@pytest.mark.parametrize("name", sorted(public_objects()))
def test_every_public_name_has_a_docstring_with_an_example(name: str) -> None:
    documentation = inspect.getdoc(public_objects()[name]) or ""
    # The docstring of a command is its help: its example is a command line, which tests/cli looks
    # for.
    shown = (
        "Example: mildroute " in documentation
        if name in commands()
        else doctest.DocTestParser().get_examples(documentation)
    )
    assert shown, f"{name} has no example in its docstring"


@pytest.mark.parametrize("name", sorted(public_objects()))
def test_every_public_function_is_annotated(name: str) -> None:
    value = public_objects()[name]
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        assert signature.return_annotation is not inspect.Signature.empty
        assert all(
            parameter.annotation is not inspect.Parameter.empty
            for parameter in signature.parameters.values()
        )


def test_public_methods_are_documented() -> None:
    bare = [
        f"{name}.{method}"
        for name, value in public_objects().items()
        if inspect.isclass(value)
        for method, function in vars(value).items()
        if inspect.isfunction(function)
        and not method.startswith("_")
        and not inspect.getdoc(function)
    ]
    assert bare == []


def test_every_public_name_is_on_one_page_and_each_class_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("sphinx", reason="the pages are written by an extension of Sphinx")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs" / "_ext"))
    api_pages = importlib.import_module("api_pages")
    names = set()
    for package in api_pages.packages():
        pages = api_pages.pages_of(package)
        short = package.removeprefix("mildroute.")
        functions = pages[short].partition(":members:")[2].partition("\n")[0].split(", ")
        for name in api_pages.described_in(package):
            names.add(name)
            if isinstance(getattr(importlib.import_module(package), name), type):
                assert f".. autoclass:: {package}.{name}\n" in pages[f"{short}.{name}"]
            else:
                assert name in [each.strip() for each in functions]
    assert {name for name in mildroute.__all__ if not name.startswith("__")} <= names


def test_the_losses_of_a_training_loop_come_first_on_their_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("sphinx", reason="the pages are written by an extension of Sphinx")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs" / "_ext"))
    page = importlib.import_module("api_pages").pages_of("mildroute.losses")["losses"]
    listed = re.findall(r"~mildroute\.losses\.(\w+)", page)
    assert listed[:4] == ["MILDLoss", "TDEFLoss", "CrossEntropyLoss", "LDAMLoss"]
    assert sorted(listed[4:]) == listed[4:]
    assert len(listed) == len(set(listed))
