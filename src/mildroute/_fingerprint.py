"""Digests of texts, and versions of experts and judges: short hashes of their settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mildroute.exceptions import ArgumentError


def text_digest(text: str, size: int = 16) -> str:
    """Digest of a text in so many bytes, as hexadecimal digits; half surrogates are no obstacle."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


# Versions of experts: a short hash of all that changes answers or their price.


_LENGTH = 12


def fingerprint(kind: str, parts: Mapping[str, Any], *, version: str = "") -> str:
    """The version of an expert.

    Equal numbers count as equal however they are written, and so do mappings in another order.

    Args:
        kind: Kind of the expert.
        parts: All that changes its answers or their price, as JSON could hold it.
        version: What its owner calls the version; it goes in front of the hash and does not replace
            it, so that a forgotten change of this text never mixes answers of two prompts.

    Returns:
        Twelve hexadecimal digits, behind the owner's word if there is one.
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
    """As JSON can hold it; equal numbers are written alike."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "version"):  # a judge or an expert among the settings of a judge
        return {"name": value.name, "version": value.version}
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Versions of judges: a number for how they read, and a hash of their settings.


def version_of(judge: Any, reading: int) -> str:
    """The version of a judge that is a dataclass; its name does not count.

    Args:
        judge: The judge, whose fields are its settings; a judge or expert among them counts with
            its own name and version.
        reading: Raised whenever the judge reads an answer otherwise than before.
    """
    settings = {
        field.name: getattr(judge, field.name)
        for field in fields(judge)
        if field.init and field.name != "name"
    }
    written = json.dumps(_plain(settings), sort_keys=True)
    return f"{reading}-{hashlib.sha256(written.encode()).hexdigest()[:8]}"
