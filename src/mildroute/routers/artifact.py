"""A fitted router as a folder: ``router.json``, ``weights.safetensors`` and ``CARD.md``. Reading one can never run code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from mildroute.errors import ArtifactError
from mildroute.routers.card import card_text
from mildroute.routers.storage.decode import decode
from mildroute.routers.storage.document import parse_document
from mildroute.routers.storage.encode import encode
from mildroute.routers.storage.folder import names_in, read_file, write_folder
from mildroute.routers.storage.manifest import KIND, check_manifest, check_router, manifest_of, manifest_to_bytes
from mildroute.routers.storage.tensors import describe, tensors_from_bytes, tensors_to_bytes

__all__ = ["Router", "check_replaceable", "load_router", "read_manifest", "save"]

_MANIFEST, _WEIGHTS, _CARD = "router.json", "weights.safetensors", "CARD.md"
_LARGEST_MANIFEST = 64 << 20


class Router(Protocol):
    """What can be stored and comes back: a fitted scikit-learn estimator that chooses between experts.

    Example:
        >>> from mildroute.routers.base import RouterMixin
        >>> all(hasattr(RouterMixin, name) for name in ("predict", "predict_proba", "rank"))
        True
    """

    experts_: NDArray[Any]

    def predict(self, X: Any) -> NDArray[Any]:
        """Index of the expert that should answer each row, shape (n,)."""
        ...

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Posterior over experts, shape (n, p)."""
        ...

    def rank(self, X: Any) -> NDArray[Any]:
        """Experts of each row from best to worst, shape (n, p)."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the constructor by name."""
        ...


def save(router: Router, folder: str | os.PathLike[str], *, card: Mapping[str, object] | None = None) -> Path:
    """Store a fitted router in a folder, which appears as a whole or not at all.

    Constructor parameters and fitted attributes are stored; private attributes must be listed in the class's tuple ``_scratch``,
    which says that prediction does not need them. A folder that exists must be empty or hold a stored router and nothing else.

    Args:
        router: A fitted router of :mod:`mildroute.routers`, or of a class registered under the entry-point group ``mildroute.routers``.
        folder: Where to; replaced if it holds a stored router.
        card: What only you know, all of it optional: ``rows`` of the training table; ``prices``, with ``date``, ``source``, ``unit`` and
            ``experts``, a price or a dict of prices for each; ``metrics``, for each a number or ``value``, ``low`` and ``high``;
            ``licence``; ``notes``.

    Returns:
        The folder.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from mildroute.routers.regression import RegressionRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> router = RegressionRouter().fit(X, costs)
        >>> folder = save(router, Path(tempfile.mkdtemp()) / "router", card={"rows": 40})
        >>> sorted(path.name for path in folder.iterdir())
        ['CARD.md', 'router.json', 'weights.safetensors']
    """
    if getattr(router, "experts_", None) is None:
        raise ArtifactError(f"only a fitted router can be stored, got a {type(router).__name__} without experts_; call fit first.")
    target = Path(folder)
    tensors: dict[str, NDArray[Any]] = {}
    check_replaceable(target)
    tree = encode(router, ("router",), tensors)
    weights = tensors_to_bytes(tensors)
    entry = {"sha256": hashlib.sha256(weights).hexdigest(), "tensors": describe(tensors)}
    manifest = manifest_of(router, tree, entry, card)
    check_router(router, manifest)
    text = card_text(manifest).encode(errors="backslashreplace")
    write_folder(target, {_MANIFEST: manifest_to_bytes(manifest, limit=_LARGEST_MANIFEST), _WEIGHTS: weights, _CARD: text})
    return target


def load_router(folder: str | os.PathLike[str], *, weights_limit: int = 4 << 30) -> Router:
    """Rebuild a stored router, which then predicts bit for bit as before.

    Nothing from the folder is executed, and no module that it names is imported: it may name only classes of
    :mod:`mildroute.routers` and those that installed distributions registered. Digests guard against accidents; they are no
    signature, so trust the numbers as far as their source.

    Args:
        folder: What :func:`save` wrote.
        weights_limit: Largest weights file that is read, in bytes.

    Returns:
        The router.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from mildroute.routers.regression import RegressionRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> router = RegressionRouter().fit(X, costs)
        >>> load_router(save(router, Path(tempfile.mkdtemp()) / "router")).predict([[0.0], [1.0]])
        array([0, 1])
    """
    home = Path(folder)
    manifest = read_manifest(home)
    weights = read_file(home, _WEIGHTS, limit=weights_limit)
    if hashlib.sha256(weights).hexdigest() != manifest["weights"]["sha256"]:
        raise ArtifactError(f"{_WEIGHTS} in {home} must be the file that was stored, but its sha256 differs; copy the artifact again.")
    tensors = tensors_from_bytes(weights, manifest["weights"]["tensors"])
    router: Router = decode(manifest["router"], tensors)
    if tensors:
        raise ArtifactError(f"every tensor must belong to the router, got {sorted(tensors)!r:.200} besides; store the router again.")
    check_router(router, manifest)
    return router


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``router.json`` says about a stored router, checked against its digest; the weights are not read.

    Example:
        >>> read_manifest("no such folder")
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: no such folder must be a folder with a readable router.json, got: No such file or directory.
    """
    manifest = parse_document(read_file(Path(folder), _MANIFEST, limit=_LARGEST_MANIFEST))
    check_manifest(manifest)
    return manifest


def check_replaceable(folder: str | os.PathLike[str]) -> None:
    """Refuse to write over anything but an empty folder, or a stored router of any schema without other files.

    Example:
        >>> check_replaceable("a/new/folder")
    """
    target = Path(folder)
    names = names_in(target)
    if names and (names - {_MANIFEST, _WEIGHTS, _CARD} or not _is_stored_router(target)):
        raise ArtifactError(
            f"{target} must be new, empty or a stored router without other files, got {sorted(names)!r:.200}; choose another folder."
        )


def _is_stored_router(folder: Path) -> bool:
    try:
        manifest = parse_document(read_file(folder, _MANIFEST, limit=_LARGEST_MANIFEST))
    except ArtifactError:
        return False
    return manifest.get("kind") == KIND
