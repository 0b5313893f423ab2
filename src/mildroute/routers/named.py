"""Routers by the names that the command line uses: ours, those of other distributions, and losses."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.routers.base import RouterMixin
from mildroute.routers.losses import loss_names
from mildroute.routers.own_loss import LossRouter
from mildroute.routers.storage.registry import GROUP, built_in_classes, class_named, plug_ins

__all__ = ["router_named", "router_names"]

_NOT_BY_NAME = {"FrontierRouter": "it goes around another one by itself where there are dollars", "OracleRouter": "it must know the costs"}
_NEEDED = ("fit", "predict", "predict_proba", "rank", "posterior_unchecked", "get_params")


def router_names() -> list[str]:
    """All names that :func:`router_named` knows: classes of :mod:`mildroute.routers`, plug-ins, and losses.

    Example:
        >>> {"KnnRouter", "MildRouter", "tdef"} <= set(router_names())
        True
    """
    return [*_ours(), *plug_ins("predict"), *loss_names()]


def router_named(name: str, *, random_state: int | None = None) -> Any:
    """An unfitted router over vectors.

    Args:
        name: One of :func:`router_names`. The name of a loss stands for a :class:`~mildroute.routers.own_loss.LossRouter` with that loss.
        random_state: Its seed, where it takes one.

    Returns:
        The router, with its default settings.

    Example:
        >>> router_named("tdef", random_state=0)
        LossRouter(loss='tdef', random_state=0)
        >>> router_named("vibes")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: router must be one of BestSingleRouter, ..., got 'vibes'; ...
    """
    if name in _ours():
        router = built_in_classes()[name]()
    elif any(importlib.metadata.entry_points(group=GROUP, name=name)):
        router = _of_plug_in(name)
    elif name in loss_names():
        router = LossRouter(name)
    else:
        why = _NOT_BY_NAME.get(name, f"a plug-in is registered under {GROUP!r}, a loss under 'mildroute.losses'")
        raise ArgumentError(f"router must be one of {', '.join(router_names())}, got {name!r:.80}; {why}.")
    return router.set_params(random_state=random_state) if "random_state" in router.get_params() else router


def _ours() -> list[str]:
    return sorted(name for name, cls in built_in_classes().items() if issubclass(cls, RouterMixin) and name not in _NOT_BY_NAME)


def _of_plug_in(name: str) -> Any:
    cls = class_named(name)
    lacking = [method for method in _NEEDED if not hasattr(cls, method)]
    if lacking:
        raise ArgumentError(
            f"router {name!r} must be one over vectors, but {cls.__name__} has no {', '.join(lacking)}; derive it from RouterMixin."
        )
    try:
        return cls()
    except TypeError as wrong:
        raise ArgumentError(f"router {name!r} must be made without arguments, got: {wrong}; give its parameters defaults.") from wrong
