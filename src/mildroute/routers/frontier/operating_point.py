"""Operating points, which targets select, with their figures and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["OperatingPoint", "Vertex"]


@dataclass(frozen=True)
class Vertex:
    """One end of a random mix: the router at a price weight, or one expert for every request.

    Attributes:
        price_weight: Weight at which the router decides; for a single expert, the weight at which
            the other experts are ranked after it.
        expert: Index of the single expert, or `None` for the router.
    """

    price_weight: float
    expert: int | None
    probability: float


@dataclass(frozen=True)
class OperatingPoint:
    """A point of the operating frontier with its figures on held-out rows.

    Each interval has the stated confidence.

    Attributes:
        vertices: One vertex, or two from which each request draws at random.
        dollars_per_1000: Expected bill of 1,000 queries. The interval is for a batch of the stated
            size and covers refitting.
        score: Expected score. The interval is for a batch of the stated size.
        shares: Share of queries that each expert answers, shape (p,).
        saved: Share of the baseline's bill that is saved. The interval is for a batch of the stated
            size. Both bills are for the same rows, and the interval covers refitting and the draws
            of a mix.
        baseline: Index of the expert whose bill the user pays today.
        baseline_dollars_per_1000: Bill of the baseline.
        kept_interval: Interval of the kept share of the best single expert's score. It allows for
            the possibility that another expert is truly the best.
        best: Index of the expert with the highest score in the table.
        best_score: Score of that expert.
        best_dollars_per_1000: Bill of that expert.
        confidence: Confidence of each interval.

    Example:
        >>> import numpy as np
        >>> from mildroute.routers.frontier.measurement import measure_curve
        >>> dollars = np.array([[0.001, 0.003]] * 2)
        >>> curve = measure_curve([], np.empty((0, 2), int), np.eye(2), dollars)
        >>> point = curve.for_budget(2, 0.5, 10**9)
        >>> [(vertex.expert, round(vertex.probability, 2)) for vertex in point.vertices]
        [(0, 1.0)]
        >>> round(point.dollars_per_1000, 3)
        1.0
    """

    vertices: tuple[Vertex, ...]
    dollars_per_1000: float
    dollars_interval: tuple[float, float]
    score: float
    score_interval: tuple[float, float]
    shares: tuple[float, ...]
    saved: float
    saved_interval: tuple[float, float]
    baseline: int
    baseline_dollars_per_1000: float
    kept_interval: tuple[float, float]
    best: int
    best_score: float
    best_dollars_per_1000: float
    confidence: float

    @property
    def is_mixed(self) -> bool:
        """Return whether each request draws between two vertices."""
        return len(self.vertices) > 1

    @property
    def kept(self) -> float:
        """Return the kept share of the best single expert's score; NaN if that score is 0."""
        return self.score / self.best_score if self.best_score > 1e-9 else float("nan")

    @property
    def price_weight(self) -> float:
        """Return the price weight of the more probable vertex."""
        return max(self.vertices, key=lambda vertex: vertex.probability).price_weight

    @property
    def uses_router(self) -> bool:
        """Return whether any request is decided by the router rather than by a single expert."""
        return any(vertex.expert is None for vertex in self.vertices)

    @classmethod
    def at_weight(cls, price_weight: float, experts: int) -> OperatingPoint:
        """Return a point for the router at a price weight, without measurements."""
        unknown = float("nan")
        unknown_interval = (unknown, unknown)
        return cls(
            vertices=(Vertex(price_weight, None, 1.0),),
            dollars_per_1000=unknown,
            dollars_interval=unknown_interval,
            score=unknown,
            score_interval=unknown_interval,
            shares=(unknown,) * experts,
            saved=0.0,
            saved_interval=unknown_interval,
            baseline=0,
            baseline_dollars_per_1000=0.0,
            kept_interval=unknown_interval,
            best=0,
            best_score=0.0,
            best_dollars_per_1000=0.0,
            confidence=0.95,
        )

    @classmethod
    def from_plain(cls, fields: dict[str, Any]) -> OperatingPoint:
        """Return the point from the fields of ``dataclasses.asdict``."""
        vertices = tuple(Vertex(**vertex) for vertex in fields["vertices"])
        return cls(**{**fields, "vertices": vertices})
