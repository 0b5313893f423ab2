"""The way back from a tree and its tensors to a fitted estimator. It runs no constructor and imports nothing that the tree names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from numpy.typing import NDArray

from mildroute.errors import ArtifactError
from mildroute.routers.storage.arrays import array_from_node
from mildroute.routers.storage.names import check_attributes, check_parameters, parameters_of
from mildroute.routers.storage.registry import class_named

__all__ = ["decode"]

Node: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]

_UNUSUAL_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def decode(node: Any, tensors: Tensors) -> Any:
    """The value that a node stands for; the tensors it refers to are taken out of ``tensors``.

    Example:
        >>> decode({"$": "tuple", "items": [1, {"$": "float", "value": "inf"}]}, {})
        (1, inf)
    """
    if isinstance(node, list):
        return [decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    decoder = _DECODERS.get(_field(node, "$", str))
    if decoder is None:
        raise ArtifactError(f"a node of router.json must be one of {', '.join(_DECODERS)}, got {node['$']!r:.80}; upgrade mildroute.")
    return decoder(node, tensors)


def _field(node: Node, name: str, kind: type[Any]) -> Any:
    value = node.get(name)
    if type(value) is not kind:
        raise ArtifactError(f"a node of router.json must have a {kind.__name__} {name!r}, got {value!r:.80}; the artifact is damaged.")
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
        raise ArtifactError(f"an unusual float must be nan, inf or -inf, got {value!r:.80}; the artifact is damaged.")
    return _UNUSUAL_FLOATS[value]


def _decode_scalar(node: Node, tensors: Tensors) -> Any:
    array = array_from_node(_field(node, "array", dict), tensors)
    if array.ndim:
        raise ArtifactError(f"a scalar must have no axes, got shape {array.shape}; the artifact is damaged.")
    return array[()]


def _decode_estimator(node: Node, tensors: Tensors) -> Any:
    cls = class_named(_field(node, "class", str))
    params, attributes = _field(node, "params", dict), _field(node, "attributes", dict)
    check_parameters(cls, params)
    check_attributes(cls, attributes)
    estimator = object.__new__(cls)
    # Straight into the instance's dictionary: neither the constructor nor a setter of the class gets to see values from a file.
    vars(estimator).update({**parameters_of(cls), **_decode_items(params, tensors), **_decode_items(attributes, tensors)})
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
