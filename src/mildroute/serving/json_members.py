"""The members of a JSON object with their places in the text, so that one of them can be replaced and all others left as they came."""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

__all__ = ["LENIENT", "STRICT", "Member", "read_members"]

Member = tuple[str, Any, int, int]
"""Name, value, and where in the text the value begins and ends."""

_SPACE = r"[ \t\n\r]*"
_space = re.compile(_SPACE).match
_plain_name = re.compile(rf'"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE}').match
_colon = re.compile(rf"{_SPACE}:{_SPACE}").match
_border = re.compile(rf"{_SPACE}([,}}]){_SPACE}").match


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


STRICT = JSONDecoder(parse_constant=_refuse)
"""Reads what every JSON reader can read: no NaN, no Infinity."""

LENIENT = JSONDecoder()
"""Reads NaN and Infinity, too, which some servers send."""


def read_members(text: str, at: int, decoder: JSONDecoder = STRICT, most: int = 1_000_000) -> tuple[list[Member], int]:
    """Read the members of an object.

    Args:
        text: JSON.
        at: Where the first of them, or the closing brace, is looked for.
        decoder: Reads names and values.
        most: Members that are read; more are an error.

    Returns:
        The members in their order, repeated names included, and the place behind the closing brace.

    Raises:
        ValueError: This is no JSON.
        RecursionError: A value is nested too deeply.

    Example:
        >>> read_members('{"model": "m", "n": [1]}', 1)
        ([('model', 'm', 10, 13), ('n', [1], 20, 23)], 24)
    """
    members: list[Member] = []
    at = _space(text, at).end()  # type: ignore[union-attr]
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        name, start = _name_at(text, at, decoder)
        value, end = decoder.raw_decode(text, start)
        members.append((name, value, start, end))
        if len(members) > most:
            raise JSONDecodeError("Too many members", text, at)
        border = _border(text, end)
        if border is None:
            raise JSONDecodeError("Expecting ',' delimiter", text, end)
        if border[1] == "}":
            return members, border.end(1)
        at = border.end()


def _name_at(text: str, at: int, decoder: JSONDecoder) -> tuple[str, int]:
    """A name, and where its value begins."""
    plain = _plain_name(text, at)
    if plain is not None:
        return plain[1], plain.end()
    if text[at : at + 1] != '"':
        raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, at = decoder.raw_decode(text, at)
    colon = _colon(text, at)
    if colon is None:
        raise JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, colon.end()
