"""Import paths of objects, written as ``package.module:name``."""

from __future__ import annotations

import importlib
import re
from typing import Any

from mildroute.exceptions import ArgumentError

__all__ = ["import_object", "validate_import_path"]

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def validate_import_path(path: str) -> str:
    """Return an import path if its form is valid, without importing anything."""
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise ArgumentError(
            f"an import path must be written as package.module:name, got {path!r:.80}."
        )
    return path


def import_object(path: str) -> Any:
    """Return the object at an import path; importing its module runs the module's code."""
    module, _, name = validate_import_path(path).partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(
            f"{path!r} cannot be imported: {error}; install its package or put its folder on"
            " PYTHONPATH."
        ) from error
    return value
