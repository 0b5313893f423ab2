"""A decision: the experts to call in order, the reason for the first, and probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mildroute.decision.prediction import Prediction
from mildroute.routers.frontier.target import Target

__all__ = ["REASONS", "Decision"]

# A sentence for each reason. If a later expert answers in place of the first choice, the client
# sees ``fallback`` instead.
REASONS = {
    "router": "the router's first choice",
    "split": (
        "the operating point lies between two vertices that choose different experts, and the"
        " request's id decided"
    ),
    "single": "the operating point sends every request to this expert",
    "pinned": "the client named this expert",
    "sticky": "the conversation stays with its expert",
    "exploration": "drawn at random to learn from",
    "out_of_distribution": "the input is unlike the training data: the safe default",
    "passthrough": "the gateway has no router yet: the default expert",
    "router_timeout": "the router had no time to answer: the safe default",
    "next_best": "the router's first choice cannot answer now: the next best",
}


@dataclass(frozen=True)
class Decision:
    """The experts to call for a request, in order.

    Args:
        order: Experts to call, best first; a later one is called only if the earlier ones fail.
            Empty if no expert can serve the request.
        reason: One of :data:`REASONS`.
        excluded: Reason why each excluded expert was left out: ``"circuit_open"``,
            ``"rate_limited"``, ``"context"``, ``"tools"``, ``"vision"``, ``"json"``, ``"path"``
            (its API has no such path), ``"absent"`` (the router knows it, but it cannot be called).
            Experts that are rate limited or whose circuit is open are nevertheless at the end of
            the order, because they may have recovered by then.
        propensities: Probability that each expert is called first, by name, over the draw between
            operating points and exploration; they add up to 1 over the eligible experts.
        look: Name of the cascade stage that was chosen to run first, or empty. The experts that it
            calls come first in the order, and their answers decide what follows.
        exploration_usd: Expected extra dollars of an expert drawn for exploration, compared with
            the router's choice.
        prediction: The router's view of the input; ``None`` if it was not used or timed out.
        experts: Experts that the router knows, or all experts if there is no router.
        router: Digest of the router; empty if the client named the expert or there is no router.
        target: The target of the request; ``None`` means the router's own operating point.
        first_choice: The router's choice before conversations, circuits and exploration; empty if
            it has none.
        decision_id: Id of the decision, to which feedback refers.

    Example:
        >>> decision = Decision(("small", "large"), "router", propensities={"small": 1.0})
        >>> decision.expert, decision.propensity
        ('small', 1.0)
    """

    order: tuple[str, ...]
    reason: str
    excluded: Mapping[str, str] = field(default_factory=dict)
    propensities: Mapping[str, float] = field(default_factory=dict)
    look: str = ""
    exploration_usd: float = 0.0
    prediction: Prediction | None = None
    experts: tuple[str, ...] = ()
    router: str = ""
    target: Target | None = None
    first_choice: str = ""
    decision_id: str = ""

    @property
    def selected(self) -> str:
        """The expert or the cascade stage that was chosen; empty if there is none."""
        return self.look or self.expert or ""

    @property
    def expert(self) -> str | None:
        """The expert to call first; ``None`` if no expert can serve the request."""
        return self.order[0] if self.order else None

    @property
    def propensity(self) -> float:
        """The probability with which the selected expert was chosen."""
        return self.propensities.get(self.selected, 0.0)

    @property
    def ranking(self) -> tuple[str, ...]:
        """The router's experts from best to worst; empty without a prediction."""
        return () if self.prediction is None else self.prediction.ranking

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability that each expert is the best choice; empty without a prediction."""
        prediction = self.prediction
        if prediction is None:
            return {}
        return dict(zip(prediction.experts, prediction.posterior, strict=True))

    @property
    def expected_score(self) -> float | None:
        """The expected score of the selected expert; ``None`` if unknown."""
        return None if self.prediction is None else self._expected(self.prediction.scores)

    @property
    def expected_dollars(self) -> float | None:
        """The expected dollars of the selected expert; ``None`` if unknown."""
        return None if self.prediction is None else self._expected(self.prediction.dollars)

    def _expected(self, values: tuple[float, ...] | None) -> float | None:
        experts = () if self.prediction is None else self.prediction.experts
        if values is None or self.selected not in experts:
            return None
        return values[experts.index(self.selected)]
