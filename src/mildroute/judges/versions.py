"""Versions of judges: a number for how they read, and a hash of their settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

__all__ = ["version_of"]


def version_of(judge: Any, reading: int) -> str:
    """The version of a judge that is a dataclass; its name does not count.

    Args:
        judge: The judge, whose fields are its settings; a judge or expert among them counts with its own name and version.
        reading: Raised whenever the judge reads an answer otherwise than before.

    Returns:
        The reading and eight hexadecimal digits.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Strict:
        ...     name: str = "strict"
        ...     keep_case: bool = False
        >>> version_of(Strict(), 1) == version_of(Strict(name="other"), 1) != version_of(Strict(keep_case=True), 1)
        True
    """
    settings = {field.name: getattr(judge, field.name) for field in fields(judge) if field.init and field.name != "name"}
    written = json.dumps(_plain(settings), sort_keys=True)
    return f"{reading}-{hashlib.sha256(written.encode()).hexdigest()[:8]}"


def _plain(value: Any) -> Any:
    """As JSON can hold it; equal numbers are written alike."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    return {"name": value.name, "version": value.version}
