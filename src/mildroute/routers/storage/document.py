"""JSON read without trust: bounded, no repeated keys, only finite numbers, and sealed by a digest against accidents."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, NoReturn

import numpy as np

from mildroute.errors import ArtifactError

__all__ = ["digest_of", "parse_document"]

_DEEPEST = 128
_LONGEST_INTEGER = 20


def parse_document(data: bytes) -> dict[str, Any]:
    """A JSON object from bytes that may hold anything.

    Example:
        >>> parse_document(b'{"schema": 1}')
        {'schema': 1}
        >>> parse_document(b'{"schema": 1, "schema": 2}')
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: router.json may have each key once, got 'schema' twice; copy the artifact again.
    """
    try:
        text = data.decode("utf-8")
        _check_depth(text)
        document = json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_float=_finite, parse_constant=_refuse_constant)
    except ValueError as broken:
        raise ArtifactError(f"router.json must be JSON in UTF-8, got: {broken}; copy the artifact again.") from broken
    if not isinstance(document, dict):
        raise ArtifactError(f"router.json must have an object at its top, got a {type(document).__name__}; copy the artifact again.")
    return document


def digest_of(document: dict[str, Any]) -> str:
    """SHA-256 of a document's content, whatever its white space, without its own entry ``"sha256"``.

    Example:
        >>> digest_of({"a": 1}) == digest_of({"a": 1, "sha256": "..."}) != digest_of({"a": 2})
        True
    """
    content = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _check_depth(text: str) -> None:
    # Every second piece between unescaped quotes lies outside strings.
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    codes = np.frombuffer(outside.encode(), dtype=np.uint8)
    steps = np.isin(codes, list(b"[{")).astype(np.int8) - np.isin(codes, list(b"]}")).astype(np.int8)
    depth = int(np.cumsum(steps, dtype=np.int64).max(initial=0))
    if depth > _DEEPEST:
        raise ArtifactError(f"router.json may be nested {_DEEPEST} levels deep, got {depth}; the artifact is damaged.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ArtifactError(f"router.json may have each key once, got {key!r:.80} twice; copy the artifact again.")
        found[key] = value
    return found


def _integer(text: str) -> int:
    # Longer ones would take quadratic time to convert.
    if len(text) > _LONGEST_INTEGER or not -(2**63) <= int(text) < 2**64:
        raise ArtifactError(f"integers in router.json must fit in 64 bits, got {text:.40}; the artifact is damaged.")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ArtifactError(f"numbers in router.json must be finite, got {text:.40}; the artifact is damaged.")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ArtifactError(f"numbers in router.json must be finite, got {text}; the artifact is damaged.")
