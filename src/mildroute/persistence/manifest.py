"""The manifest of a stored router, ``router.json``: its content, digest and checks."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

import mildroute
from mildroute._format import to_jsonable
from mildroute.exceptions import ArtifactError

__all__ = [
    "KIND",
    "SCHEMA",
    "build_manifest",
    "check_manifest",
    "check_router",
    "digest_of",
    "manifest_to_bytes",
    "parse_document",
]

# Version of the schema of ``router.json`` that is written and read.
SCHEMA = 4
KIND = "mildroute-router"

_SUMMARY = ("loss", "reward", "margins", "alpha", "decision", "features", "selection")
_CARD_FIELDS: Mapping[str, type[Any]] = {
    "licence": str,
    "metrics": Mapping,
    "notes": str,
    "prices": Mapping,
    "rows": int,
}
# Limits on an untrusted document.
_DEEPEST = 128
_LONGEST_INTEGER = 20


def build_manifest(
    router: Any, tree: dict[str, Any], weights: Mapping[str, Any], card: Mapping[str, object] | None
) -> dict[str, Any]:
    """Return the content of ``router.json``.

    Args:
        router: A fitted router.
        tree: The encoded state of the router.
        weights: Digest and description of the weights file.
        card: Facts that the caller provides; see
            :func:`mildroute.persistence.artifact.save_router`.
    """
    manifest = {
        "schema": SCHEMA,
        "kind": KIND,
        "experts": [str(name) for name in router.experts_],
        "n_features_in": to_jsonable(getattr(router, "n_features_in_", None), "n_features_in_"),
        **_encoder_entry(router),
        **_settings(getattr(router, "router_", router)),
        "data_hash": to_jsonable(getattr(router, "data_hash_", None), "data_hash_"),
        "rows": to_jsonable(getattr(router, "n_rows_", None), "n_rows_"),
        "prices": None,
        "metrics": to_jsonable(
            getattr(getattr(router, "router_", router), "validation_", None), "validation_"
        ),
        **_card_to_json(card or {}),
        "versions": _versions(),
        "weights": dict(weights),
        "router": tree,
    }
    return manifest | {"sha256": digest_of(manifest)}


def manifest_to_bytes(manifest: Mapping[str, Any], *, limit: int) -> bytes:
    """Return the manifest as indented JSON of at most ``limit`` bytes."""
    data = (json.dumps(manifest, indent=2, allow_nan=False) + "\n").encode()
    if len(data) > limit:
        raise ArtifactError(
            f"router.json may have {limit} bytes, got {len(data)}; store long lists of numbers as"
            " arrays."
        )
    return data


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raise unless the manifest is unchanged and has the current schema."""
    kind, schema = manifest.get("kind"), manifest.get("schema")
    if kind != KIND:
        raise ArtifactError(
            f"router.json must be of kind {KIND!r}, got {kind!r:.80}; this folder does not contain"
            " a stored router."
        )
    if type(schema) is int and 0 < schema < SCHEMA:
        raise ArtifactError(
            f"router.json must have schema {SCHEMA}, got {schema}, from an earlier version of"
            " mildroute; fit the router again."
        )
    if type(schema) is not int or schema != SCHEMA:
        raise ArtifactError(
            f"router.json must have schema {SCHEMA}, got {schema!r:.80}; upgrade mildroute to read"
            " it, or store the router again."
        )
    if manifest.get("sha256") != digest_of(dict(manifest)):
        raise ArtifactError(
            "router.json must have its original content, but its sha256 differs; copy the artifact"
            " again."
        )
    weights = manifest.get("weights")
    if (
        not isinstance(weights, dict)
        or not isinstance(weights.get("tensors"), dict)
        or not isinstance(weights.get("sha256"), str)
    ):
        raise ArtifactError(
            f"router.json must describe its weights, got {weights!r:.80}; store the router again."
        )
    if not isinstance(manifest.get("router"), dict):
        raise ArtifactError("router.json must have a router, but has none; store the router again.")


def check_router(router: Any, manifest: Mapping[str, Any]) -> None:
    """Raise unless the loaded object is the router that the manifest describes."""
    experts = getattr(router, "experts_", None)
    if (
        not hasattr(router, "predict")
        or not isinstance(experts, np.ndarray)
        or experts.ndim != 1
        or experts.dtype.kind not in "OU"
    ):
        raise ArtifactError(
            f"an artifact must contain a fitted router, got {type(router).__name__}; store one."
        )
    width = to_jsonable(getattr(router, "n_features_in_", None), "n_features_in_")
    if width is not None and type(width) is not int:
        raise ArtifactError(
            f"n_features_in_ must be an integer, got {width!r:.80}; store the router again."
        )
    if [experts.tolist(), width] != [manifest.get("experts"), manifest.get("n_features_in")]:
        raise ArtifactError(
            "experts and n_features_in of router.json must be those of its router, but they differ;"
            " store the router again."
        )


def _encoder_entry(router: Any) -> dict[str, Any]:
    """Return the name of the encoder of a router over inputs.

    The encoder's numbers are part of the weights.
    """
    encoder = getattr(router, "encoder_", None)
    return {} if encoder is None else {"encoder": to_jsonable(encoder, "encoder_")}


def _settings(router: Any) -> dict[str, Any]:
    """Return each fitted setting of the router, or the parameter with that name."""
    settings = {name: getattr(router, f"{name}_", getattr(router, name, None)) for name in _SUMMARY}
    return {
        name: to_jsonable(value, name)
        for name, value in settings.items()
        if value is not None and not callable(value)
    }


def _card_to_json(card: Mapping[str, object]) -> dict[str, Any]:
    for name, value in card.items():
        kind = _CARD_FIELDS.get(name)
        if kind is None or not isinstance(value, kind) or isinstance(value, bool):
            rule = ", ".join(
                f"{field} ({field_type.__name__})" for field, field_type in _CARD_FIELDS.items()
            )
            raise ArtifactError(
                f"a card may have {rule}, got {name!r:.80} of type {type(value).__name__}; convert"
                " or drop it."
            )
    return {name: to_jsonable(value, f"card.{name}") for name, value in card.items()}


def _versions() -> dict[str, str]:
    installed = {name: importlib.metadata.version(name) for name in ("numpy", "scikit-learn")}
    return {"mildroute": mildroute.__version__, **installed, "python": platform.python_version()}


def parse_document(data: bytes) -> dict[str, Any]:
    """Return the JSON object in untrusted bytes."""
    try:
        text = data.decode("utf-8")
        _check_depth(text)
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except ValueError as error:
        raise ArtifactError(
            f"router.json must be JSON in UTF-8, got: {error}; copy the artifact again."
        ) from error
    if not isinstance(document, dict):
        raise ArtifactError(
            f"router.json must have an object at its top, got a {type(document).__name__}; copy the"
            " artifact again."
        )
    return document


def digest_of(document: dict[str, Any]) -> str:
    """Return the SHA-256 of a document's content, regardless of whitespace.

    The entry ``"sha256"`` of the document is excluded.
    """
    content = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _check_depth(text: str) -> None:
    # Every second piece between unescaped quotes is outside strings.
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    codes = np.frombuffer(outside.encode(), dtype=np.uint8)
    steps = np.isin(codes, list(b"[{")).astype(np.int8) - np.isin(codes, list(b"]}")).astype(
        np.int8
    )
    depth = int(np.cumsum(steps, dtype=np.int64).max(initial=0))
    if depth > _DEEPEST:
        raise ArtifactError(
            f"router.json may be nested {_DEEPEST} levels deep, got {depth}; the artifact is"
            " damaged."
        )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ArtifactError(
                f"router.json may have each key once, got {key!r:.80} twice; copy the artifact"
                " again."
            )
        document[key] = value
    return document


def _integer(text: str) -> int:
    # Converting longer integers would take quadratic time.
    if len(text) > _LONGEST_INTEGER or not -(2**63) <= int(text) < 2**64:
        raise ArtifactError(
            f"integers in router.json must fit in 64 bits, got {text:.40}; the artifact is damaged."
        )
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ArtifactError(
            f"numbers in router.json must be finite, got {text:.40}; the artifact is damaged."
        )
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ArtifactError(
        f"numbers in router.json must be finite, got {text}; the artifact is damaged."
    )
