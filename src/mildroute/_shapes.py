"""Checks of mappings in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mildroute._checks import nearest
from mildroute._yaml import KeyPath as Place, YamlDocument
from mildroute.exceptions import ArgumentError, MildrouteError

# Raises one of our errors if a value breaks a rule.
Check = Callable[[Any], object]


@dataclass(frozen=True)
class Shape:
    """The keys of a mapping.

    Args:
        checks: Allowed values of each key: a check, the shape of a mapping, or both if either is
            allowed.
        whole: A check of the whole mapping, run after all its keys have passed.
    """

    checks: Mapping[str, Check | Shape | tuple[Check, Shape]]
    required: tuple[str, ...] = ()
    whole: Check | None = None


def check_shape(document: YamlDocument, place: Place, value: Any, shape: Shape) -> None:
    """Raise, with file and line, at the first key that is unknown, missing or wrong."""
    if not isinstance(value, dict):
        raise document.error(
            place,
            f"{_named(place)} must be a mapping, got {_kind(value)}; write its keys below it,"
            " indented.",
        )
    for key in value:
        if key not in shape.checks:
            raise document.error(
                (*place, key), f"unknown key {key!r:.60}; {nearest(key, shape.checks)}"
            )
    missing = [key for key in shape.required if key not in value]
    if missing:
        raise document.error(place, f"{_named(place)} needs the key {missing[0]!r}; add it.")
    for key, inner in value.items():
        _check(document, (*place, key), inner, shape.checks[key])
    if shape.whole is not None:
        _call(document, place, value, shape.whole)


def _check(
    document: YamlDocument, place: Place, value: Any, check: Check | Shape | tuple[Check, Shape]
) -> None:
    if isinstance(check, tuple):
        check = check[1] if isinstance(value, dict) else check[0]
    if isinstance(check, Shape):
        check_shape(document, place, value, check)
    else:
        _call(document, place, value, check)


def _call(document: YamlDocument, place: Place, value: Any, check: Check) -> None:
    try:
        check(value)
    except MildrouteError as error:
        raise document.error(place, f"{_named(place)}: {error}") from None


def boolean(value: Any) -> None:
    """Raise an error for a value that is neither true nor false."""
    if not isinstance(value, bool):
        raise ArgumentError(f"it must be true or false, got {value!r:.60}.")


def text(value: Any) -> str:
    """Return the value if it is a text that is not empty; raise for other values."""
    if not isinstance(value, str):
        raise ArgumentError(f"it must be text, got {_kind(value)}; put it in quotes.")
    if not value.strip():
        raise ArgumentError("it must not be empty; write something or leave the key out.")
    return value


def listed(check: Check) -> Check:
    """Return a check that applies to each item of a list."""

    def check_items(value: Any) -> None:
        if not isinstance(value, list):
            raise ArgumentError(f"it must be a list, got {_kind(value)}; write it in [ ].")
        for item in value:
            check(item)

    return check_items


def _named(place: Place) -> str:
    return repr(place[-1]) if place else "the file"


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else f"{value!r:.60}"
