"""The names that an artifact may set: constructor parameters and fitted attributes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from mildroute.exceptions import ArtifactError

__all__ = [
    "check_attributes",
    "check_parameters",
    "local_parameters",
    "parameters_of",
]

_FITTED = re.compile(r"[a-zA-Z](?:[A-Za-z0-9_]*[A-Za-z0-9])?_")


def parameters_of(cls: type[Any]) -> dict[str, Any]:
    """Return the constructor's parameters, by name, with their defaults.

    The default is ``inspect.Parameter.empty`` for a parameter without one.
    """
    constructor = cls.__init__
    if constructor is object.__init__:
        return {}
    _, *parameters = inspect.signature(constructor).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        parameter.name: parameter.default for parameter in parameters if parameter.kind in named
    }


def local_parameters(cls: type[Any]) -> tuple[str, ...]:
    """Return the parameters that belong to one machine, such as the folder of a cache.

    They are neither stored in an artifact nor read from one; a loaded estimator has their defaults.
    A class lists them in its tuple ``_machine_local``.
    """
    return tuple(getattr(cls, "_machine_local", ()))


def check_parameters(cls: type[Any], names: Iterable[str]) -> None:
    """Raise unless the names are constructor parameters and include all those without defaults."""
    parameters = parameters_of(cls)
    stored = set(names)
    for name in sorted(stored - set(parameters)):
        raise ArtifactError(
            f"{cls.__name__} has no parameter {name!r:.80}; the artifact was stored by another"
            " version or edited by hand."
        )
    for name in sorted(stored & set(local_parameters(cls))):
        raise ArtifactError(
            f"{name!r} of {cls.__name__} belongs to one machine; an artifact must not set it."
        )
    for name, default in parameters.items():
        if name not in stored and default is inspect.Parameter.empty:
            raise ArtifactError(
                f"{cls.__name__} needs the parameter {name!r}, which is not stored; store the"
                " router again."
            )
        _check_is_data(cls, name)


def check_attributes(cls: type[Any], names: Iterable[str]) -> None:
    """Raise unless the names are those of fitted attributes.

    Such a name starts with a letter, ends with one underscore and is not part of the class.
    """
    for name in names:
        if not _FITTED.fullmatch(name):
            raise ArtifactError(
                f"{name!r:.80} of {cls.__name__} is not a fitted attribute: its name must start"
                " with a letter and end with one underscore; rename it, or list it in the class's"
                " tuple `_transient` so that it is not stored."
            )
        if name in parameters_of(cls):
            raise ArtifactError(
                f"{name!r:.80} of {cls.__name__} is a parameter and cannot also be an attribute;"
                " rename one of them."
            )
        _check_is_data(cls, name)


def _check_is_data(cls: type[Any], name: str) -> None:
    member = inspect.getattr_static(cls, name, None)
    if callable(member) or hasattr(type(member), "__get__"):
        raise ArtifactError(
            f"{name!r:.80} of {cls.__name__} is a method or property, but an artifact may contain"
            " only data; rename the attribute."
        )
