"""Prompt templates: fields of a query become the messages of a call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query

__all__ = ["ANSWER", "FieldTemplate", "PromptTemplate"]


# Templates with {field} places; what is put into them is never read as a template itself.


_FIELD = re.compile(r"[^\W\d][\w .-]*")


class FieldTemplate:
    """A text with placeholders such as ``{input}``; ``{{`` and ``}}`` stand for braces.

    A placeholder contains the name of a field and nothing else: no attributes, indices or formats.
    """

    __slots__ = ("_parts", "fields", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ArgumentError(
                f"a template must be text, got {type(text).__name__}; put it in quotes."
            )
        self.text = text
        self._parts = _parts_of(text)
        self.fields = tuple(dict.fromkeys(field for _, field in self._parts if field is not None))

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the text with every placeholder filled; lists and mappings are written as JSON."""
        for name in self.fields:
            if values.get(name) is None:
                raise ArgumentError(
                    f"the template needs {{{name}}}, which the query lacks; it has"
                    f" {', '.join(_known(values)) or 'no fields'}."
                )
        return "".join(
            [
                literal if name is None else literal + _written(values[name])
                for literal, name in self._parts
            ]
        )


def _parts_of(text: str) -> tuple[tuple[str, str | None], ...]:
    """Runs of plain text, each with the field that follows it, if any."""
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as broken:
        raise _wrong_braces(str(broken)) from None
    for _, name, form, conversion in parsed:
        if name is not None and (form or conversion or not _FIELD.fullmatch(name)):
            raise _wrong_braces(f"the name {name!r:.60}" + (", a format" if form else ""))
    return tuple((literal, name) for literal, name, _, _ in parsed)


def _wrong_braces(got: str) -> ArgumentError:
    return ArgumentError(
        f"braces in a template hold the name of a field, got: {got}; write {{{{ and }}}} for braces"
        " that stand for themselves."
    )


def _known(values: Mapping[str, Any]) -> list[str]:
    return sorted(str(name) for name, value in values.items() if value is not None)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        json.dumps(value, ensure_ascii=False, default=str)
        if isinstance(value, (list, tuple, dict))
        else str(value)
    )


# From a query to what a language model reads: chat messages, or one raw text.


# Key under which an example holds what should be answered to it.
ANSWER = "answer"


@dataclass(frozen=True)
class PromptTemplate:
    """Prompt that a query becomes for a model.

    Templates see ``{input}`` and the query's fields, never its reference.

    Args:
        user: Template of the user's message.
        system: Text of the system message; braces stand for themselves.
        examples: Solved queries that precede it: the fields of the user template, and ``answer``.
        raw: Template of a complete prompt for /completions, sent in place of messages.

    Example:
        >>> prompt = PromptTemplate("{input} =", examples=[{"input": "1 + 1", "answer": "2"}])
        >>> prompt.payload(Query("q1", "2 + 2"))["messages"][1:]
        [{'role': 'assistant', 'content': '2'}, {'role': 'user', 'content': '2 + 2 ='}]
    """

    user: str = "{input}"
    system: str | None = None
    examples: Sequence[Mapping[str, Any]] = ()
    raw: str | None = None
    _template: FieldTemplate = field(init=False, repr=False, compare=False)
    _before: list[dict[str, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the templates once."""
        if self.raw is not None and (
            self.system is not None or self.examples or self.user != "{input}"
        ):
            raise ArgumentError(
                "a raw prompt is the whole prompt, got system, user or examples beside it; write"
                " them into raw."
            )
        if self.system is not None and not isinstance(self.system, str):
            raise ArgumentError(
                f"a system message must be text, got {type(self.system).__name__}; put it in"
                " quotes."
            )
        template = FieldTemplate(self.user if self.raw is None else self.raw)
        before = [] if self.system is None else [_message("system", self.system)]
        for number, example in enumerate(self.examples, start=1):
            before += _solved(template, example, number)
        object.__setattr__(self, "_template", template)
        object.__setattr__(self, "_before", before)

    @property
    def path(self) -> str:
        """Path that it is sent to, below the base URL."""
        return "chat/completions" if self.raw is None else "completions"

    def payload(self, query: Query) -> dict[str, Any]:
        r"""The part of a request that holds the prompt; a field that the query lacks is an error.

        Example:
            >>> PromptTemplate(raw="Q: {input}\nA:").payload(Query("q1", "2 + 2"))
            {'prompt': 'Q: 2 + 2\nA:'}
        """
        text = self._template.fill({**query.fields, "input": query.input})
        if self.raw is not None:
            return {"prompt": text}
        return {"messages": [*self._before, _message("user", text)]}

    def as_dict(self) -> dict[str, Any]:
        """Return everything that determines the request, for the version of an expert.

        Example:
            >>> PromptTemplate().as_dict()["user"]
            '{input}'
        """
        return {
            "user": self.user,
            "system": self.system,
            "examples": [dict(example) for example in self.examples],
            "raw": self.raw,
        }


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _solved(
    template: FieldTemplate, example: Mapping[str, Any], number: int
) -> list[dict[str, str]]:
    if not isinstance(example, Mapping) or not isinstance(example.get(ANSWER), str):
        raise ArgumentError(
            f"example {number} of a prompt must be a mapping with a text {ANSWER!r}, got"
            f" {example!r:.80}; write both."
        )
    try:
        question = template.fill({name: value for name, value in example.items() if name != ANSWER})
    except ArgumentError as error:
        raise ArgumentError(f"example {number} of a prompt: {error}") from None
    return [_message("user", question), _message("assistant", example[ANSWER])]
