"""A fitted router as a folder: ``router.json``, ``weights.safetensors`` and ``CARD.md``.

Loading such a folder never runs code from it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from mildroute._files import names_in, read_file, write_folder
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.persistence.manifest import (
    KIND,
    build_manifest,
    check_manifest,
    check_router,
    manifest_to_bytes,
    parse_document,
)
from mildroute.persistence.model_card import render_model_card
from mildroute.persistence.serialization import decode, encode
from mildroute.persistence.weights import describe, tensors_from_bytes, tensors_to_bytes

__all__ = [
    "CARD",
    "MANIFEST",
    "MAX_MANIFEST",
    "WEIGHTS",
    "Router",
    "check_replaceable",
    "load_router",
    "read_manifest",
    "save_router",
]

MANIFEST = "router.json"
WEIGHTS = "weights.safetensors"
CARD = "CARD.md"
# Maximum bytes of a manifest.
MAX_MANIFEST = 64 << 20


class Router(Protocol):
    """A fitted scikit-learn estimator that chooses between experts and can be stored."""

    experts_: NDArray[Any]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the index of the expert that should answer each row, shape (n,)."""
        ...

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the posterior over experts, shape (n, p)."""
        ...

    def rank(self, X: Any) -> NDArray[Any]:
        """Return the experts of each row from best to worst, shape (n, p)."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor by name."""
        ...


def save_router(
    router: Router, folder: str | os.PathLike[str], *, card: Mapping[str, object] | None = None
) -> Path:
    """Store a fitted router in a folder; if that fails, no files remain.

    Constructor parameters and fitted attributes are stored. Private attributes must be listed in
    the class's tuple ``_transient``, which declares that prediction does not need them. An existing
    folder must be empty or contain only a stored router. Arrays are stored in row-major order, so
    the scores of a loaded router whose weights had another layout may differ in the last bit.

    Args:
        router: A fitted router of :mod:`mildroute.routers`, or of a class registered under the
            entry-point group ``mildroute.routers``.
        folder: The folder to write; a stored router in it is replaced.
        card: Facts for the model card, all optional: ``rows``, the number of training rows;
            ``prices``, a dict with ``date``, ``source``, ``unit`` and ``experts`` (a price or a
            dict of prices for each); ``metrics``, for each a number or a dict of ``value``,
            ``low`` and ``high``; ``licence``; ``notes``.

    Returns:
        The folder.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from mildroute.routers.regression import RegressionRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> router = RegressionRouter().fit(X, costs)
        >>> folder = save_router(router, Path(tempfile.mkdtemp()) / "router", card={"rows": 40})
        >>> sorted(path.name for path in folder.iterdir())
        ['CARD.md', 'router.json', 'weights.safetensors']
    """
    if hasattr(router, "named_steps"):
        raise ArtifactError(
            "only a router or a TextRouter can be stored, got a scikit-learn Pipeline, whose steps"
            " can only be pickled; store its last step and transform inputs yourself, or use"
            " TextRouter(encoder, router)."
        )
    if getattr(router, "experts_", None) is None:
        raise ArtifactError(
            f"only a fitted router can be stored, got a {type(router).__name__} without experts_;"
            " call fit first."
        )
    target = _as_path(folder)
    check_replaceable(target)
    tensors: dict[str, NDArray[Any]] = {}
    tree = encode(router, ("router",), tensors)
    weights = tensors_to_bytes(tensors)
    entry = {"sha256": hashlib.sha256(weights).hexdigest(), "tensors": describe(tensors)}
    manifest = build_manifest(router, tree, entry, card)
    check_router(router, manifest)
    text = render_model_card(manifest).encode(errors="backslashreplace")
    write_folder(
        target,
        {
            MANIFEST: manifest_to_bytes(manifest, limit=MAX_MANIFEST),
            WEIGHTS: weights,
            CARD: text,
        },
    )
    return target


def load_router(
    folder: str | os.PathLike[str],
    *,
    weights_limit: int = 4 << 30,
    digest: str | None = None,
) -> Router:
    """Load a stored router.

    Nothing from the folder is executed, and no module that it names is imported: it may name only
    classes of :mod:`mildroute.routers` and classes that installed distributions registered. Digests
    detect accidental damage. They do not prove who wrote the numbers.

    Args:
        folder: A folder that :func:`save_router` wrote, or the URL of one, such as
            ``hf://acme/router`` or ``s3://bucket/router``, which is downloaded to a cache.
        weights_limit: Maximum size of the weights file, in bytes.
        digest: The ``sha256`` that the router's manifest must have; `None` accepts any.

    Returns:
        The router.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from mildroute.routers.regression import RegressionRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> router = RegressionRouter().fit(X, costs)
        >>> folder = save_router(router, Path(tempfile.mkdtemp()) / "router")
        >>> load_router(folder).predict([[0.0], [1.0]])
        array([0, 1])
    """
    home = _local_folder(folder)
    manifest = read_manifest(home)
    if digest not in (None, manifest["sha256"]):
        raise ArtifactError(
            f"{home} must contain the router {digest:.16}..., got {manifest['sha256']:.16}...; it"
            " has been replaced in the meantime, so try again."
        )
    weights = read_file(home, WEIGHTS, limit=weights_limit)
    if hashlib.sha256(weights).hexdigest() != manifest["weights"]["sha256"]:
        raise ArtifactError(
            f"{WEIGHTS} in {home} must be the file that was stored, but its sha256 differs; copy"
            " the artifact again."
        )
    tensors = tensors_from_bytes(weights, manifest["weights"]["tensors"])
    router: Router = decode(manifest["router"], tensors)
    if tensors:
        raise ArtifactError(
            f"every tensor must belong to the router, got also {sorted(tensors)!r:.200}; store the"
            " router again."
        )
    check_router(router, manifest)
    return router


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a stored router's ``router.json``, checked against its digest.

    The weights are not read.

    Example:
        >>> read_manifest("no such folder")
        Traceback (most recent call last):
        mildroute.exceptions.ArtifactError: no such folder must be a folder with ...
    """
    manifest = parse_document(read_file(_as_path(folder), MANIFEST, limit=MAX_MANIFEST))
    check_manifest(manifest)
    return manifest


def check_replaceable(folder: str | os.PathLike[str]) -> None:
    """Raise unless a folder is new or empty, or contains only a stored router of any schema."""
    target = Path(folder)
    names = names_in(target)
    if names and (names - {MANIFEST, WEIGHTS, CARD} or not _is_stored_router(target)):
        raise ArtifactError(
            f"{target} must be new, empty or a stored router without other files, got"
            f" {sorted(names)!r:.200}; choose another folder."
        )


def _local_folder(location: str | os.PathLike[str]) -> Path:
    """Return the local folder of a router; download it if the location is a URL."""
    from mildroute.persistence.hub import fetch_router, is_url

    if is_url(location):
        return fetch_router(str(location))
    return _as_path(location)


def _as_path(folder: Any) -> Path:
    if isinstance(folder, str | os.PathLike):
        return Path(folder)
    raise ArgumentError(
        f"folder must be a path, got {folder!r:.80} of type {type(folder).__name__}; pass the"
        " folder that save_router wrote."
    )


def _is_stored_router(folder: Path) -> bool:
    try:
        manifest = parse_document(read_file(folder, MANIFEST, limit=MAX_MANIFEST))
    except ArtifactError:
        return False
    return manifest.get("kind") == KIND
