"""The content of ``router.json``: what the router is, for people and for the loader."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

import mildroute
from mildroute.errors import ArtifactError
from mildroute.routers.storage.document import digest_of
from mildroute.routers.storage.plain import plain

__all__ = ["KIND", "SCHEMA", "check_manifest", "check_router", "manifest_of", "manifest_to_bytes"]

SCHEMA = 1
"""Version of the layout of ``router.json`` that is written and read."""
KIND = "mildroute-router"

_SUMMARY = ("loss", "reward", "margins", "penalty", "decision", "features", "choice")
_CARD: Mapping[str, type[Any]] = {"licence": str, "metrics": Mapping, "notes": str, "prices": Mapping, "rows": int}


def manifest_of(router: Any, tree: dict[str, Any], weights: Mapping[str, Any], card: Mapping[str, object] | None) -> dict[str, Any]:
    """Everything that ``router.json`` says.

    Args:
        router: A fitted router.
        tree: Its encoded state.
        weights: Digest and description of the weights file.
        card: What only the caller knows; see :func:`mildroute.routers.artifact.save`.

    Returns:
        The manifest, sealed.

    Example:
        >>> from types import SimpleNamespace
        >>> router = SimpleNamespace(experts_=np.array(["small", "large"]), n_features_in_=4, reward="gap")
        >>> manifest = manifest_of(router, {}, {}, {"rows": 100})
        >>> manifest["experts"], manifest["reward"], manifest["rows"]
        (['small', 'large'], 'gap', 100)
    """
    manifest = {
        "schema": SCHEMA,
        "kind": KIND,
        "experts": [str(name) for name in router.experts_],
        "n_features_in": plain(getattr(router, "n_features_in_", None), "n_features_in_"),
        **_encoder(router),
        **_summary(getattr(router, "router_", router)),
        "data_hash": plain(getattr(router, "data_hash_", None), "data_hash_"),
        "rows": plain(getattr(router, "n_rows_", None), "n_rows_"),
        "prices": None,
        "metrics": plain(getattr(getattr(router, "router_", router), "validation_", None), "validation_"),
        **_checked_card(card or {}),
        "versions": _versions(),
        "weights": dict(weights),
        "router": tree,
    }
    return manifest | {"sha256": digest_of(manifest)}


def manifest_to_bytes(manifest: Mapping[str, Any], *, limit: int) -> bytes:
    r"""The manifest as indented JSON of at most ``limit`` bytes.

    Example:
        >>> manifest_to_bytes({"schema": 1}, limit=100).decode()
        '{\n  "schema": 1\n}\n'
    """
    data = (json.dumps(manifest, indent=2, allow_nan=False) + "\n").encode()
    if len(data) > limit:
        raise ArtifactError(f"router.json may have {limit} bytes, got {len(data)}; keep long lists of numbers as arrays.")
    return data


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Refuse what is not a router of a known schema, or was changed since it was stored.

    Example:
        >>> check_manifest({"schema": 7, "kind": "mildroute-router"})
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: router.json must have schema 1, got 7; upgrade mildroute to read it, or store the router again.
    """
    kind, schema = manifest.get("kind"), manifest.get("schema")
    if kind != KIND:
        raise ArtifactError(f"router.json must be of kind {KIND!r}, got {kind!r:.80}; this folder is no stored router.")
    if type(schema) is not int or schema != SCHEMA:
        raise ArtifactError(
            f"router.json must have schema {SCHEMA}, got {schema!r:.80}; upgrade mildroute to read it, or store the router again."
        )
    if manifest.get("sha256") != digest_of(dict(manifest)):
        raise ArtifactError("router.json must have the content it was stored with, but its sha256 differs; copy the artifact again.")
    weights = manifest.get("weights")
    if not isinstance(weights, dict) or not isinstance(weights.get("tensors"), dict) or not isinstance(weights.get("sha256"), str):
        raise ArtifactError(f"router.json must describe its weights, got {weights!r:.80}; store the router again.")
    if not isinstance(manifest.get("router"), dict):
        raise ArtifactError("router.json must have a router, got none; store the router again.")


def check_router(router: Any, manifest: Mapping[str, Any]) -> None:
    """Refuse a rebuilt object that is no router or not the one that the manifest speaks of.

    Example:
        >>> check_router(object(), {"experts": []})
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: an artifact must hold a fitted router, got object; store a router.
    """
    experts = getattr(router, "experts_", None)
    if not hasattr(router, "predict") or not isinstance(experts, np.ndarray) or experts.ndim != 1 or experts.dtype.kind not in "OU":
        raise ArtifactError(f"an artifact must hold a fitted router, got {type(router).__name__}; store a router.")
    width = plain(getattr(router, "n_features_in_", None), "n_features_in_")
    if width is not None and type(width) is not int:
        raise ArtifactError(f"n_features_in_ must be an integer, got {width!r:.80}; store the router again.")
    if [experts.tolist(), width] != [manifest.get("experts"), manifest.get("n_features_in")]:
        raise ArtifactError(
            "experts and n_features_in of router.json must be those of its router, but they differ; store the router again."
        )


def _encoder(router: Any) -> dict[str, Any]:
    """The encoder of a router over inputs, by name; its numbers are among the weights, under their digest."""
    encoder = getattr(router, "encoder_", None)
    return {} if encoder is None else {"encoder": plain(encoder, "encoder_")}


def _summary(router: Any) -> dict[str, Any]:
    """What the router settled on or, where it has nothing fitted by that name, was told."""
    found = {name: getattr(router, f"{name}_", getattr(router, name, None)) for name in _SUMMARY}
    return {name: plain(value, name) for name, value in found.items() if value is not None and not callable(value)}


def _checked_card(card: Mapping[str, object]) -> dict[str, Any]:
    for name, value in card.items():
        kind = _CARD.get(name)
        if kind is None or not isinstance(value, kind) or isinstance(value, bool):
            rule = ", ".join(f"{known} ({wanted.__name__})" for known, wanted in _CARD.items())
            raise ArtifactError(f"a card may have {rule}, got {name!r:.80} of type {type(value).__name__}; convert or drop it.")
    return {name: plain(value, f"card.{name}") for name, value in card.items()}


def _versions() -> dict[str, str]:
    installed = {name: importlib.metadata.version(name) for name in ("numpy", "scikit-learn")}
    return {"mildroute": mildroute.__version__, **installed, "python": platform.python_version()}
