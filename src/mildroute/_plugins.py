"""Plug-ins: objects that installed distributions register under an entry-point group."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from mildroute.exceptions import ArgumentError, MildrouteError


def _entry_points(**selection: str) -> tuple[Any, ...]:
    # Imported here because it loads twenty modules that most users never need.
    return tuple(importlib.import_module("importlib.metadata").entry_points(**selection))


def plugin_names(group: str) -> set[str]:
    """Return the names that installed distributions registered under an entry-point group."""
    return {point.name for point in _entry_points(group=group)}


def load_plugin(
    group: str,
    name: str,
    *,
    thing: str,
    known: Iterable[str] = (),
    error: type[MildrouteError] = ArgumentError,
) -> Any:
    """Return the object that one distribution registered under an entry-point group and name.

    Args:
        group: The entry-point group.
        name: The registered name.
        thing: Kind of object for error messages, such as ``"judge"``.
        known: Built-in names, for error messages.
        error: Error to raise if not exactly one distribution registered the name, or if the object
            cannot be loaded.
    """
    points = _entry_points(group=group, name=name)
    if len(points) != 1:
        names = sorted({*known, *plugin_names(group)})
        rule = f"{thing} must be one of {', '.join(names)}, got {name!r:.80}"
        remedy = (
            f"uninstall all but one distribution that registers it under {group!r}"
            if points
            else f"install a distribution that registers it under the entry-point group {group!r}"
        )
        raise error(f"{rule}; {remedy}.")
    try:
        return points[0].load()
    except (ImportError, AttributeError) as cause:
        raise error(
            f"{thing} {name!r} cannot be loaded from {points[0].value!r}, which fails: {cause}."
        ) from cause
