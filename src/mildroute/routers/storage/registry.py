"""The classes that an artifact may name; nothing else is ever built from one."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections import Counter
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from mildroute.errors import ArtifactError, MissingExtraError
from mildroute.routers.base import RouterMixin
from mildroute.routers.outlook import Outlook
from mildroute.routers.topics import TopicFeatures

__all__ = ["GROUP", "built_in_classes", "class_named", "name_of_class", "plug_ins"]

GROUP = "mildroute.routers"
"""Entry-point group under which other distributions register routers that may be stored."""


@functools.cache
def built_in_classes() -> Mapping[str, type[Any]]:
    """Every router, feature transformer and outlook defined in :mod:`mildroute.routers`, by short name.

    A module whose optional dependency is missing is left out.

    Example:
        >>> built_in_classes()["TopicFeatures"] is TopicFeatures
        True
    """
    package = importlib.import_module("mildroute.routers")
    found: dict[str, type[Any]] = {}
    for module in pkgutil.walk_packages(package.__path__, "mildroute.routers."):
        with contextlib.suppress(MissingExtraError):
            found |= _storable_classes(importlib.import_module(module.name))
    return found


def class_named(name: str) -> type[Any]:
    """The class with a short name: one of ours, or one that an installed distribution registered under :data:`GROUP`.

    Example:
        >>> class_named("os.system")
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: an artifact may hold only known classes, got 'os.system'.
    """
    found = built_in_classes().get(name)
    if found is not None:
        return found
    points = tuple(importlib.metadata.entry_points(group=GROUP, name=name))
    if len(points) != 1:
        advice = "install the distribution that registers it" if not points else "uninstall all but one distribution that registers it"
        raise ArtifactError(f"an artifact may hold only known classes, got {name!r:.80}; {advice} under the entry-point group {GROUP!r}.")
    return _loaded(points[0])


def name_of_class(cls: type[Any]) -> str | None:
    """The short name under which a class is stored, or none where it may not be.

    Example:
        >>> name_of_class(TopicFeatures), name_of_class(dict)
        ('TopicFeatures', None)
    """
    if built_in_classes().get(cls.__name__) is cls:
        return cls.__name__
    points = tuple(importlib.metadata.entry_points(group=GROUP))
    times = Counter(point.name for point in points)
    mine = (point.name for point in points if times[point.name] == 1 and point.name not in built_in_classes() and _leads_to(point, cls))
    return min(mine, default=None)


def plug_ins(method: str) -> dict[str, type[Any]]:
    """Classes that other distributions registered and that have a method, by name; those that cannot be loaded are left out.

    Args:
        method: ``"predict"`` for routers, ``"transform"`` for encoders.

    Example:
        >>> "TfidfEncoder" in plug_ins("transform")  # it is ours
        False
    """
    found: dict[str, type[Any]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.module.partition(".")[0] != "mildroute" and point.name not in built_in_classes():
            with contextlib.suppress(ArtifactError):
                found[point.name] = class_named(point.name)
    return {name: cls for name, cls in sorted(found.items()) if hasattr(cls, method)}


def _storable_classes(module: ModuleType) -> dict[str, type[Any]]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and value is not RouterMixin
        if issubclass(value, (Outlook, RouterMixin, TopicFeatures)) and not inspect.isabstract(value)
    }


def _leads_to(point: importlib.metadata.EntryPoint, cls: type[Any]) -> bool:
    """Whether an entry point is of this class; those of other distributions are not imported to find out."""
    if point.module.partition(".")[0] != cls.__module__.partition(".")[0]:
        return False
    try:
        return _loaded(point) is cls
    except ArtifactError:
        return False


def _loaded(point: importlib.metadata.EntryPoint) -> type[Any]:
    try:
        cls = point.load()
    except (ImportError, AttributeError) as broken:
        raise ArtifactError(f"entry point {point.name!r} must name a class, got {point.value!r}, which fails: {broken}.") from broken
    if not inspect.isclass(cls) or not hasattr(cls, "get_params"):
        raise ArtifactError(f"entry point {point.name!r} must name a scikit-learn estimator class, got {point.value!r}.")
    return cls
