"""What was decided for a request, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["REASONS", "Decision"]

REASONS = {
    "router": "the router's first choice",
    "split": "the operating point lies between two vertices that choose different experts, and the request's id decided",
    "single": "the operating point sends every request to this expert",
    "named": "the client named this expert",
    "kept": "the conversation stays with its expert",
    "explored": "drawn by lot to learn from",
    "far": "the input is unlike the training data: the safe default",
    "late": "the router had no time to answer: the safe default",
    "next": "the router's first choice cannot answer now: the next best",
}
"""Words for each reason. A client whose answer came from another expert than the first choice is told ``fallback`` instead."""


@dataclass(frozen=True)
class Decision:
    """Whom to ask, in which order.

    Args:
        order: Experts to ask, best first; the later ones only if the earlier ones fail. Empty if nobody can answer.
        reason: A key of :data:`REASONS`.
        excluded: Why each other expert was left out: ``"down"``, ``"rate"``, ``"context"``, ``"tools"``, ``"vision"``, ``"json"``,
            ``"absent"`` (the router knows it, the gateway does not). Those that are down or over their rate stand at the end of the
            order nevertheless, because to try is better than to refuse.
        propensities: Probability with which each expert was to be the first, by name, before the coin and the lots; they add up to 1
            over the eligible ones.

    Example:
        >>> Decision(("small", "large"), "router", propensities={"small": 0.95, "large": 0.05}).expert
        'small'
    """

    order: tuple[str, ...]
    reason: str
    excluded: Mapping[str, str] = field(default_factory=dict)
    propensities: Mapping[str, float] = field(default_factory=dict)

    @property
    def expert(self) -> str | None:
        """Whom to ask first, or none."""
        return self.order[0] if self.order else None
