"""A router's decision for one input, with an explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute._format import format_dollars
from mildroute.routers._order import argmax_last, argsort_desc
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.random_split import select_vertex
from mildroute.routers.out_of_distribution import OutcomeModel

__all__ = ["ExpectedResults", "RoutedInput", "routed_input"]


@dataclass(frozen=True)
class RoutedInput:
    """A router's decision for one input.

    It holds the choice, and each expert's probability and expected results.

    Attributes:
        ranking: Indices of the experts in the order in which to call them.
        probabilities: Probability of choosing each expert: 1 for a single expert, unless a random
            draw decides between two.
        posterior: Posterior over experts, shape (p,).
        reason: ``"router"``; ``"split"`` if a random draw decided between two experts; ``"single"``
            if the operating point sends every input to this expert; ``"out_of_distribution"`` if
            the input is unlike the training data and goes to the best single expert.
        scores: Expected score of each expert, or `None` if the artifact cannot estimate it.
        dollars: Expected dollars of each expert, or `None`.
        is_out_of_distribution: Whether the input is unlike the router's training data.
        price_weight: Price weight in errors per dollar, or `None` if the router has no prices.
    """

    experts: tuple[str, ...]
    expert: int
    ranking: tuple[int, ...]
    probabilities: tuple[float, ...]
    posterior: tuple[float, ...]
    reason: str
    scores: tuple[float, ...] | None = None
    dollars: tuple[float, ...] | None = None
    is_out_of_distribution: bool = False
    price_weight: float | None = None

    @property
    def name(self) -> str:
        """Return the name of the expert that should answer."""
        return self.experts[self.expert]

    @property
    def why(self) -> str:
        """Explain in one sentence why this expert was chosen."""
        if self.reason == "out_of_distribution":
            return (
                "the text is unlike the training data, so the best single expert at this price"
                f" stands in: {self.name}."
            )
        if self.reason == "single":
            return f"the operating point sends every request to {self.name}."
        if self.reason == "split":
            chances = sorted(zip(self.probabilities, self.experts, strict=True), reverse=True)
            sides = " and ".join(
                f"{expert} ({chance:.0%})" for chance, expert in chances if chance > 0
            )
            return (
                "the operating point is a random split: a draw, the same for the same request,"
                f" chose {self.name} between {sides}."
            )
        at_price = "here" if self.dollars is None else "at this price"
        return f"the router chooses {self.name} {at_price}{self._comparison_with_best()}."

    def _comparison_with_best(self) -> str:
        """Compare this expert's score and dollars with the highest-scoring expert's."""
        if self.scores is None:
            return ""
        best = max(range(len(self.scores)), key=self.scores.__getitem__)
        if best == self.expert:
            return f": the highest expected score, {self.scores[best]:.3f}"
        comparison = (
            f": expected score {self.scores[self.expert]:.3f}, beside {self.scores[best]:.3f} of"
            f" {self.experts[best]}"
        )
        if self.dollars is None:
            return comparison
        dollars, best_dollars = (
            format_dollars(1000 * self.dollars[expert]) for expert in (self.expert, best)
        )
        return f"{comparison}, for {dollars} instead of {best_dollars} per 1,000"


class ExpectedResults:
    """The outcome model's predictions for some vectors; empty without a model.

    Attributes:
        scores: Expected score of each expert, shape (n, p), or `None`.
        dollars: Expected dollars of each expert, shape (n, p), or `None`.
        is_out_of_distribution: Whether each vector is unlike the training data, shape (n,).
    """

    scores: NDArray[np.float64] | None = None
    dollars: NDArray[np.float64] | None = None

    def __init__(self, model: OutcomeModel | None, vectors: Any) -> None:
        self._model = model
        self.is_out_of_distribution = np.zeros(vectors.shape[0], dtype=bool)
        if model is not None:
            self.scores, self.dollars = model.expected(vectors)
            self.is_out_of_distribution = model.is_out_of_distribution(vectors)

    def best_single(self, price_weight: float | None, n_experts: int) -> int:
        """Return the index of the best among the first ``n_experts``; 0 without a model."""
        if self._model is None:
            return 0
        return self._model.best_single(price_weight or 0.0, n_experts)


def routed_input(
    names: tuple[str, ...],
    row: int,
    vertices: list[tuple[float, NDArray[np.float64]]],
    draw: float,
    point: OperatingPoint | None,
    weight: float | None,
    expected: ExpectedResults,
    fallback: int,
) -> RoutedInput:
    """Return the decision for one row.

    Args:
        names: Names of the experts.
        row: Index of the row in ``expected``.
        vertices: Probability and posterior of each vertex of the point, shape (p,).
        draw: The request's number in [0, 1), which selects a vertex.
        point: The operating point, or `None`.
        weight: The point's price weight, or `None`.
        expected: Expected results of all rows.
        fallback: Index of the expert for inputs unlike the training data.
    """
    choices = [int(argmax_last(posterior[None])[0]) for _, posterior in vertices]
    vertex = select_vertex(draw, vertices[0][0])
    ranking = tuple(argsort_desc(vertices[vertex][1][None])[0].tolist())
    probabilities = [0.0] * len(names)
    for (chance, _), first in zip(vertices, choices, strict=True):
        probabilities[first] += chance
    mean = sum(chance * posterior for chance, posterior in vertices)
    is_out_of_distribution = bool(expected.is_out_of_distribution[row])
    reason = (
        "split"
        if len(set(choices)) > 1
        else "single"
        if point is not None and not point.uses_router
        else "router"
    )
    if is_out_of_distribution:
        ranking = (fallback, *(index for index in ranking if index != fallback))
        reason = "out_of_distribution"
        probabilities = [float(index == fallback) for index in range(len(names))]
    return RoutedInput(
        names,
        ranking[0],
        ranking,
        tuple(probabilities),
        tuple(np.asarray(mean).tolist()),
        reason,
        None if expected.scores is None else tuple(expected.scores[row].tolist()),
        None if expected.dollars is None else tuple(expected.dollars[row].tolist()),
        is_out_of_distribution,
        weight,
    )
