"""A router's view of one input, before conversations, circuits and exploration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.random_split import select_vertex

__all__ = ["Prediction", "rank_experts"]


@dataclass(frozen=True)
class Prediction:
    """A router's view of one input.

    A prediction agrees with ``RoutedInput`` and adds the order of the experts at each vertex of the
    operating point. If an expert is unavailable, the order changes at each vertex separately, and
    so does the probability that each expert is called first.

    Args:
        experts: Experts that the router knows.
        posterior: Probability that each expert is the best choice; between two vertices, the mean
            of their posteriors.
        price_weight: Error that one dollar is worth; ``None`` if the router has no prices.
        scores: Expected score of each expert; ``None`` if the artifact has no outcome model.
        dollars: Expected dollars of each expert, or ``None``.
        is_out_of_distribution: Whether the input is unlike the training data.
        router: Digest of the router.
        vertices: Probability of each vertex of the operating point, and its experts from best to
            worst; defaults to one vertex, ranked by the posterior.
        coin: A number in [0, 1) that the request's id determines; it selects the vertex.
        default: Expert for inputs unlike the training data; empty if the artifact has none.
        point: The operating point; ``None`` if the router has no prices.
        row: Vector of the input, which later stages of a cascade need.
        posteriors: The posterior of each vertex; empty if there is only one vertex.
    """

    experts: tuple[str, ...]
    posterior: tuple[float, ...]
    price_weight: float | None = None
    scores: tuple[float, ...] | None = None
    dollars: tuple[float, ...] | None = None
    is_out_of_distribution: bool = False
    router: str = ""
    vertices: tuple[tuple[float, tuple[str, ...]], ...] = ()
    coin: float = 0.0
    default: str = ""
    point: OperatingPoint | None = None
    row: Any = None
    posteriors: tuple[tuple[float, ...], ...] = ()

    @cached_property
    def orders(self) -> tuple[tuple[float, tuple[str, ...]], ...]:
        """The probability and the ranked experts of each vertex, of which there is at least one."""
        return self.vertices or ((1.0, rank_experts(self.experts, self.posterior)),)

    @property
    def drawn(self) -> int:
        """The index of the vertex that the coin selects."""
        return select_vertex(self.coin, self.orders[0][0])

    @property
    def drawn_posterior(self) -> tuple[float, ...]:
        """The posterior of the vertex that the coin selects."""
        return self.posteriors[self.drawn] if self.posteriors else self.posterior

    @property
    def ranking(self) -> tuple[str, ...]:
        """The experts from best to worst at the vertex that the coin selects."""
        return self.orders[self.drawn][1]

    @property
    def expert(self) -> str:
        """The expert that the library would choose."""
        return self.default if self.is_out_of_distribution and self.default else self.ranking[0]

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability that the library chooses each expert, before the coin toss."""
        if self.is_out_of_distribution:
            return tuple(float(name == self.expert) for name in self.experts)
        chances = dict.fromkeys(self.experts, 0.0)
        for chance, order in self.orders:
            chances[order[0]] += chance
        return tuple(chances.values())

    @property
    def is_single(self) -> bool:
        """Return whether the operating point sends every input to one expert."""
        return self.point is not None and not self.point.uses_router


def rank_experts(experts: tuple[str, ...], posterior: Sequence[float]) -> tuple[str, ...]:
    """Return the experts from best to worst; among equals, the last one comes first."""
    negated = [-value for value in posterior]
    indices = sorted(range(len(negated) - 1, -1, -1), key=negated.__getitem__)
    return tuple([experts[index] for index in indices])
