"""Versions of experts and judges: short hashes of their settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mildroute.exceptions import ArgumentError

# Versions of experts: a short hash of all that changes answers or their price.


_LENGTH = 12


def fingerprint(kind: str, parts: Mapping[str, Any], *, version: str = "") -> str:
    """The version of an expert.

    Equal numbers count as equal however they are written, and so do mappings in another order.

    Args:
        kind: Kind of the expert.
        parts: All that changes its answers or their price, as JSON could hold it.
        version: What its owner calls the version; it goes in front of the hash and does not replace it, so that a forgotten
            change of this text never mixes answers of two prompts.

    Returns:
        Twelve hexadecimal digits, behind the owner's word if there is one.

    Example:
        >>> fingerprint("people", {"seed": 1}) == fingerprint("people", {"seed": 1.0})
        True
        >>> fingerprint("people", {"seed": 1}, version="may").split("-")[0]
        'may'
    """
    try:
        text = json.dumps([kind, version, _plain(parts)], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"settings of an expert must be such as JSON can hold: {error}; use numbers, texts, lists and mappings."
        ) from None
    digits = hashlib.sha256(b"mildroute expert 1\n" + text.encode()).hexdigest()[:_LENGTH]
    return f"{version}-{digits}" if version else digits


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Versions of judges: a number for how they read, and a hash of their settings.


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
    written = json.dumps(_plain_setting(settings), sort_keys=True)
    return f"{reading}-{hashlib.sha256(written.encode()).hexdigest()[:8]}"


def _plain_setting(value: Any) -> Any:
    """As JSON can hold it; equal numbers are written alike."""
    if isinstance(value, Mapping):
        return {str(name): _plain_setting(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_setting(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    return {"name": value.name, "version": value.version}
