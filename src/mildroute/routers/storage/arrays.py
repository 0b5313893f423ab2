"""Arrays as nodes of the stored tree: numbers go to named tensors, strings into the tree."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArtifactError
from mildroute.routers.storage.layout import check_shape, strides_of, with_strides
from mildroute.routers.storage.tensors import DTYPES

__all__ = ["array_from_node", "array_to_node"]

_LARGEST_TEXT = 1 << 26
"""Characters that a string array may take once every entry is as wide as the longest."""


def array_to_node(array: NDArray[Any], path: Sequence[str], tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Put an array's numbers into ``tensors`` and return the node that refers to them; strings are in the node itself.

    Example:
        >>> tensors = {}
        >>> array_to_node(np.zeros(2), ["router", "weights_"], tensors), sorted(tensors)
        ({'$': 'array', 'tensor': 'router.weights_'}, ['router.weights_'])
    """
    if array.dtype.kind in "OU":
        return _strings_to_node(array, path)
    if array.dtype.name not in DTYPES.values():
        raise ArtifactError(
            f"{'.'.join(path)} must have numbers, truth values or strings, got dtype {array.dtype}; convert it, or list it in `_scratch`."
        )
    name = _free_name(path, tensors)
    tensors[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    strides = strides_of(array)
    return {"$": "array", "tensor": name} | ({} if strides is None else {"strides": strides})


def array_from_node(node: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The array of a node; its tensor is taken out of ``tensors``, so that no tensor serves twice.

    Example:
        >>> array_from_node({"$": "array", "tensor": "a"}, {"a": np.ones(2)})
        array([1., 1.])
    """
    if node.get("$") == "strings":
        return _strings_from_node(node)
    name, strides = node.get("tensor"), node.get("strides")
    if not isinstance(name, str) or name not in tensors:
        raise ArtifactError(f"router.json refers to tensor {name!r:.80}, which is missing or already taken; the artifact is damaged.")
    array = tensors.pop(name)
    if strides is None:
        return array
    if not isinstance(strides, list):
        raise ArtifactError(f"strides must be a list, got {strides!r:.80}; the artifact is damaged.")
    return with_strides(array, strides)


def _free_name(path: Sequence[str], tensors: dict[str, NDArray[Any]]) -> str:
    name = ".".join(re.sub(r"[^A-Za-z0-9_]", "_", part)[:80] or "_" for part in path)
    while name in tensors:
        name += "_"
    return name


def _strings_to_node(array: NDArray[Any], path: Sequence[str]) -> dict[str, Any]:
    values = array.ravel().tolist()
    if not all(isinstance(value, str) for value in values):
        raise ArtifactError(f"{'.'.join(path)} must have numbers or strings, got an object array of other things; convert it.")
    kind = "object" if array.dtype.kind == "O" else "str"
    _check_text(values, kind)
    return {"$": "strings", "dtype": kind, "shape": list(array.shape), "values": [str(value) for value in values]}


def _strings_from_node(node: dict[str, Any]) -> NDArray[Any]:
    shape, values, kind = check_shape(node.get("shape")), node.get("values"), node.get("dtype")
    if not isinstance(values, list) or not all(type(value) is str for value in values) or kind not in ("object", "str"):
        raise ArtifactError("an array of strings must have a dtype and a list of strings; the artifact is damaged.")
    if len(values) != math.prod(shape):
        raise ArtifactError(f"an array of shape {shape} cannot have {len(values)} strings; the artifact is damaged.")
    _check_text(values, kind)
    return np.array(values, dtype=object if kind == "object" else np.str_).reshape(shape)


def _check_text(values: list[str], kind: str) -> None:
    widest = max(map(len, values), default=0)
    if kind == "str" and widest * len(values) > _LARGEST_TEXT:
        raise ArtifactError(f"{len(values)} strings as wide as {widest} characters do not fit in memory; use an object array.")
