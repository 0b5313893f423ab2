"""Conversion of LiteLLM's routing context to a decision request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mildroute.decision.conversation import conversation_digest
from mildroute.decision.prompt import RoutingInput, prompt_of_messages
from mildroute.decision.request import DecisionRequest
from mildroute.decision.service import Caller
from mildroute.decision.settings import RoutingConfig
from mildroute.routers.frontier.target import Target

__all__ = ["RoutingContext", "caller_of", "decision_request"]


class RoutingContext(Protocol):
    """The part of LiteLLM's routing context that the integrations read and change."""

    structured_messages: list[dict[str, Any]]
    candidate_models: list[str]
    metadata: dict[str, Any]
    signals: dict[str, Any]


def decision_request(
    context: RoutingContext, routing: RoutingConfig, target: Target | None = None
) -> DecisionRequest:
    """Return the request to decide on.

    LiteLLM shows a plug-in only earlier tool calls, and not the request's tools.
    """
    prompt = prompt_of_messages(
        context.structured_messages, RoutingInput(routing.input, routing.input_characters)
    )
    conversation = None
    if prompt.opening is not None:
        conversation = conversation_digest(prompt.opening, _key_of(context.metadata))
    return DecisionRequest(
        prompt.text,
        target,
        conversation=conversation,
        is_first_turn=not prompt.has_answer,
        is_tool_result=prompt.is_tool_result,
        needs=frozenset(prompt.needs),
        tokens=prompt.estimate(),
    )


def caller_of(metadata: Mapping[str, Any]) -> Caller:
    """Return a request's origin: the requested model group and the key."""
    group = metadata.get("model_group")
    return Caller("litellm", group if isinstance(group, str) else "", _key_of(metadata))


def _key_of(metadata: Mapping[str, Any]) -> str:
    key = metadata.get("user_api_key_alias") or metadata.get("user_api_key_hash")
    return key if isinstance(key, str) else ""
