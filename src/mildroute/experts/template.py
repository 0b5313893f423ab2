"""Templates with {field} places; what is put into them is never read as a template itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mildroute.errors import ArgumentError

__all__ = ["Template"]

_TOKENS = re.compile(r"\{\{|\}\}|\{(?P<field>[^\W\d][\w .-]*)\}|[{}]")


class Template:
    """A text with places such as ``{input}``; ``{{`` and ``}}`` stand for braces.

    A place holds the name of a field and nothing else: no attributes, no indices, no formats.

    Args:
        text: The template.

    Example:
        >>> Template('Reply {{"label": ...}} to: {input}').fill({"input": "a {brace}"})
        'Reply {"label": ...} to: a {brace}'
    """

    __slots__ = ("_parts", "fields", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ArgumentError(f"a template must be text, got {type(text).__name__}; put it in quotes.")
        self.text = text
        self._parts = _parts_of(text)
        self.fields = tuple(dict.fromkeys(field for _, field in self._parts if field is not None))

    def fill(self, values: Mapping[str, Any]) -> str:
        """The text with every place filled; lists and mappings are written as JSON.

        Example:
            >>> Template("{choices}").fill({"choices": ["yes", "no"]})
            '["yes", "no"]'
        """
        for field in self.fields:
            if values.get(field) is None:
                raise ArgumentError(
                    f"the template asks for {{{field}}}, which the query lacks; it has {', '.join(_known(values)) or 'no fields'}."
                )
        return "".join([literal if field is None else literal + _written(values[field]) for literal, field in self._parts])


def _parts_of(text: str) -> tuple[tuple[str, str | None], ...]:
    """Runs of plain text, each with the field that follows it, if any."""
    parts: list[tuple[str, str | None]] = []
    start, literal = 0, ""
    for token in _TOKENS.finditer(text):
        literal += text[start : token.start()]
        start = token.end()
        if field := token["field"]:
            parts.append((literal, field))
            literal = ""
        elif len(token[0]) == 2:
            literal += token[0][0]
        else:
            shown = text[max(0, token.start() - 15) : token.start() + 16]
            raise ArgumentError(
                f"braces in a template hold the name of a field, got {shown!r}; write {{{{ and }}}} for braces that stand for themselves."
            )
    return (*parts, (literal + text[start:], None))


def _known(values: Mapping[str, Any]) -> list[str]:
    return sorted(str(name) for name, value in values.items() if value is not None)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, tuple, dict)) else str(value)
