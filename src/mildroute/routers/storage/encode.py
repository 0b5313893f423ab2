"""A fitted estimator as a tree that JSON can hold, and the tensors it refers to."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArtifactError
from mildroute.routers.storage.arrays import array_to_node
from mildroute.routers.storage.names import check_attributes, check_parameters, local_parameters
from mildroute.routers.storage.registry import GROUP, name_of_class

__all__ = ["encode"]

Path: TypeAlias = tuple[str, ...]
Tensors: TypeAlias = dict[str, NDArray[Any]]
Encoder: TypeAlias = Callable[[Any, Path, Tensors], Any]

_DEEPEST = 24
"""Levels of nesting; a structure that contains itself ends here."""


def encode(value: Any, path: Path, tensors: Tensors) -> Any:
    """The node that stands for a value; numbers of arrays are put into ``tensors``.

    Plain JSON values stand for themselves, everything else is an object whose ``"$"`` says what it is.

    Args:
        value: None, a number, a string, an array, an estimator that may be stored, or a list, tuple or dict of those.
        path: Where the value lies, for messages and names of tensors.
        tensors: Filled with the arrays of numbers, by name.

    Returns:
        The node.

    Example:
        >>> encode((1, math.inf), ("router", "grid"), {})
        {'$': 'tuple', 'items': [1, {'$': 'float', 'value': 'inf'}]}
    """
    if len(path) > _DEEPEST:
        raise ArtifactError(f"{'.'.join(path)} lies deeper than {_DEEPEST} levels; does something contain itself?")
    encoder: Encoder = _ENCODERS.get(type(value), _encode_other)
    return encoder(value, path, tensors)


def _encode_plain(value: Any, _path: Path, _tensors: Tensors) -> Any:
    return value


def _encode_int(value: int, path: Path, _tensors: Tensors) -> int:
    if not -(2**63) <= value < 2**64:
        raise ArtifactError(f"{'.'.join(path)} must fit in 64 bits, got an integer of {value.bit_length()}; take a smaller one.")
    return value


def _encode_float(value: float, _path: Path, _tensors: Tensors) -> Any:
    return value if math.isfinite(value) else {"$": "float", "value": str(value)}


def _encode_list(value: list[Any], path: Path, tensors: Tensors) -> list[Any]:
    return [encode(item, (*path, str(place)), tensors) for place, item in enumerate(value)]


def _encode_tuple(value: tuple[Any, ...], path: Path, tensors: Tensors) -> dict[str, Any]:
    return {"$": "tuple", "items": _encode_list(list(value), path, tensors)}


def _encode_dict(value: dict[Any, Any], path: Path, tensors: Tensors) -> dict[str, Any]:
    for key in value:
        if type(key) is not str:
            raise ArtifactError(f"{'.'.join(path)} must have strings for keys, got {key!r:.80}; convert them with str().")
    return {"$": "dict", "items": {key: encode(item, (*path, key), tensors) for key, item in value.items()}}


def _refuse_function(value: FunctionType, path: Path, _tensors: Tensors) -> Any:
    raise ArtifactError(
        f"{'.'.join(path)} must not be a function, got {value.__name__}: an artifact holds no code; register it as an entry point, such "
        "as one of the group 'mildroute.losses', and give its name."
    )


def _encode_other(value: Any, path: Path, tensors: Tensors) -> dict[str, Any]:
    if isinstance(value, np.generic):
        return {"$": "scalar", "array": array_to_node(np.asarray(value), path, tensors)}
    name = name_of_class(type(value))
    if name is not None:
        return _encode_estimator(value, name, path, tensors)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise ArtifactError(
        f"{'.'.join(path)} must be None, a number, a string, an array, a list, tuple or dict of those, or a class of mildroute.routers "
        f"or of the entry-point group {GROUP!r}, got {kind}; keep its numbers instead, or list a private scratch attribute in `_scratch`."
    )


def _encode_estimator(value: Any, name: str, path: Path, tensors: Tensors) -> dict[str, Any]:
    cls = type(value)
    known = value.get_params(deep=False)
    scratch = getattr(cls, "_scratch", ())
    params = {key: item for key, item in known.items() if key not in local_parameters(cls)}
    attributes = {key: item for key, item in vars(value).items() if key not in known and key not in scratch}
    check_parameters(cls, params)
    check_attributes(cls, attributes)
    return {
        "$": "estimator",
        "class": name,
        "params": {key: encode(item, (*path, key), tensors) for key, item in sorted(params.items())},
        "attributes": {key: encode(item, (*path, key), tensors) for key, item in sorted(attributes.items())},
    }


_ENCODERS: dict[type[Any], Encoder] = {
    type(None): _encode_plain,
    bool: _encode_plain,
    str: _encode_plain,
    int: _encode_int,
    float: _encode_float,
    list: _encode_list,
    tuple: _encode_tuple,
    dict: _encode_dict,
    np.ndarray: array_to_node,
    FunctionType: _refuse_function,
}
