"""The weights file: safetensors bytes, checked before and after they are parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as to_safetensors

from mildroute.errors import ArtifactError
from mildroute.routers.storage.layout import check_shape

__all__ = ["DTYPES", "TENSOR_NAME", "describe", "tensors_from_bytes", "tensors_to_bytes"]

DTYPES: Mapping[str, str] = {
    "BOOL": "bool",
    **{f"{letter}{bits}": f"{word}{bits}" for letter, word in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
"""NumPy's name of each dtype that is stored, by its name in safetensors."""

TENSOR_NAME = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
"""What a tensor may be called: dotted words."""

_LARGEST_HEADER = 64 << 20


def describe(tensors: Mapping[str, NDArray[Any]]) -> dict[str, list[Any]]:
    """Shape and dtype of each tensor.

    Example:
        >>> describe({"a": np.zeros((2, 3), dtype=np.float32)})
        {'a': [[2, 3], 'float32']}
    """
    return {name: [list(tensor.shape), tensor.dtype.name] for name, tensor in sorted(tensors.items())}


def tensors_to_bytes(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Tensors as a safetensors file; the same tensors give the same bytes.

    Example:
        >>> len(tensors_to_bytes({}))
        16
    """
    return to_safetensors(dict(tensors))


def tensors_from_bytes(data: bytes, described: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Tensors of a safetensors file, refused unless they are exactly those described.

    Example:
        >>> tensors_from_bytes(tensors_to_bytes({"a": np.ones(2)}), {"a": [[2], "float64"]})
        {'a': array([1., 1.])}
    """
    _check_header(data)
    try:
        found = dict(deserialize(data))  # type: ignore[no-untyped-call]
    except SafetensorError as broken:
        raise ArtifactError(f"weights.safetensors must be a safetensors file, got: {broken}; copy the artifact again.") from broken
    if set(found) != set(described):
        odd = sorted(set(found) ^ set(described))
        raise ArtifactError(f"weights.safetensors must have the tensors that router.json lists, but they differ in {odd!r:.200}.")
    return {name: _tensor(name, view, described[name]) for name, view in found.items()}


def _check_header(data: bytes) -> None:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_LARGEST_HEADER, len(data) - 8):
        raise ArtifactError(
            f"the header of weights.safetensors must fit in its file of {len(data)} bytes and in {_LARGEST_HEADER} bytes, "
            f"got a length of {length}; copy the artifact again."
        )


def _tensor(name: str, view: Mapping[str, Any], described: object) -> NDArray[Any]:
    shape, dtype = check_shape(view["shape"]), DTYPES.get(view["dtype"])
    if not TENSOR_NAME.fullmatch(name):
        raise ArtifactError(f"names of tensors must be words with dots between, got {name!r:.80}; store the router again.")
    if dtype is None or described != [list(shape), dtype]:
        found = [list(shape), view["dtype"]]
        raise ArtifactError(f"tensor {name!r:.80} must be {described!r:.80} as router.json says, got {found}; copy the artifact again.")
    if dtype == "bool" and np.frombuffer(view["data"], dtype=np.uint8).max(initial=0) > 1:
        raise ArtifactError(f"tensor {name!r} must have truth values of 0 or 1, got a larger byte; copy the artifact again.")
    return np.frombuffer(view["data"], dtype=dtype).reshape(shape)
