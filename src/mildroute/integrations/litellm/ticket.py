"""The decision for a LiteLLM request, which its metadata carry from one attempt to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mildroute.decision.decision import Decision

__all__ = ["METADATA", "SIGNAL", "SIGNALS", "Ticket", "ticket_in"]

# Key of the plug-ins' signals in LiteLLM's metadata, and our key within the signals.
SIGNALS = "routing_plugin_signals"
SIGNAL = "mildroute"
# Keys of a request's metadata; the key depends on the API.
METADATA = ("litellm_metadata", "metadata")


class Ticket(dict[str, Any]):
    """The decision for a request, and the models that it has been sent to.

    It has its own class because clients can write metadata but cannot create Python objects, and it
    is a mapping because LiteLLM's loggers write metadata as JSON. It holds no text of the request.

    Attributes:
        decision_id: Id of the decision; empty until there is one.
        conversation: Digest of the conversation, or ``None``.
        models: Models from best to worst.
        experts: Expert for each model, or for each Auto Router tier.
        tried: Models that the request has been sent to.
        candidates: The list of models that LiteLLM may choose from, shared with LiteLLM.
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
        """Record a decision on the ticket."""
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
        """Return the best untried candidate, or the best candidate if all were tried.

        Return ``None`` if no candidate is on the ticket.
        """
        models = [model for model in self.models if model in candidates]
        untried = [model for model in models if model not in self.tried]
        return next(iter(untried or models), None)


def ticket_in(metadata: Any) -> Ticket | None:
    """Return the ticket in a request's metadata, or ``None``."""
    if not isinstance(metadata, Mapping):
        return None
    signals = metadata.get(SIGNALS)
    signal = signals.get(SIGNAL) if isinstance(signals, Mapping) else None
    for ticket in (signal, metadata.get(SIGNAL)):
        if isinstance(ticket, Ticket):
            return ticket
    return None
