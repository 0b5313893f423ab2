"""Versions of experts: a short hash of all that changes answers or their price."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mildroute.errors import ArgumentError

__all__ = ["fingerprint"]

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
