"""Digests of texts, and versions of experts and judges: short hashes of their settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mildroute.exceptions import ArgumentError

# Number of hexadecimal digits in an expert's version.
_VERSION_DIGITS = 12


def text_digest(text: str, size: int = 16) -> str:
    """Return a text's digest in hexadecimal; unpaired surrogates are allowed."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def fingerprint(kind: str, parts: Mapping[str, Any], *, version: str = "") -> str:
    """Return an expert's version: a short hash of all that affects its answers or their price.

    The hash does not depend on how equal numbers are written or on the order of mappings.

    Args:
        kind: The expert's kind.
        parts: Everything that affects the expert's answers or their price, as JSON values.
        version: The owner's name for the version. It is a prefix and does not replace the
            hash, so that forgetting to change it never mixes answers to two prompts.

    Returns:
        Twelve hexadecimal digits, after the owner's version if there is one.
    """
    try:
        text = json.dumps([kind, version, _plain(parts)], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"settings of an expert must be JSON-serializable: {error}; use numbers, texts,"
            " lists and mappings."
        ) from None
    digits = hashlib.sha256(b"mildroute expert 1\n" + text.encode()).hexdigest()[:_VERSION_DIGITS]
    return f"{version}-{digits}" if version else digits


def _plain(value: Any) -> Any:
    """Return a JSON-compatible value in which equal numbers are identical."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "version"):  # a judge or an expert in a judge's settings
        return {"name": value.name, "version": value.version}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def version_of(judge: Any, reading: int) -> str:
    """Return the version of a judge that is a dataclass, independent of its name.

    Args:
        judge: The judge, whose fields are its settings; nested judges and experts count by name and
            version.
        reading: A number to increase whenever the judge's reading of answers changes.
    """
    settings = {
        field.name: getattr(judge, field.name)
        for field in fields(judge)
        if field.init and field.name != "name"
    }
    plain_settings = json.dumps(_plain(settings), sort_keys=True)
    return f"{reading}-{hashlib.sha256(plain_settings.encode()).hexdigest()[:8]}"
