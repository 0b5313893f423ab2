"""Routers by the names that the command line accepts: built-in ones, plug-ins and losses."""

from __future__ import annotations

from typing import Any

from mildroute._plugins import plugin_names
from mildroute.exceptions import ArgumentError
from mildroute.persistence.registry import GROUP, built_in_classes, list_plugins, resolve_class
from mildroute.routers.base import RouterMixin
from mildroute.routers.surrogate import CustomLossRouter, loss_names

__all__ = ["get_router", "router_names"]

_NOT_BY_NAME = {
    "FrontierRouter": "fit adds a FrontierRouter by itself if the table has dollars",
    "OracleRouter": "an OracleRouter must know the costs",
}
# Names of routers in comparisons.
_ALIASES = {"ce": "CrossEntropyRouter", "linear regression": "RegressionRouter"}
_REQUIRED_METHODS = ("fit", "fit_rows", "predict", "predict_proba", "rank", "posterior_unchecked")


def router_names() -> list[str]:
    """Return the names that :func:`get_router` accepts: built-in routers, plug-ins and losses."""
    return [*_built_in_names(), *list_plugins("predict"), *loss_names()]


def get_router(name: str, *, random_state: int | None = None) -> Any:
    """Return an unfitted router over vectors.

    Args:
        name: One of :func:`router_names`. Built-in classes may be named in any case and without
            ``Router``, such as ``"knn"``. The name of a loss that is not also the name of a class
            selects a :class:`~mildroute.routers.surrogate.CustomLossRouter` with that loss.
        random_state: Seed of the router; ignored if the router has no such parameter.
    """
    class_name = _class_name(name)
    if class_name is not None:
        router = built_in_classes()[class_name]()
    elif name in plugin_names(GROUP):
        router = _make_plugin_router(name)
    elif name in loss_names():
        router = CustomLossRouter(name)
    else:
        note = _NOT_BY_NAME.get(
            name, f"a plug-in is registered under {GROUP!r}, a loss under 'mildroute.losses'"
        )
        raise ArgumentError(
            f"router must be one of {', '.join(router_names())}, got {name!r:.80}; a short"
            f" name such as 'knn' or 'mild' is enough; {note}."
        )
    return (
        router.set_params(random_state=random_state)
        if "random_state" in router.get_params()
        else router
    )


def _class_name(name: str) -> str | None:
    """Return the class with a name in any spelling: ``KNNRouter`` for ``knn`` and ``kNN``."""
    names = _built_in_names()
    class_of = {cls.removesuffix("Router").casefold(): cls for cls in names} | _ALIASES
    return class_of.get(name.casefold().removesuffix("router").strip())


def _built_in_names() -> list[str]:
    return sorted(
        name
        for name, cls in built_in_classes().items()
        if issubclass(cls, RouterMixin) and name not in _NOT_BY_NAME
    )


def _make_plugin_router(name: str) -> Any:
    cls = resolve_class(name)
    missing = [method for method in _REQUIRED_METHODS if not hasattr(cls, method)]
    if missing:
        raise ArgumentError(
            f"router {name!r} must be one over vectors, but {cls.__name__} has no"
            f" {', '.join(missing)}; derive it from RouterMixin."
        )
    try:
        return cls()
    except TypeError as error:
        raise ArgumentError(
            f"router {name!r} must be constructible without arguments, got: {error}; give its"
            " parameters defaults."
        ) from error
