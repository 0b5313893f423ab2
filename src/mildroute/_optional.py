"""Errors that name the extra to install when an optional package is missing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mildroute.exceptions import MissingExtraError


@contextmanager
def needs_extra(package: str, *, extra: str, user: str) -> Iterator[None]:
    """Turn a failed import into an error that says how to install the package.

    Args:
        package: Name of the package; an empty string means the missing module.
        extra: The mildroute extra that installs it.
        user: Feature that needs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = package or error.name or "another package"
        raise MissingExtraError.for_package(name, extra=extra, user=user) from error


def load_torch() -> Any:
    """Return the torch package, or raise an error that says how to install it."""
    with needs_extra("torch", extra="torch", user="fitting this router"):
        return importlib.import_module("torch")
