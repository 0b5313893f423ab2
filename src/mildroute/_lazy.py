"""Packages that import nothing until one of their names is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    package: str, names_by_module: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package with lazy exports.

    Args:
        package: Name of the package.
        names_by_module: Exported names by the module that defines them. Type checkers read the
            same names from imports below ``if TYPE_CHECKING:``.
    """
    module_of = {name: module for module, names in names_by_module.items() for name in names}
    exports = sorted(module_of)

    def get_export(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    return exports, get_export, lambda: exports
