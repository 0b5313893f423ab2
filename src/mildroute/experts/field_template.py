"""Templates with fields in braces, whose values are never parsed as templates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

from mildroute.exceptions import ArgumentError

__all__ = ["FieldTemplate"]

_FIELD = re.compile(r"[^\W\d][\w .-]*")


class FieldTemplate:
    """A text with placeholders such as ``{input}``; ``{{`` and ``}}`` stand for literal braces.

    A placeholder contains only the name of a field, without attributes, indices or formats.
    """

    __slots__ = ("_parts", "fields", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ArgumentError(
                f"a template must be text, got {type(text).__name__}; put it in quotes."
            )
        self.text = text
        self._parts = _split_template(text)
        self.fields = tuple(dict.fromkeys(field for _, field in self._parts if field is not None))

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the text with every placeholder filled; lists and mappings become JSON."""
        for name in self.fields:
            if values.get(name) is None:
                fields = sorted(str(name) for name, value in values.items() if value is not None)
                raise ArgumentError(
                    f"the template needs {{{name}}}, which the query lacks; it has"
                    f" {', '.join(fields) or 'no fields'}."
                )
        return "".join(
            literal if name is None else literal + _to_text(values[name])
            for literal, name in self._parts
        )


def _split_template(text: str) -> tuple[tuple[str, str | None], ...]:
    """Split a template into literal texts, each with the field that follows it, if any."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise _braces_error(str(error)) from None
    for _, name, format_spec, conversion in parts:
        if name is not None and (format_spec or conversion or not _FIELD.fullmatch(name)):
            raise _braces_error(f"the name {name!r:.60}" + (", a format" if format_spec else ""))
    return tuple((literal, name) for literal, name, _, _ in parts)


def _braces_error(problem: str) -> ArgumentError:
    return ArgumentError(
        f"braces in a template must contain the name of a field, got: {problem}; for literal"
        " braces, write {{ and }}."
    )


def _to_text(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
