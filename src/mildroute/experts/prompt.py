"""From a query to what a language model reads: chat messages, or one raw text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.experts.protocol import Query
from mildroute.experts.template import Template

__all__ = ["ANSWER", "Prompt"]

ANSWER = "answer"
"""Key under which an example holds what should be answered to it."""


@dataclass(frozen=True)
class Prompt:
    """How a query is put to a model.

    Templates see ``{input}`` and the query's fields, never its reference.

    Args:
        user: Template of the user's message.
        system: Text of the system message; braces stand for themselves.
        examples: Solved queries that go before: the fields of the user template, and ``answer``.
        raw: Template of a whole prompt for /completions; no message is sent then.

    Example:
        >>> Prompt("{input} =", examples=[{"input": "1 + 1", "answer": "2"}]).payload(Query("q1", "2 + 2"))["messages"][1:]
        [{'role': 'assistant', 'content': '2'}, {'role': 'user', 'content': '2 + 2 ='}]
    """

    user: str = "{input}"
    system: str | None = None
    examples: Sequence[Mapping[str, Any]] = ()
    raw: str | None = None
    _template: Template = field(init=False, repr=False, compare=False)
    _before: list[dict[str, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the templates once."""
        if self.raw is not None and (self.system is not None or self.examples or self.user != "{input}"):
            raise ArgumentError("a raw prompt is the whole prompt, got system, user or examples beside it; write them into raw.")
        if self.system is not None and not isinstance(self.system, str):
            raise ArgumentError(f"a system message must be text, got {type(self.system).__name__}; put it in quotes.")
        template = Template(self.user if self.raw is None else self.raw)
        before = [] if self.system is None else [_message("system", self.system)]
        for number, example in enumerate(self.examples, start=1):
            before += _solved(template, example, number)
        object.__setattr__(self, "_template", template)
        object.__setattr__(self, "_before", before)

    @property
    def path(self) -> str:
        """Where it is sent, below the base URL."""
        return "chat/completions" if self.raw is None else "completions"

    def payload(self, query: Query) -> dict[str, Any]:
        r"""The part of a request that holds the prompt; a field that the query lacks is an error.

        Example:
            >>> Prompt(raw="Q: {input}\nA:").payload(Query("q1", "2 + 2"))
            {'prompt': 'Q: 2 + 2\nA:'}
        """
        text = self._template.fill({**query.fields, "input": query.input})
        if self.raw is not None:
            return {"prompt": text}
        return {"messages": [*self._before, _message("user", text)]}

    def as_dict(self) -> dict[str, Any]:
        """All that decides what is sent, for the version of an expert.

        Example:
            >>> Prompt().as_dict()["user"]
            '{input}'
        """
        return {"user": self.user, "system": self.system, "examples": [dict(example) for example in self.examples], "raw": self.raw}


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _solved(template: Template, example: Mapping[str, Any], number: int) -> list[dict[str, str]]:
    if not isinstance(example, Mapping) or not isinstance(example.get(ANSWER), str):
        raise ArgumentError(f"example {number} of a prompt must be a mapping with a text {ANSWER!r}, got {example!r:.80}; write both.")
    try:
        asked = template.fill({name: value for name, value in example.items() if name != ANSWER})
    except ArgumentError as error:
        raise ArgumentError(f"example {number} of a prompt: {error}") from None
    return [_message("user", asked), _message("assistant", example[ANSWER])]
