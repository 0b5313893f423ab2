"""Which names of a class an artifact may fill: constructor parameters and fitted attributes, never behaviour."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from mildroute.errors import ArtifactError

__all__ = ["check_attributes", "check_parameters", "local_parameters", "parameters_of"]

_FITTED = re.compile(r"[a-zA-Z](?:[A-Za-z0-9_]*[A-Za-z0-9])?_")


def parameters_of(cls: type[Any]) -> dict[str, Any]:
    """Names of the constructor's parameters and their defaults; ``inspect.Parameter.empty`` where there is none.

    Example:
        >>> class Router:
        ...     def __init__(self, *, penalty=0.1): ...
        >>> parameters_of(Router)
        {'penalty': 0.1}
    """
    constructor = cls.__init__
    if constructor is object.__init__:
        return {}
    _, *given = inspect.signature(constructor).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name: parameter.default for parameter in given if parameter.kind in named}


def local_parameters(cls: type[Any]) -> tuple[str, ...]:
    """Parameters that speak of this machine, such as a folder for a cache: not stored, and never taken from an artifact.

    A class names them in its tuple ``_local``; each has a default, which a rebuilt estimator gets.

    Example:
        >>> local_parameters(dict)
        ()
    """
    return tuple(getattr(cls, "_local", ()))


def check_parameters(cls: type[Any], names: Iterable[str]) -> None:
    """Refuse names that are not parameters of the constructor, and a lack of those that have no default.

    Example:
        >>> check_parameters(dict, ["__class__"])
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: dict has no parameter '__class__'; it was stored by another version or changed by hand.
    """
    known, given = parameters_of(cls), set(names)
    for name in sorted(given - set(known)):
        raise ArtifactError(f"{cls.__name__} has no parameter {name!r:.80}; it was stored by another version or changed by hand.")
    for name in sorted(given & set(local_parameters(cls))):
        raise ArtifactError(f"{name!r} of {cls.__name__} belongs to the machine that it runs on; an artifact may not set it.")
    for name, default in known.items():
        if name not in given and default is inspect.Parameter.empty:
            raise ArtifactError(f"{cls.__name__} needs the parameter {name!r}, which is not stored; store the router again.")
        _check_is_data(cls, name)


def check_attributes(cls: type[Any], names: Iterable[str]) -> None:
    """Refuse names that are not fitted attributes: they end with one underscore, start with a letter and are no part of the class.

    Example:
        >>> check_attributes(dict, ["weights_"])
        >>> check_attributes(dict, ["__dict__"])
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: '__dict__' of dict is no fitted attribute.
    """
    for name in names:
        if not _FITTED.fullmatch(name):
            raise ArtifactError(
                f"{name!r:.80} of {cls.__name__} is no fitted attribute: its name must start with a letter and end with one underscore; "
                "rename it, or list private scratch in the class's tuple `_scratch` so that it is not stored."
            )
        if name in parameters_of(cls):
            raise ArtifactError(f"{name!r:.80} of {cls.__name__} is a parameter and cannot be an attribute too; rename one of them.")
        _check_is_data(cls, name)


def _check_is_data(cls: type[Any], name: str) -> None:
    found = inspect.getattr_static(cls, name, None)
    if callable(found) or hasattr(type(found), "__get__"):
        raise ArtifactError(f"{name!r:.80} of {cls.__name__} is a method or property; an artifact may hold data only, so rename it.")
