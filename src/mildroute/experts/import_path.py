"""Objects that a user names by where Python finds them, as ``package.module:name``."""

from __future__ import annotations

import importlib
import re
from typing import Any

from mildroute.errors import ArgumentError

__all__ = ["checked_import_path", "imported"]

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def checked_import_path(path: str) -> str:
    """The path itself, if it is written as it must be; nothing is imported.

    Example:
        >>> checked_import_path("shop.models:intent")
        'shop.models:intent'
    """
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise ArgumentError(f"an import path must be written as package.module:name, got {path!r:.80}.")
    return path


def imported(path: str) -> Any:
    """What the path names; its module is imported, which runs its code.

    Example:
        >>> imported("math:pi")
        3.141592653589793
    """
    module, _, name = checked_import_path(path).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(f"{path!r} cannot be imported: {error}; install its package or put its folder on PYTHONPATH.") from error
    return found
