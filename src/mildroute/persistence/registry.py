"""The classes that an artifact may name. Objects of other classes are never created."""

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

from mildroute._plugins import load_plugin
from mildroute.encoders.base import Encoder
from mildroute.exceptions import ArtifactError, MissingExtraError
from mildroute.routers.base import RouterMixin
from mildroute.routers.features import TopicFeatures
from mildroute.routers.out_of_distribution import OutcomeModel

__all__ = ["GROUP", "built_in_classes", "list_plugins", "resolve_class", "storage_name"]

# Entry-point group under which distributions register routers and encoders that may be stored.
GROUP = "mildroute.routers"
_PACKAGES = ("mildroute.routers", "mildroute.encoders")


@functools.cache
def built_in_classes() -> Mapping[str, type[Any]]:
    """Return the built-in classes of routers and encoders that may be stored, by name.

    Modules whose optional dependency is missing are skipped.
    """
    classes: dict[str, type[Any]] = {}
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            with contextlib.suppress(MissingExtraError):
                classes |= _storable_classes(importlib.import_module(module.name))
    return classes


def resolve_class(name: str) -> type[Any]:
    """Return a built-in class, or one that a distribution registered under :data:`GROUP`."""
    return built_in_classes().get(name) or _load_plugin_class(name)


def storage_name(cls: type[Any]) -> str | None:
    """Return the name under which a class is stored; ``None`` if it must not be stored."""
    if built_in_classes().get(cls.__name__) is cls:
        return cls.__name__
    points = tuple(importlib.metadata.entry_points(group=GROUP))
    registrations = Counter(point.name for point in points)
    names = (
        point.name
        for point in points
        if registrations[point.name] == 1
        and point.name not in built_in_classes()
        and _refers_to(point, cls)
    )
    return min(names, default=None)


def list_plugins(method: str) -> dict[str, type[Any]]:
    """Return the classes of other distributions that have a method, by name.

    Classes that cannot be loaded are skipped.

    Args:
        method: ``"predict"`` for routers, ``"transform"`` for encoders.
    """
    classes: dict[str, type[Any]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.module.partition(".")[0] != "mildroute" and point.name not in built_in_classes():
            with contextlib.suppress(ArtifactError):
                classes[point.name] = resolve_class(point.name)
    return {name: cls for name, cls in sorted(classes.items()) if hasattr(cls, method)}


def _storable_classes(module: ModuleType) -> dict[str, type[Any]]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and value not in (Encoder, RouterMixin)
        and issubclass(value, (Encoder, OutcomeModel, RouterMixin, TopicFeatures))
        and not inspect.isabstract(value)
    }


def _refers_to(point: importlib.metadata.EntryPoint, cls: type[Any]) -> bool:
    """Return whether an entry point refers to this class.

    Entry points of other packages than the class's are not imported.
    """
    if point.module.partition(".")[0] != cls.__module__.partition(".")[0]:
        return False
    try:
        return point.load() is cls and hasattr(cls, "get_params")
    except (ImportError, AttributeError):
        return False


def _load_plugin_class(name: str) -> type[Any]:
    cls = load_plugin(
        GROUP,
        name,
        thing="class of an artifact",
        known=built_in_classes(),
        error=ArtifactError,
    )
    if not inspect.isclass(cls) or not hasattr(cls, "get_params"):
        raise ArtifactError(
            f"entry point {name!r} must name a scikit-learn estimator class, got {cls!r:.80}."
        )
    return cls
