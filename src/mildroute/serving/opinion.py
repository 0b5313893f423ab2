"""What a router thinks of one input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mildroute.routers.operating import OperatingPoint

__all__ = ["Opinion"]


@dataclass(frozen=True)
class Opinion:
    """A router's view of one input, before anything else is heeded.

    It says the same as :class:`~mildroute.encoders.text_router.Prediction`, and the order of experts at each vertex of the operating
    point besides: who can answer now may differ from vertex to vertex, and with it the chance of each expert to be asked first.

    Args:
        experts: Names, in the router's order.
        posterior: Posterior over them; between two vertices the mean of theirs.
        price_weight: How much error one dollar was worth, or none where the router knows no prices.
        scores: Expected score of each, or none where the artifact cannot tell.
        dollars: Expected dollars of each, or none.
        is_far: Whether the input is unlike all that the router was trained on.
        router: Digest of the artifact.
        vertices: Probability of each vertex of the operating point, and the experts from best to worst there; by default one vertex,
            which ranks by the posterior.
        coin: A number from 0 to just below 1 that the request's id stands for; it decides between the vertices.
        default: Expert that stands in for inputs unlike the training data; empty if the artifact knows none.
        point: The operating point, or none where the router knows no prices.

    Example:
        >>> opinion = Opinion(("small", "large"), (0.6, 0.4), vertices=((0.7, ("small", "large")), (0.3, ("large", "small"))), coin=0.8)
        >>> opinion.ranking, opinion.probabilities
        (('large', 'small'), (0.7, 0.3))
    """

    experts: tuple[str, ...]
    posterior: tuple[float, ...]
    price_weight: float | None = None
    scores: tuple[float, ...] | None = None
    dollars: tuple[float, ...] | None = None
    is_far: bool = False
    router: str = ""
    vertices: tuple[tuple[float, tuple[str, ...]], ...] = ()
    coin: float = 0.0
    default: str = ""
    point: OperatingPoint | None = None

    @cached_property
    def orders(self) -> tuple[tuple[float, tuple[str, ...]], ...]:
        """The vertices; at least one."""
        return self.vertices or ((1.0, _order(self.experts, self.posterior)),)

    @property
    def drawn(self) -> int:
        """Index of the vertex on which the coin falls."""
        return 0 if self.coin < self.orders[0][0] else len(self.orders) - 1

    @property
    def ranking(self) -> tuple[str, ...]:
        """Experts from best to worst at the vertex on which the coin falls."""
        return self.orders[self.drawn][1]

    @property
    def expert(self) -> str:
        """Who should answer, as the library says it."""
        return self.default if self.is_far and self.default else self.ranking[0]

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probability with which each is the one who should answer, before the coin."""
        if self.is_far:
            return tuple(float(name == self.expert) for name in self.experts)
        found = dict.fromkeys(self.experts, 0.0)
        for chance, order in self.orders:
            found[order[0]] += chance
        return tuple(found.values())

    @property
    def is_single(self) -> bool:
        """Whether the operating point sends every input to one expert."""
        return self.point is not None and not self.point.uses_router


def _order(experts: tuple[str, ...], posterior: tuple[float, ...]) -> tuple[str, ...]:
    """From best to worst; of equals the last, as everywhere in the library."""
    places = sorted(range(len(experts) - 1, -1, -1), key=lambda place: -posterior[place])
    return tuple(experts[place] for place in places)
