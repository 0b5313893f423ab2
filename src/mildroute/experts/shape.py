"""The shape of a mapping in a file: which keys it may have, and what each may hold."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mildroute.errors import ArgumentError, MildrouteError
from mildroute.experts.located import Document, Place

__all__ = ["Check", "Shape", "check_shape", "listed", "nearest", "text"]

Check = Callable[[Any], object]
"""Raises an error of ours if a value breaks a rule."""


@dataclass(frozen=True)
class Shape:
    """Keys of a mapping.

    Args:
        checks: What each key may hold: a check, the shape of a mapping, or both where either may stand.
        required: Keys that must be there.
        whole: A check of the whole mapping, once all its keys are right.

    Example:
        >>> Shape({"model": text}, required=("model",)).required
        ('model',)
    """

    checks: Mapping[str, Check | Shape | tuple[Check, Shape]]
    required: tuple[str, ...] = ()
    whole: Check | None = None


def check_shape(document: Document, place: Place, value: Any, shape: Shape) -> None:
    """Raise, with file and line, at the first key that is unknown, missing or wrong.

    Example:
        >>> check_shape(Document("experts.yaml", None, {("modle",): 3}), (), {"modle": "a"}, Shape({"model": text}))
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: experts.yaml:3: unknown key 'modle'; did you mean 'model'? Known: model.
    """
    if not isinstance(value, dict):
        raise document.error(place, f"{_named(place)} must be a mapping, got {_kind(value)}; write its keys below it, indented.")
    for key in value:
        if key not in shape.checks:
            raise document.error((*place, key), f"unknown key {key!r:.60}; {nearest(key, shape.checks)}")
    missing = [key for key in shape.required if key not in value]
    if missing:
        raise document.error(place, f"{_named(place)} needs the key {missing[0]!r}; add it.")
    for key, inner in value.items():
        _check(document, (*place, key), inner, shape.checks[key])
    if shape.whole is not None:
        _call(document, place, value, shape.whole)


def _check(document: Document, place: Place, value: Any, check: Check | Shape | tuple[Check, Shape]) -> None:
    if isinstance(check, tuple):
        check = check[1] if isinstance(value, dict) else check[0]
    if isinstance(check, Shape):
        check_shape(document, place, value, check)
    else:
        _call(document, place, value, check)


def _call(document: Document, place: Place, value: Any, check: Check) -> None:
    try:
        check(value)
    except MildrouteError as error:
        raise document.error(place, f"{_named(place)}: {error}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """What may have been meant, and all that is known.

    Example:
        >>> nearest("prise", ["price", "model"])
        "did you mean 'price'? Known: model, price."
    """
    names = sorted(known)
    close = difflib.get_close_matches(word[:80], names, n=1, cutoff=0.6)
    return (f"did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(names)}."


def text(value: Any) -> str:
    """The value, if it is text with something in it.

    Example:
        >>> text(4.1)
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: it must be text, got 4.1; put it in quotes.
    """
    if not isinstance(value, str):
        raise ArgumentError(f"it must be text, got {_kind(value)}; put it in quotes.")
    if not value.strip():
        raise ArgumentError("it must not be empty; write something or leave the key out.")
    return value


def listed(check: Check) -> Check:
    """A check of a list's items.

    Example:
        >>> listed(text)(["tools", "json"])
    """

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
