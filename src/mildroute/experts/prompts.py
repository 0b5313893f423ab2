"""Prompt templates, which turn the fields of a query into chat messages or one raw text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.experts.field_template import FieldTemplate

__all__ = ["PromptTemplate"]

# The key of an example's answer.
_ANSWER = "answer"


@dataclass(frozen=True)
class PromptTemplate:
    """A template for the prompt of a query.

    A template can use ``{input}`` and the query's fields, but not its reference.

    Args:
        user: Template of the user's message.
        system: Text of the system message, in which braces are literal.
        examples: Solved queries that precede the query: the fields of the user template, and
            ``answer``.
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
    _first_messages: list[dict[str, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Parse the templates once."""
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
        messages = [] if self.system is None else [_message("system", self.system)]
        for number, example in enumerate(self.examples, start=1):
            messages += _example_messages(template, example, number)
        object.__setattr__(self, "_template", template)
        object.__setattr__(self, "_first_messages", messages)

    @property
    def path(self) -> str:
        """The path of the request below the base URL."""
        return "chat/completions" if self.raw is None else "completions"

    def payload(self, query: Query) -> dict[str, Any]:
        r"""Return the part of a request that holds the prompt.

        Example:
            >>> PromptTemplate(raw="Q: {input}\nA:").payload(Query("q1", "2 + 2"))
            {'prompt': 'Q: 2 + 2\nA:'}
        """
        text = self._template.fill({**query.fields, "input": query.input})
        if self.raw is not None:
            return {"prompt": text}
        return {"messages": [*self._first_messages, _message("user", text)]}

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


def _example_messages(
    template: FieldTemplate, example: Mapping[str, Any], number: int
) -> list[dict[str, str]]:
    if not isinstance(example, Mapping) or not isinstance(example.get(_ANSWER), str):
        raise ArgumentError(
            f"example {number} of a prompt must be a mapping with a text {_ANSWER!r}, got"
            f" {example!r:.80}; write both."
        )
    try:
        fields = {name: value for name, value in example.items() if name != _ANSWER}
        question = template.fill(fields)
    except ArgumentError as error:
        raise ArgumentError(f"example {number} of a prompt: {error}") from None
    return [_message("user", question), _message("assistant", example[_ANSWER])]
