"""The inputs of a decision: a request, and the state of each expert that can serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mildroute.routers.frontier.target import Target

__all__ = ["AnswersRead", "DecisionRequest", "ExpertStatus"]

# The part of an expert's answer that a cascade can read before the client gets it.
AnswersRead = Literal["none", "beginning", "complete"]


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """One input, with everything that a decision depends on.

    Args:
        text: The input of the router.
        target: The quality, budget or price weight to decide at; ``None`` means the router's own
            operating point.
        request_id: Seed of the coin between two vertices of the operating point; if empty, the text
            is the seed.
        decision_id: Id of the decision; if empty, the decider creates one.
        conversation: A digest that stays the same while a conversation continues; ``None`` if the
            request belongs to no conversation.
        is_first_turn: Whether the conversation has no answer yet.
        is_tool_result: Whether the request ends with the result of a tool.
        owner: The only expert that can serve the request, because it holds the response that the
            request continues; ``None`` if every expert can.
        path: The API that is called, such as ``"chat/completions"``; empty if it does not matter.
        needs: Capabilities that an expert must have: ``"tools"``, ``"vision"``, ``"json"``.
        tokens: Maximum tokens of the input and the answer together.
        answers: Part of the answers that a cascade can read. With ``"none"``, a cascade decides by
            the input alone.
        without_logprobs: Experts that return no log-probabilities of their answers.

    Example:
        >>> DecisionRequest("What is 2 + 2?", request_id="req-17").coin_key
        'req-17'
    """

    text: str
    target: Target | None = None
    request_id: str = ""
    decision_id: str = ""
    conversation: str | None = None
    is_first_turn: bool = True
    is_tool_result: bool = False
    owner: str | None = None
    path: str = ""
    needs: frozenset[str] = frozenset()
    tokens: int = 0
    answers: AnswersRead = "none"
    without_logprobs: frozenset[str] = frozenset()

    @property
    def coin_key(self) -> str:
        """The seed of the coin between two vertices."""
        return self.request_id or self.text


@dataclass(frozen=True)
class ExpertStatus:
    """The state of one expert at the moment of a decision.

    Args:
        is_available: Whether the expert's circuit allows calls.
        has_capacity: Whether the expert can take a call soon and is not rate limited.
        context: Maximum tokens of a request and its answer together; ``None`` if unknown.
        capabilities: Capabilities of the expert; ``None`` means all of them.
        unserved_paths: APIs that the expert lacks.

    Example:
        >>> ExpertStatus(context=8192, capabilities=frozenset({"tools"})).is_available
        True
    """

    is_available: bool = True
    has_capacity: bool = True
    context: int | None = None
    capabilities: frozenset[str] | None = None
    unserved_paths: frozenset[str] = frozenset()
