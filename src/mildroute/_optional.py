"""Names of a package that load their module when they are first used, so that importing the package is free."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mildroute.exceptions import MissingExtraError


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package whose public names live in its modules.

    Args:
        package: Its ``__name__``.
        homes: The names that each module defines.

    Returns:
        Both functions.

    Example:
        >>> get, names = lazy_names("mildroute", {"exceptions": ["CostError", "TableError"]})
        >>> get("CostError").__name__, names()
        ('CostError', ['CostError', 'TableError'])
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)

    return get, lambda: sorted(home_of)


def load_torch() -> Any:
    """The torch package, or an error that says how to install it."""
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise MissingExtraError.for_package("torch", extra="torch", user="fitting this router") from missing
    return torch
