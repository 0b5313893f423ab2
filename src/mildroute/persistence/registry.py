"""Which classes may be stored, and routers and encoders by name."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from mildroute._plugins import load_plugin, plugin_names
from mildroute.exceptions import ArgumentError, ArtifactError, MissingExtraError
from mildroute.routers.base import RouterMixin
from mildroute.routers.features import TopicFeatures
from mildroute.routers.out_of_distribution import OutcomeModel
from mildroute.routers.surrogate import CustomLossRouter, loss_names

__all__ = [
    "GROUP",
    "built_in_classes",
    "get_encoder",
    "get_router",
    "list_plugins",
    "resolve_class",
    "router_names",
    "storage_name",
]


# The classes that an artifact may name; nothing else is ever built from one.


# Entry-point group under which other distributions register routers that may be stored.
GROUP = "mildroute.routers"


@functools.cache
def built_in_classes() -> Mapping[str, type[Any]]:
    """Every router, feature transformer and outlook of :mod:`mildroute.routers`, by short name.

    A module whose optional dependency is missing is left out.
    """
    package = importlib.import_module("mildroute.routers")
    found: dict[str, type[Any]] = {}
    for module in pkgutil.walk_packages(package.__path__, "mildroute.routers."):
        with contextlib.suppress(MissingExtraError):
            found |= _storable_classes(importlib.import_module(module.name))
    return found


def resolve_class(name: str) -> type[Any]:
    """Return the class with a short name.

    One of ours, or one that an installed distribution registered under :data:`GROUP`.
    """
    found = built_in_classes().get(name)
    if found is not None:
        return found
    return _checked_plugin(name)


def storage_name(cls: type[Any]) -> str | None:
    """Return the short name of a class, or ``None`` if it must not be stored."""
    if built_in_classes().get(cls.__name__) is cls:
        return cls.__name__
    points = tuple(importlib.metadata.entry_points(group=GROUP))
    times = Counter(point.name for point in points)
    mine = (
        point.name
        for point in points
        if times[point.name] == 1 and point.name not in built_in_classes() and _leads_to(point, cls)
    )
    return min(mine, default=None)


def list_plugins(method: str) -> dict[str, type[Any]]:
    """Classes that other distributions registered and that have a method, by name.

    Those that cannot be loaded are left out.

    Args:
        method: ``"predict"`` for routers, ``"transform"`` for encoders.
    """
    found: dict[str, type[Any]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.module.partition(".")[0] != "mildroute" and point.name not in built_in_classes():
            with contextlib.suppress(ArtifactError):
                found[point.name] = resolve_class(point.name)
    return {name: cls for name, cls in sorted(found.items()) if hasattr(cls, method)}


def _storable_classes(module: ModuleType) -> dict[str, type[Any]]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and value is not RouterMixin
        if issubclass(value, (OutcomeModel, RouterMixin, TopicFeatures))
        and not inspect.isabstract(value)
    }


def _leads_to(point: importlib.metadata.EntryPoint, cls: type[Any]) -> bool:
    """Return whether an entry point refers to this class.

    Those of other distributions are not imported to find out. The point is loaded as it is: to look
    for it again reads the metadata of every installed distribution, which took a second a router.
    """
    if point.module.partition(".")[0] != cls.__module__.partition(".")[0]:
        return False
    try:
        return point.load() is cls and hasattr(cls, "get_params")
    except (ImportError, AttributeError):
        return False


def _checked_plugin(name: str) -> type[Any]:
    known = built_in_classes()
    cls = load_plugin(GROUP, name, thing="class of an artifact", known=known, error=ArtifactError)
    if not inspect.isclass(cls) or not hasattr(cls, "get_params"):
        raise ArtifactError(
            f"entry point {name!r} must name a scikit-learn estimator class, got {cls!r:.80}."
        )
    return cls


# Encoders by the short names that the command line uses.


_NAMES = (
    "auto",
    "tfidf",
    "tfidf-sparse",
    "characters",
    "hashing",
    "numbers",
    "minilm",
    "minilm-int8",
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def get_encoder(name: str) -> Any:
    """Return an unfitted encoder.

    Args:
        name: ``"auto"`` (``None``: the default of ``mildroute fit``), ``"tfidf"``,
            ``"characters"`` and ``"hashing"`` (all three reduced to few columns),
            ``"tfidf-sparse"``, ``"numbers"``, ``"minilm"``, ``"minilm-int8"``, the name of a
            plug-in, the folder or hub name of a sentence model, or several of them with ``+``
            between.

    Returns:
        The encoder, or ``None`` for the default.
    """
    from mildroute.encoders.sentence import SentenceEncoder
    from mildroute.encoders.text import (
        HashingEncoder,
        NumberEncoder,
        ReducedEncoder,
        TfidfEncoder,
        UnionEncoder,
    )

    makers: dict[str, Any] = {
        "auto": lambda: None,
        "tfidf": ReducedEncoder,
        "tfidf-sparse": TfidfEncoder,
        "characters": lambda: ReducedEncoder(TfidfEncoder(unit="character", ngrams=(2, 4))),
        "hashing": lambda: ReducedEncoder(HashingEncoder()),
        "numbers": NumberEncoder,
        "minilm": lambda: SentenceEncoder(precision="fp32"),
        "minilm-int8": lambda: SentenceEncoder(precision="int8"),
    }
    if name in makers:
        return makers[name]()
    if name in plugin_names(GROUP):
        return _encoder_of_plug_in(name)
    if name and ((Path(name) / "config.json").is_file() or _HUB_NAME.fullmatch(name)):
        return SentenceEncoder(model=name, precision="int8")
    if "+" in name:
        return UnionEncoder([get_encoder(part) or ReducedEncoder() for part in name.split("+")])
    known = ", ".join((*_NAMES, *list_plugins("transform")))
    raise ArgumentError(
        f"encoder must be {known}, a model's folder or hub name, or several with + between, got"
        f" {name!r}."
    )


def _encoder_of_plug_in(name: str) -> Any:
    """Return an encoder that an artifact can contain, with its default settings."""
    cls = resolve_class(name)
    if not hasattr(cls, "transform"):
        raise ArgumentError(
            f"encoder {name!r} must have transform, but {cls.__name__} has none; is it a router?"
            " Then give it as --router."
        )
    try:
        return cls()
    except TypeError as wrong:
        raise ArgumentError(
            f"encoder {name!r} must be made without arguments, got: {wrong}; give its parameters"
            " defaults."
        ) from wrong


# Routers by the names that the command line uses: ours, those of other distributions, and losses.


_NOT_BY_NAME = {
    "FrontierRouter": "it goes around another one by itself where there are dollars",
    "OracleRouter": "it must know the costs",
}
# Names of routers in comparisons.
_ALSO = {"ce": "CrossEntropyRouter", "linear regression": "RegressionRouter"}
_NEEDED = ("fit", "fit_rows", "predict", "predict_proba", "rank", "posterior_unchecked")


def router_names() -> list[str]:
    """All names that :func:`get_router` knows.

    Classes of :mod:`mildroute.routers`, plug-ins, and losses.
    """
    return [*_ours(), *list_plugins("predict"), *loss_names()]


def get_router(name: str, *, random_state: int | None = None) -> Any:
    """Return an unfitted router over vectors.

    Args:
        name: One of :func:`router_names`, those of our classes in any case and with or without
            ``Router``, such as ``"knn"``. The name of a loss stands for a
            :class:`~mildroute.routers.surrogate.CustomLossRouter` with that loss, unless a class is
            called so.
        random_state: Its seed, where it takes one.
    """
    ours = _class_name(name)
    if ours is not None:
        router = built_in_classes()[ours]()
    elif name in plugin_names(GROUP):
        router = _of_plug_in(name)
    elif name in loss_names():
        router = CustomLossRouter(name)
    else:
        why = _NOT_BY_NAME.get(
            name, f"a plug-in is registered under {GROUP!r}, a loss under 'mildroute.losses'"
        )
        raise ArgumentError(
            f"router must be one of {', '.join(router_names())}, got {name!r:.80}; a short"
            f" name such as 'knn' or 'mild' will do, and {why}."
        )
    return (
        router.set_params(random_state=random_state)
        if "random_state" in router.get_params()
        else router
    )


def _class_name(name: str) -> str | None:
    """Return the class of a name in any spelling: ``KNNRouter`` for ``knn`` and ``kNN``."""
    short = {each.removesuffix("Router").casefold(): each for each in _ours()} | _ALSO
    return short.get(name.casefold().removesuffix("router").strip())


def _ours() -> list[str]:
    return sorted(
        name
        for name, cls in built_in_classes().items()
        if issubclass(cls, RouterMixin) and name not in _NOT_BY_NAME
    )


def _of_plug_in(name: str) -> Any:
    cls = resolve_class(name)
    lacking = [method for method in _NEEDED if not hasattr(cls, method)]
    if lacking:
        raise ArgumentError(
            f"router {name!r} must be one over vectors, but {cls.__name__} has no"
            f" {', '.join(lacking)}; derive it from RouterMixin."
        )
    try:
        return cls()
    except TypeError as wrong:
        raise ArgumentError(
            f"router {name!r} must be made without arguments, got: {wrong}; give its parameters"
            " defaults."
        ) from wrong
