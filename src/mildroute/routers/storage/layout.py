"""Memory layout of an array. Linear algebra rounds differently on another layout, so a stored router must get its own back."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from mildroute.errors import ArtifactError

__all__ = ["check_shape", "strides_of", "with_strides"]

_LARGEST = 1 << 40
"""Bound of an array's elements, also of one that is empty along another axis."""
_SPARSEST = 64
"""Gaps may stretch an array to this many times its size, or to :data:`_SMALL` bytes: a small file must not fill the memory."""
_SMALL = 1 << 16


def strides_of(array: NDArray[np.generic]) -> list[int] | None:
    """Strides in elements, or none where the array lies row by row without gaps.

    Example:
        >>> strides_of(np.zeros((2, 3))), strides_of(np.zeros((2, 3)).T)
        (None, [1, 3])
    """
    plain = [math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
    strides = [stride // array.itemsize for stride in array.strides]
    if [stride * array.itemsize for stride in strides] != list(array.strides):
        raise ArtifactError(f"strides must be whole elements, got {array.strides} of {array.itemsize} bytes each; copy the array.")
    if array.size == 0 or strides == plain:
        return None
    _check_strides(array.shape, strides, array.itemsize)
    return strides


def with_strides(array: NDArray[np.generic], strides: list[int]) -> NDArray[np.generic]:
    """The same values under other strides, given in elements.

    Example:
        >>> with_strides(np.arange(6.0).reshape(2, 3), [1, 2]).flags.f_contiguous
        True
    """
    _check_strides(array.shape, strides, array.itemsize)
    if array.size == 0:
        return array
    below = sum(-stride * (size - 1) for size, stride in zip(array.shape, strides, strict=True) if stride < 0)
    memory = np.zeros(_span(array.shape, strides), dtype=array.dtype)
    view = as_strided(memory[below:], array.shape, [stride * array.itemsize for stride in strides])
    view[...] = array
    return view


def check_shape(shape: object) -> tuple[int, ...]:
    """A shape read from a file, as a tuple, refused where NumPy could not hold it.

    Example:
        >>> check_shape([2, 3])
        (2, 3)
    """
    if not isinstance(shape, list) or len(shape) > 32 or not all(type(size) is int and 0 <= size <= _LARGEST for size in shape):
        raise ArtifactError(f"a shape must be a list of sizes, got {shape!r:.80}; the artifact is damaged.")
    if math.prod(max(size, 1) for size in shape) > _LARGEST:
        raise ArtifactError(f"an array may have at most {_LARGEST} elements, got shape {shape}; the artifact is damaged.")
    return tuple(shape)


def _span(shape: tuple[int, ...], strides: list[int]) -> int:
    return 1 + sum(abs(stride) * max(size - 1, 0) for size, stride in zip(shape, strides, strict=True))


def _check_strides(shape: tuple[int, ...], strides: list[int], itemsize: int) -> None:
    fits = len(strides) == len(shape) and all(type(stride) is int and abs(stride) <= _LARGEST for stride in strides)
    if not fits or _span(shape, strides) > max(_SMALL // itemsize, _SPARSEST * math.prod(shape)):
        raise ArtifactError(
            f"an array of shape {shape} may not have strides {strides!r:.80}; make it contiguous with numpy.ascontiguousarray."
        )
