"""What a router thinks of one input."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Opinion"]


@dataclass(frozen=True)
class Opinion:
    """A router's view of one input, before anything else is heeded.

    Args:
        experts: Names, in the router's order.
        posterior: Probability that each is the one to ask, at the price weight.
        price_weight: How much error one dollar was worth, or none where the router knows no prices.
        scores: Expected score of each, or none where the artifact cannot tell.
        dollars: Expected dollars of each, or none.
        is_far: Whether the input is unlike all that the router was trained on.
        router: Digest of the artifact.

    Example:
        >>> Opinion(("small", "large"), (0.8, 0.2)).ranking
        ('small', 'large')
    """

    experts: tuple[str, ...]
    posterior: tuple[float, ...]
    price_weight: float | None = None
    scores: tuple[float, ...] | None = None
    dollars: tuple[float, ...] | None = None
    is_far: bool = False
    router: str = ""

    @property
    def ranking(self) -> tuple[str, ...]:
        """Experts from best to worst; of equals the first."""
        order = sorted(range(len(self.experts)), key=lambda place: -self.posterior[place])
        return tuple(self.experts[place] for place in order)
