"""Digests of texts, and versions of experts and judges: short hashes of their settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mildroute.exceptions import ArgumentError

# Hexadecimal digits of an expert's version.
_LENGTH = 12


def text_digest(text: str, size: int = 16) -> str:
    """Return a digest of a text as hexadecimal digits; unpaired surrogates are accepted."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def fingerprint(kind: str, parts: Mapping[str, Any], *, version: str = "") -> str:
    """Return the version of an expert: a short hash of what changes its answers or their price.

    Equal numbers count as equal however they are written, and so do mappings in a different order.

    Args:
        kind: Kind of the expert.
        parts: Everything that changes the expert's answers or their price, as JSON could hold it.
        version: The owner's name for the version. It goes in front of the hash and does not replace
            it, so that a forgotten change of this text never mixes answers of two prompts.

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
    digits = hashlib.sha256(b"mildroute expert 1\n" + text.encode()).hexdigest()[:_LENGTH]
    return f"{version}-{digits}" if version else digits


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it, with equal numbers written alike."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "version"):  # a judge or an expert among the settings of a judge
        return {"name": value.name, "version": value.version}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def version_of(judge: Any, reading: int) -> str:
    """Return the version of a judge that is a dataclass, regardless of its name.

    Args:
        judge: The judge, whose fields are its settings; a judge or expert among them counts with
            its own name and version.
        reading: A number to raise whenever the judge reads an answer differently than before.
    """
    settings = {
        field.name: getattr(judge, field.name)
        for field in fields(judge)
        if field.init and field.name != "name"
    }
    plain_settings = json.dumps(_plain(settings), sort_keys=True)
    return f"{reading}-{hashlib.sha256(plain_settings.encode()).hexdigest()[:8]}"
