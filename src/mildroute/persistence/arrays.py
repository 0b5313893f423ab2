"""Arrays as nodes of the stored tree: numbers become named tensors, strings remain in the tree."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArtifactError
from mildroute.persistence.weights import DTYPES, check_shape

__all__ = ["array_from_node", "array_to_node"]

# Maximum number of characters of a string array, whose entries are all as wide as the longest.
_MAX_CHARACTERS = 1 << 26


def array_to_node(
    array: NDArray[Any], path: Sequence[str], tensors: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Add an array's numbers to ``tensors`` and return the node that refers to them.

    Tensors are in row-major order. Strings are part of the node itself.
    """
    if array.dtype.kind in "OU":
        return _strings_to_node(array, path)
    if array.dtype.name not in DTYPES.values():
        raise ArtifactError(
            f"{'.'.join(path)} must have numbers, booleans or strings, got dtype {array.dtype};"
            " convert it, or list it in `_transient`."
        )
    name = _free_name(path, tensors)
    tensors[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    return {"$": "array", "tensor": name}


def array_from_node(node: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the array of a node and remove its tensor from ``tensors``, so that none is reused."""
    if node.get("$") == "strings":
        return _strings_from_node(node)
    name = node.get("tensor")
    if not isinstance(name, str) or name not in tensors:
        raise ArtifactError(
            f"router.json refers to tensor {name!r:.80}, which is missing or already taken; the"
            " artifact is damaged."
        )
    return tensors.pop(name)


def _free_name(path: Sequence[str], tensors: dict[str, NDArray[Any]]) -> str:
    name = ".".join(re.sub(r"[^A-Za-z0-9_]", "_", part)[:80] or "_" for part in path)
    while name in tensors:
        name += "_"
    return name


def _strings_to_node(array: NDArray[Any], path: Sequence[str]) -> dict[str, Any]:
    values = array.ravel().tolist()
    if not all(isinstance(value, str) for value in values):
        raise ArtifactError(
            f"{'.'.join(path)} must have numbers or strings, got an object array of other values;"
            " convert it."
        )
    kind = "object" if array.dtype.kind == "O" else "str"
    _check_text(values, kind)
    return {
        "$": "strings",
        "dtype": kind,
        "shape": list(array.shape),
        "values": [str(value) for value in values],
    }


def _strings_from_node(node: dict[str, Any]) -> NDArray[Any]:
    shape = check_shape(node.get("shape"))
    values = node.get("values")
    kind = node.get("dtype")
    if (
        not isinstance(values, list)
        or not all(type(value) is str for value in values)
        or kind not in ("object", "str")
    ):
        raise ArtifactError(
            "an array of strings must have a dtype and a list of strings; the artifact is damaged."
        )
    if len(values) != math.prod(shape):
        raise ArtifactError(
            f"an array of shape {shape} cannot have {len(values)} strings; the artifact is damaged."
        )
    _check_text(values, kind)
    return np.array(values, dtype=object if kind == "object" else np.str_).reshape(shape)


def _check_text(values: list[str], kind: str) -> None:
    widest = max(map(len, values), default=0)
    if kind == "str" and widest * len(values) > _MAX_CHARACTERS:
        raise ArtifactError(
            f"{len(values)} strings as wide as {widest} characters do not fit in memory; use an"
            " object array."
        )
