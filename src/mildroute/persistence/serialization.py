"""Conversion of fitted estimators to JSON trees, which refer to tensors, and back.

Decoding runs no constructor and imports nothing that the tree names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArtifactError
from mildroute.persistence.arrays import array_from_node, array_to_node
from mildroute.persistence.attributes import (
    check_attributes,
    check_parameters,
    local_parameters,
    parameters_of,
)
from mildroute.persistence.registry import GROUP, resolve_class, storage_name

__all__ = ["decode", "encode"]

Node: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]
Path: TypeAlias = tuple[str, ...]
Encoder: TypeAlias = Callable[[Any, Path, Tensors], Any]

# Maximum levels of nesting, which also stops a structure that contains itself.
_DEEPEST = 24
_UNUSUAL_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def encode(value: Any, path: Path, tensors: Tensors) -> Any:
    """Return the node of a value and add the numbers of its arrays to ``tensors``.

    The node of a plain JSON value is the value itself. Any other node is an object whose ``"$"``
    names its kind.

    Args:
        value: `None`, a number, a string, an array, an estimator that may be stored, or a list,
            tuple or dict of those.
        path: Position of the value in the tree, for messages and names of tensors.
        tensors: Arrays of numbers by name, to which new ones are added.
    """
    if len(path) > _DEEPEST:
        raise ArtifactError(
            f"{'.'.join(path)} is nested deeper than {_DEEPEST} levels; check for a"
            " circular reference."
        )
    encoder: Encoder = _ENCODERS.get(type(value), _encode_other)
    return encoder(value, path, tensors)


def _encode_json_value(value: Any, _path: Path, _tensors: Tensors) -> Any:
    return value


def _encode_int(value: int, path: Path, _tensors: Tensors) -> int:
    if not -(2**63) <= value < 2**64:
        raise ArtifactError(
            f"{'.'.join(path)} must fit in 64 bits, got an integer of {value.bit_length()}; use a"
            " smaller one."
        )
    return value


def _encode_float(value: float, _path: Path, _tensors: Tensors) -> Any:
    return value if math.isfinite(value) else {"$": "float", "value": str(value)}


def _encode_list(value: list[Any], path: Path, tensors: Tensors) -> list[Any]:
    return [encode(item, (*path, str(index)), tensors) for index, item in enumerate(value)]


def _encode_tuple(value: tuple[Any, ...], path: Path, tensors: Tensors) -> dict[str, Any]:
    return {"$": "tuple", "items": _encode_list(list(value), path, tensors)}


def _encode_dict(value: dict[Any, Any], path: Path, tensors: Tensors) -> dict[str, Any]:
    for key in value:
        if type(key) is not str:
            raise ArtifactError(
                f"{'.'.join(path)} must have strings as keys, got {key!r:.80}; convert them with"
                " str()."
            )
    return {
        "$": "dict",
        "items": {key: encode(item, (*path, key), tensors) for key, item in value.items()},
    }


def _refuse_function(value: FunctionType, path: Path, _tensors: Tensors) -> Any:
    raise ArtifactError(
        f"{'.'.join(path)} must not be a function, got {value.__name__}: an artifact contains no"
        " code; register it as an entry point, for example of the group 'mildroute.losses', and"
        " pass its name."
    )


def _encode_other(value: Any, path: Path, tensors: Tensors) -> dict[str, Any]:
    if isinstance(value, np.generic):
        return {"$": "scalar", "array": array_to_node(np.asarray(value), path, tensors)}
    name = storage_name(type(value))
    if name is not None:
        return _encode_estimator(value, name, path, tensors)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise ArtifactError(
        f"{'.'.join(path)} must be None, a number, a string, an array, a list, tuple or dict of"
        f" those, or a class of mildroute.routers or of the entry-point group {GROUP!r}, got"
        f" {kind}; store its numbers instead, or list a private attribute in `_transient`."
    )


def _encode_estimator(value: Any, name: str, path: Path, tensors: Tensors) -> dict[str, Any]:
    cls = type(value)
    parameters = value.get_params(deep=False)
    transient = getattr(cls, "_transient", ())
    params = {key: item for key, item in parameters.items() if key not in local_parameters(cls)}
    attributes = {
        key: item
        for key, item in vars(value).items()
        if key not in parameters and key not in transient
    }
    check_parameters(cls, params)
    check_attributes(cls, attributes)
    return {
        "$": "estimator",
        "class": name,
        "params": {
            key: encode(item, (*path, key), tensors) for key, item in sorted(params.items())
        },
        "attributes": {
            key: encode(item, (*path, key), tensors) for key, item in sorted(attributes.items())
        },
    }


_ENCODERS: dict[type[Any], Encoder] = {
    type(None): _encode_json_value,
    bool: _encode_json_value,
    str: _encode_json_value,
    int: _encode_int,
    float: _encode_float,
    list: _encode_list,
    tuple: _encode_tuple,
    dict: _encode_dict,
    np.ndarray: array_to_node,
    FunctionType: _refuse_function,
}


def decode(node: Any, tensors: Tensors) -> Any:
    """Return the value of a node, and remove the tensors to which it refers from ``tensors``."""
    if isinstance(node, list):
        return [decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    decoder = _DECODERS.get(_field(node, "$", str))
    if decoder is None:
        raise ArtifactError(
            f"a node of router.json must be one of {', '.join(_DECODERS)}, got {node['$']!r:.80};"
            " upgrade mildroute."
        )
    return decoder(node, tensors)


def _field(node: Node, name: str, kind: type[Any]) -> Any:
    value = node.get(name)
    if type(value) is not kind:
        raise ArtifactError(
            f"a node of router.json must have a {kind.__name__} {name!r}, got {value!r:.80}; the"
            " artifact is damaged."
        )
    return value


def _decode_tuple(node: Node, tensors: Tensors) -> tuple[Any, ...]:
    return tuple(decode(item, tensors) for item in _field(node, "items", list))


def _decode_dict(node: Node, tensors: Tensors) -> dict[str, Any]:
    return _decode_items(_field(node, "items", dict), tensors)


def _decode_items(items: Node, tensors: Tensors) -> dict[str, Any]:
    return {key: decode(item, tensors) for key, item in items.items()}


def _decode_float(node: Node, _tensors: Tensors) -> float:
    value = _field(node, "value", str)
    if value not in _UNUSUAL_FLOATS:
        raise ArtifactError(
            f"an unusual float must be nan, inf or -inf, got {value!r:.80}; the artifact is"
            " damaged."
        )
    return _UNUSUAL_FLOATS[value]


def _decode_scalar(node: Node, tensors: Tensors) -> Any:
    array = array_from_node(_field(node, "array", dict), tensors)
    if array.ndim:
        raise ArtifactError(
            f"a scalar must have no axes, got shape {array.shape}; the artifact is damaged."
        )
    return array[()]


def _decode_estimator(node: Node, tensors: Tensors) -> Any:
    cls = resolve_class(_field(node, "class", str))
    params = _field(node, "params", dict)
    attributes = _field(node, "attributes", dict)
    check_parameters(cls, params)
    check_attributes(cls, attributes)
    estimator = object.__new__(cls)
    # Write to the instance's dictionary, so that neither the constructor nor a setter of the class
    # runs on values from a file.
    vars(estimator).update(
        {
            **parameters_of(cls),
            **_decode_items(params, tensors),
            **_decode_items(attributes, tensors),
        }
    )
    return estimator


_DECODERS: dict[str, Callable[[Node, Tensors], Any]] = {
    "array": array_from_node,
    "dict": _decode_dict,
    "estimator": _decode_estimator,
    "float": _decode_float,
    "scalar": _decode_scalar,
    "strings": array_from_node,
    "tuple": _decode_tuple,
}
