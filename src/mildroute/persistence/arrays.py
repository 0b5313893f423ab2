"""Arrays as safetensors, with their memory layout."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as to_safetensors

from mildroute.exceptions import ArtifactError

__all__ = [
    "DTYPES",
    "TENSOR_NAME",
    "array_from_node",
    "array_to_node",
    "check_shape",
    "describe",
    "strides_of",
    "tensors_from_bytes",
    "tensors_to_bytes",
    "with_strides",
]


# Memory layout of an array. Linear algebra rounds differently on another layout, so a stored
# router must get its own back.


# Bound of an array's elements, also of one that is empty along another axis.
_LARGEST = 1 << 40
# Gaps may stretch an array to this many times its size, or to :data:`_SMALL` bytes: a small file
# must not fill the memory.
_SPARSEST = 64
_SMALL = 1 << 16


def strides_of(array: NDArray[np.generic]) -> list[int] | None:
    """Strides in elements, or none where the array lies row by row without gaps."""
    plain = [math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
    strides = [stride // array.itemsize for stride in array.strides]
    if [stride * array.itemsize for stride in strides] != list(array.strides):
        raise ArtifactError(
            f"strides must be whole elements, got {array.strides} of {array.itemsize} bytes each;"
            " copy the array."
        )
    if array.size == 0 or strides == plain:
        return None
    _check_strides(array.shape, strides, array.itemsize)
    return strides


def with_strides(array: NDArray[np.generic], strides: list[int]) -> NDArray[np.generic]:
    """The same values under other strides, given in elements."""
    _check_strides(array.shape, strides, array.itemsize)
    if array.size == 0:
        return array
    below = sum(
        -stride * (size - 1)
        for size, stride in zip(array.shape, strides, strict=True)
        if stride < 0
    )
    memory = np.zeros(_span(array.shape, strides), dtype=array.dtype)
    view = as_strided(memory[below:], array.shape, [stride * array.itemsize for stride in strides])
    view[...] = array
    return view


def check_shape(shape: object) -> tuple[int, ...]:
    """A shape read from a file, as a tuple, refused where NumPy could not hold it."""
    if (
        not isinstance(shape, list)
        or len(shape) > 32
        or not all(type(size) is int and 0 <= size <= _LARGEST for size in shape)
    ):
        raise ArtifactError(
            f"a shape must be a list of sizes, got {shape!r:.80}; the artifact is damaged."
        )
    if math.prod(max(size, 1) for size in shape) > _LARGEST:
        raise ArtifactError(
            f"an array may have at most {_LARGEST} elements, got shape {shape}; the artifact is"
            " damaged."
        )
    return tuple(shape)


def _span(shape: tuple[int, ...], strides: list[int]) -> int:
    return 1 + sum(
        abs(stride) * max(size - 1, 0) for size, stride in zip(shape, strides, strict=True)
    )


def _check_strides(shape: tuple[int, ...], strides: list[int], itemsize: int) -> None:
    fits = len(strides) == len(shape) and all(
        type(stride) is int and abs(stride) <= _LARGEST for stride in strides
    )
    if not fits or _span(shape, strides) > max(_SMALL // itemsize, _SPARSEST * math.prod(shape)):
        raise ArtifactError(
            f"an array of shape {shape} may not have strides {strides!r:.80}; make it contiguous"
            " with numpy.ascontiguousarray."
        )


# The weights file: safetensors bytes, checked before and after they are parsed.


# NumPy's name of each dtype that is stored, by its name in safetensors.
DTYPES: Mapping[str, str] = {
    "BOOL": "bool",
    **{
        f"{letter}{bits}": f"{word}{bits}"
        for letter, word in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
}

# What a tensor may be called: dotted words.
TENSOR_NAME = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")

_LARGEST_HEADER = 64 << 20


def describe(tensors: Mapping[str, NDArray[Any]]) -> dict[str, list[Any]]:
    """Shape and dtype of each tensor."""
    return {
        name: [list(tensor.shape), tensor.dtype.name] for name, tensor in sorted(tensors.items())
    }


def tensors_to_bytes(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Tensors as a safetensors file; the same tensors give the same bytes."""
    return to_safetensors(dict(tensors))


def tensors_from_bytes(data: bytes, described: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Tensors of a safetensors file, refused unless they are exactly those described."""
    _check_header(data)
    try:
        found = dict(deserialize(data))  # type: ignore[no-untyped-call]
    except SafetensorError as broken:
        raise ArtifactError(
            f"weights.safetensors must be a safetensors file, got: {broken}; copy the artifact"
            " again."
        ) from broken
    if set(found) != set(described):
        odd = sorted(set(found) ^ set(described))
        raise ArtifactError(
            "weights.safetensors must have the tensors that router.json lists, but they differ in"
            f" {odd!r:.200}."
        )
    return {name: _tensor(name, view, described[name]) for name, view in found.items()}


def _check_header(data: bytes) -> None:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_LARGEST_HEADER, len(data) - 8):
        raise ArtifactError(
            f"the header of weights.safetensors must fit in its file of {len(data)} bytes and in"
            f" {_LARGEST_HEADER} bytes, got a length of {length}; copy the artifact again."
        )


def _tensor(name: str, view: Mapping[str, Any], described: object) -> NDArray[Any]:
    shape, dtype = check_shape(view["shape"]), DTYPES.get(view["dtype"])
    if not TENSOR_NAME.fullmatch(name):
        raise ArtifactError(
            f"names of tensors must be words with dots between, got {name!r:.80}; store the router"
            " again."
        )
    if dtype is None or described != [list(shape), dtype]:
        found = [list(shape), view["dtype"]]
        raise ArtifactError(
            f"tensor {name!r:.80} must be {described!r:.80} as router.json says, got {found}; copy"
            " the artifact again."
        )
    if dtype == "bool" and np.frombuffer(view["data"], dtype=np.uint8).max(initial=0) > 1:
        raise ArtifactError(
            f"tensor {name!r} must have truth values of 0 or 1, got a larger byte; copy the"
            " artifact again."
        )
    return np.frombuffer(view["data"], dtype=dtype).reshape(shape)


# Arrays as nodes of the stored tree: numbers go to named tensors, strings into the tree.


# Characters that a string array may take once every entry is as wide as the longest.
_LARGEST_TEXT = 1 << 26


def array_to_node(
    array: NDArray[Any], path: Sequence[str], tensors: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Put an array's numbers into ``tensors`` and return the node that refers to them.

    Strings are in the node itself.
    """
    if array.dtype.kind in "OU":
        return _strings_to_node(array, path)
    if array.dtype.name not in DTYPES.values():
        raise ArtifactError(
            f"{'.'.join(path)} must have numbers, truth values or strings, got dtype {array.dtype};"
            " convert it, or list it in `_transient`."
        )
    name = _free_name(path, tensors)
    tensors[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    strides = strides_of(array)
    return {"$": "array", "tensor": name} | ({} if strides is None else {"strides": strides})


def array_from_node(node: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The array of a node.

    Its tensor is taken out of ``tensors``, so that no tensor serves twice.
    """
    if node.get("$") == "strings":
        return _strings_from_node(node)
    name, strides = node.get("tensor"), node.get("strides")
    if not isinstance(name, str) or name not in tensors:
        raise ArtifactError(
            f"router.json refers to tensor {name!r:.80}, which is missing or already taken; the"
            " artifact is damaged."
        )
    array = tensors.pop(name)
    if strides is None:
        return array
    if not isinstance(strides, list):
        raise ArtifactError(
            f"strides must be a list, got {strides!r:.80}; the artifact is damaged."
        )
    return with_strides(array, strides)


def _free_name(path: Sequence[str], tensors: dict[str, NDArray[Any]]) -> str:
    name = ".".join(re.sub(r"[^A-Za-z0-9_]", "_", part)[:80] or "_" for part in path)
    while name in tensors:
        name += "_"
    return name


def _strings_to_node(array: NDArray[Any], path: Sequence[str]) -> dict[str, Any]:
    values = array.ravel().tolist()
    if not all(isinstance(value, str) for value in values):
        raise ArtifactError(
            f"{'.'.join(path)} must have numbers or strings, got an object array of other things;"
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
    shape, values, kind = check_shape(node.get("shape")), node.get("values"), node.get("dtype")
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
    if kind == "str" and widest * len(values) > _LARGEST_TEXT:
        raise ArtifactError(
            f"{len(values)} strings as wide as {widest} characters do not fit in memory; use an"
            " object array."
        )
