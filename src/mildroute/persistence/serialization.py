"""Estimators as a JSON tree, and which of their attributes may be stored."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArtifactError
from mildroute.persistence.arrays import array_from_node, array_to_node
from mildroute.persistence.registry import GROUP, resolve_class, storage_name

__all__ = [
    "check_attributes",
    "check_parameters",
    "decode",
    "encode",
    "local_parameters",
    "parameters_of",
]


# Which names of a class an artifact may fill: constructor parameters and fitted attributes, never
# behavior.


_FITTED = re.compile(r"[a-zA-Z](?:[A-Za-z0-9_]*[A-Za-z0-9])?_")


def parameters_of(cls: type[Any]) -> dict[str, Any]:
    """Names of the constructor's parameters and their defaults.

    ``inspect.Parameter.empty`` where there is none.
    """
    constructor = cls.__init__
    if constructor is object.__init__:
        return {}
    _, *given = inspect.signature(constructor).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name: parameter.default for parameter in given if parameter.kind in named}


def local_parameters(cls: type[Any]) -> tuple[str, ...]:
    """Parameters that speak of this machine, such as a folder for a cache.

    Not stored, and never taken from an artifact.

    A class names them in its tuple ``_machine_local``; a rebuilt estimator gets their defaults.
    """
    return tuple(getattr(cls, "_machine_local", ()))


def check_parameters(cls: type[Any], names: Iterable[str]) -> None:
    """Refuse names that are no parameters of the constructor, and a lack of those it needs.

    It needs those that have no default.
    """
    known, given = parameters_of(cls), set(names)
    for name in sorted(given - set(known)):
        raise ArtifactError(
            f"{cls.__name__} has no parameter {name!r:.80}; it was stored by another version or"
            " changed by hand."
        )
    for name in sorted(given & set(local_parameters(cls))):
        raise ArtifactError(
            f"{name!r} of {cls.__name__} belongs to the machine that it runs on; an artifact may"
            " not set it."
        )
    for name, default in known.items():
        if name not in given and default is inspect.Parameter.empty:
            raise ArtifactError(
                f"{cls.__name__} needs the parameter {name!r}, which is not stored; store the"
                " router again."
            )
        _check_is_data(cls, name)


def check_attributes(cls: type[Any], names: Iterable[str]) -> None:
    """Refuse names that are not fitted attributes.

    They end with one underscore, start with a letter and are no part of the class.
    """
    for name in names:
        if not _FITTED.fullmatch(name):
            raise ArtifactError(
                f"{name!r:.80} of {cls.__name__} is no fitted attribute: its name must start with a"
                " letter and end with one underscore; rename it, or list private scratch in the"
                " class's tuple `_transient` so that it is not stored."
            )
        if name in parameters_of(cls):
            raise ArtifactError(
                f"{name!r:.80} of {cls.__name__} is a parameter and cannot be an attribute too;"
                " rename one of them."
            )
        _check_is_data(cls, name)


def _check_is_data(cls: type[Any], name: str) -> None:
    found = inspect.getattr_static(cls, name, None)
    if callable(found) or hasattr(type(found), "__get__"):
        raise ArtifactError(
            f"{name!r:.80} of {cls.__name__} is a method or property; an artifact may hold data"
            " only, so rename it."
        )


# The way back from a tree and its tensors to a fitted estimator. It runs no constructor and
# imports nothing that the tree names.


Node: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]

_UNUSUAL_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def decode(node: Any, tensors: Tensors) -> Any:
    """The value that a node stands for; the tensors it refers to are taken out of ``tensors``."""
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
    params, attributes = _field(node, "params", dict), _field(node, "attributes", dict)
    check_parameters(cls, params)
    check_attributes(cls, attributes)
    estimator = object.__new__(cls)
    # Straight into the instance's dictionary: neither the constructor nor a setter of the class
    # gets to see values from a file.
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


# A fitted estimator as a tree that JSON can hold, and the tensors it refers to.


Path: TypeAlias = tuple[str, ...]
Encoder: TypeAlias = Callable[[Any, Path, Tensors], Any]

# Levels of nesting; a structure that contains itself ends here.
_DEEPEST = 24


def encode(value: Any, path: Path, tensors: Tensors) -> Any:
    """The node that stands for a value; numbers of arrays are put into ``tensors``.

    Plain JSON values stand for themselves, everything else is an object whose ``"$"`` says what it
    is.

    Args:
        value: None, a number, a string, an array, an estimator that may be stored, or a list, tuple
            or dict of those.
        path: Where the value lies, for messages and names of tensors.
        tensors: Filled with the arrays of numbers, by name.
    """
    if len(path) > _DEEPEST:
        raise ArtifactError(
            f"{'.'.join(path)} lies deeper than {_DEEPEST} levels; does something contain itself?"
        )
    encoder: Encoder = _ENCODERS.get(type(value), _encode_other)
    return encoder(value, path, tensors)


def _encode_plain(value: Any, _path: Path, _tensors: Tensors) -> Any:
    return value


def _encode_int(value: int, path: Path, _tensors: Tensors) -> int:
    if not -(2**63) <= value < 2**64:
        raise ArtifactError(
            f"{'.'.join(path)} must fit in 64 bits, got an integer of {value.bit_length()}; take a"
            " smaller one."
        )
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
            raise ArtifactError(
                f"{'.'.join(path)} must have strings for keys, got {key!r:.80}; convert them with"
                " str()."
            )
    return {
        "$": "dict",
        "items": {key: encode(item, (*path, key), tensors) for key, item in value.items()},
    }


def _refuse_function(value: FunctionType, path: Path, _tensors: Tensors) -> Any:
    raise ArtifactError(
        f"{'.'.join(path)} must not be a function, got {value.__name__}: an artifact holds no code;"
        " register it as an entry point, such as one of the group 'mildroute.losses', and give its"
        " name."
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
        f" {kind}; keep its numbers instead, or list a private scratch attribute in `_transient`."
    )


def _encode_estimator(value: Any, name: str, path: Path, tensors: Tensors) -> dict[str, Any]:
    cls = type(value)
    known = value.get_params(deep=False)
    scratch = getattr(cls, "_transient", ())
    params = {key: item for key, item in known.items() if key not in local_parameters(cls)}
    attributes = {
        key: item for key, item in vars(value).items() if key not in known and key not in scratch
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
