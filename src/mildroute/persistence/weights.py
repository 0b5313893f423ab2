"""The weights file of a stored router: safetensors, checked before and after parsing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as to_safetensors

from mildroute.exceptions import ArtifactError

__all__ = [
    "DTYPES",
    "check_shape",
    "describe",
    "tensors_from_bytes",
    "tensors_to_bytes",
]

# NumPy's name of each dtype that can be stored, by its name in safetensors.
DTYPES: Mapping[str, str] = {
    "BOOL": "bool",
    **{
        f"{letter}{bits}": f"{word}{bits}"
        for letter, word in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
}

# Words separated by dots.
_TENSOR_NAME = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")

_MAX_HEADER_BYTES = 64 << 20
# Maximum number of elements of an array, even of one that is empty along another axis.
_MAX_ELEMENTS = 1 << 40


def describe(tensors: Mapping[str, NDArray[Any]]) -> dict[str, list[Any]]:
    """Return the shape and dtype of each tensor."""
    return {
        name: [list(tensor.shape), tensor.dtype.name] for name, tensor in sorted(tensors.items())
    }


def tensors_to_bytes(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return tensors as the bytes of a safetensors file; equal tensors give equal bytes."""
    return to_safetensors(dict(tensors))


def tensors_from_bytes(data: bytes, described: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file; raise unless they match their description."""
    _check_header(data)
    try:
        views = dict(deserialize(data))  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ArtifactError(
            f"weights.safetensors must be a safetensors file, got: {error}; copy the artifact"
            " again."
        ) from error
    if set(views) != set(described):
        differing = sorted(set(views) ^ set(described))
        raise ArtifactError(
            "weights.safetensors must have the tensors that router.json lists, but they differ in"
            f" {differing!r:.200}."
        )
    return {name: _tensor(name, view, described[name]) for name, view in views.items()}


def _check_header(data: bytes) -> None:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_MAX_HEADER_BYTES, len(data) - 8):
        raise ArtifactError(
            f"the header of weights.safetensors must fit in its file of {len(data)} bytes and in"
            f" {_MAX_HEADER_BYTES} bytes, got a length of {length}; copy the artifact again."
        )


def _tensor(name: str, view: Mapping[str, Any], described: object) -> NDArray[Any]:
    shape = check_shape(view["shape"])
    dtype = DTYPES.get(view["dtype"])
    if not _TENSOR_NAME.fullmatch(name):
        raise ArtifactError(
            f"tensor names must be words separated by dots, got {name!r:.80}; store the router"
            " again."
        )
    if dtype is None or described != [list(shape), dtype]:
        raise ArtifactError(
            f"tensor {name!r:.80} must be {described!r:.80} as router.json says, got"
            f" {[list(shape), view['dtype']]}; copy the artifact again."
        )
    if dtype == "bool" and np.frombuffer(view["data"], dtype=np.uint8).max(initial=0) > 1:
        raise ArtifactError(
            f"tensor {name!r} must have booleans of 0 or 1, got a larger byte; copy the artifact"
            " again."
        )
    return np.frombuffer(view["data"], dtype=dtype).reshape(shape)


def check_shape(shape: object) -> tuple[int, ...]:
    """Return a shape read from a file as a tuple; raise if NumPy does not support it."""
    if (
        not isinstance(shape, list)
        or len(shape) > 32
        or not all(type(size) is int and 0 <= size <= _MAX_ELEMENTS for size in shape)
    ):
        raise ArtifactError(
            f"a shape must be a list of sizes, got {shape!r:.80}; the artifact is damaged."
        )
    if math.prod(max(size, 1) for size in shape) > _MAX_ELEMENTS:
        raise ArtifactError(
            f"an array may have at most {_MAX_ELEMENTS} elements, got shape {shape}; the artifact"
            " is damaged."
        )
    return tuple(shape)
