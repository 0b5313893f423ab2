"""Request bodies: the parts that routing needs, and the same body for an expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mildroute._optional import needs_extra
from mildroute.decision.prompt import (
    RoutedPrompt,
    RoutingInput,
    prompt_of_messages,
    prompt_of_texts,
    text_of,
)
from mildroute.decision.settings import AUTO_MODEL
from mildroute.exceptions import ArgumentError

with needs_extra("orjson", extra="envoy", user="mildroute.integrations.envoy"):
    import orjson

__all__ = ["RoutableBody", "read_body"]

# Maximum numbers of objects and lists, and of commas, in a body. More would block the interpreter
# for too long, and no model reads so many.
_MAX_CONTAINERS = 200_000
_MAX_COMMAS = 500_000
_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_JSON_FORMATS = ("json_object", "json_schema")


@dataclass(frozen=True)
class RoutableBody:
    """A body whose client leaves the choice of model to the router.

    Args:
        other_fields: The body's fields without the model, as JSON.
        text: The text to route.
        tokens_in: Estimated prompt tokens.
        tokens_out: Maximum answer tokens; 0 if unlimited.
        needs: Capabilities that an expert must support.
        is_first_turn: Whether the conversation has no answer yet.
    """

    other_fields: bytes = field(repr=False)
    text: str
    tokens_in: int
    tokens_out: int
    needs: frozenset[str]
    is_first_turn: bool

    def body_for(self, model: str) -> bytes:
        """Return the body with this model."""
        return b'{"model":' + orjson.dumps(model) + b"," + self.other_fields[1:]


def read_body(body: bytes, routing_input: RoutingInput) -> RoutableBody | None:
    """Parse the body of a chat, message, response or completion request.

    Args:
        body: The bytes, as the client sent them.
        routing_input: The part of a conversation that the router reads.

    Returns:
        The routable body, or ``None`` if the client names another model.

    Raises:
        ArgumentError: The body is not a request to one of these APIs, is too large, or is nested
            too deeply.
    """
    if body.count(b"{") + body.count(b"[") > _MAX_CONTAINERS or body.count(b",") > _MAX_COMMAS:
        raise ArgumentError("the body has too many values.")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ArgumentError("the body is not JSON.") from None
    if type(fields) is not dict or type(fields.get("model")) is not str:
        raise ArgumentError("the body must be an object with a model.")
    if fields["model"] != AUTO_MODEL:
        return None
    prompt = _prompt_of(fields, routing_input)
    del fields["model"]
    try:
        other_fields = orjson.dumps(fields)
    except TypeError:
        raise ArgumentError("the body is nested too deeply.") from None
    limits = [fields[name] for name in _MAX_TOKENS if type(fields.get(name)) is int]
    return RoutableBody(
        other_fields,
        prompt.text,
        prompt.estimate(),
        max([0, *limits]),
        _needs_of(fields, prompt),
        not prompt.has_answer,
    )


def _prompt_of(fields: Mapping[str, Any], routing_input: RoutingInput) -> RoutedPrompt:
    if "messages" in fields:
        system = text_of(fields.get("system"))
        return prompt_of_messages(_messages(fields["messages"]), routing_input, system)
    value = fields.get("input", fields.get("prompt"))
    if not isinstance(value, (str, list)) or not value:
        raise ArgumentError("the body must have messages, an input or a prompt.")
    if "input" not in fields:
        return prompt_of_texts(value, routing_input)
    messages = [{"role": "user", "content": value}] if isinstance(value, str) else value
    instructions = fields.get("instructions")
    return prompt_of_messages(
        _messages(messages), routing_input, instructions if isinstance(instructions, str) else ""
    )


def _messages(value: Any) -> list[dict[str, Any]]:
    if type(value) is not list or not value or not all(type(each) is dict for each in value):
        raise ArgumentError("messages must be a non-empty list of objects.")
    return value


def _needs_of(fields: Mapping[str, Any], prompt: RoutedPrompt) -> frozenset[str]:
    needs = set(prompt.needs)
    if fields.get("tools") or fields.get("functions"):
        needs.add("tools")
    text = fields.get("text")
    for response_format in (
        fields.get("response_format"),
        text.get("format") if type(text) is dict else None,
    ):
        if type(response_format) is dict and response_format.get("type") in _JSON_FORMATS:
            needs.add("json")
    return frozenset(needs)
