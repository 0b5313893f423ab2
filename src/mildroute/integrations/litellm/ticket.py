"""The decision for a request of LiteLLM, which its metadata carry from one try to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mildroute.decision.decision import Decision

__all__ = ["METADATA", "SIGNAL", "SIGNALS", "Ticket", "ticket_in"]

# Key of the signals of plug-ins in LiteLLM's metadata, and the key of ours in them.
SIGNALS = "routing_plugin_signals"
SIGNAL = "mildroute"
# Metadata of a request; the name depends on its API.
METADATA = ("litellm_metadata", "metadata")


class Ticket(dict[str, Any]):
    """The decision for a request, and the models that it has been sent to.

    It is of a class of its own because clients can write metadata, but no classes; and a mapping
    because loggers of LiteLLM write metadata as JSON. It holds no word of the request.

    Attributes:
        decision_id: Id of the decision; empty until there is one.
        conversation: Digest of the conversation, or ``None``.
        models: Models from best to worst.
        experts: Expert of each model, or of each tier of an Auto Router.
        tried: Models that the request has been sent to.
        candidates: The list of models that LiteLLM may choose from, which it holds as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self.decision_id = ""
        self.conversation: str | None = None
        self.models: list[str] = []
        self.experts: dict[str, str] = {}
        self.tried: list[str] = []
        self.candidates: list[str] = []

    def enter(self, decision: Decision, conversation: str | None) -> None:
        """Write a decision on the ticket."""
        self.decision_id = decision.decision_id
        self.conversation = conversation
        self.update(
            decision_id=decision.decision_id,
            expert=decision.expert,
            reason=decision.reason,
            propensity=decision.propensity,
            router=decision.router,
        )

    def next_model(self, candidates: list[str]) -> str | None:
        """Return the best candidate that has not been tried, or the best of all.

        ``None`` if no candidate is on the ticket.
        """
        models = [model for model in self.models if model in candidates]
        untried = [model for model in models if model not in self.tried]
        return next(iter(untried or models), None)


def ticket_in(metadata: Any) -> Ticket | None:
    """Return the ticket of a request from its metadata; ``None`` if it has none."""
    if not isinstance(metadata, Mapping):
        return None
    signals = metadata.get(SIGNALS)
    signal = signals.get(SIGNAL) if isinstance(signals, Mapping) else None
    for ticket in (signal, metadata.get(SIGNAL)):
        if isinstance(ticket, Ticket):
            return ticket
    return None
