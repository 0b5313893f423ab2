"""An operating point in words: what it saves against whom, and how it decides."""

from __future__ import annotations

from collections.abc import Sequence

from mildroute.evaluation.wording import as_dollars, as_score
from mildroute.routers.operating import OperatingPoint, Vertex

__all__ = ["only_expert", "saving_words", "split_words"]

_ALL = 1 - 1e-9


def only_expert(point: OperatingPoint) -> int | None:
    """Index of the expert that answers everything, or none if several do.

    Example:
        >>> from mildroute.routers.operating import OperatingPoint
        >>> only_expert(OperatingPoint.at_weight(1.0, 2)) is None  # nothing was measured
        True
    """
    found = [expert for expert, share in enumerate(point.shares) if share >= _ALL]
    return found[0] if found else None


def saving_words(point: OperatingPoint, experts: Sequence[str]) -> str:
    """What is saved against the best single expert by score, and how much of its score is kept.

    Example:
        >>> import numpy as np
        >>> from mildroute.routers.operating import curve_of
        >>> errors, dollars = np.array([[0.0, 1.0], [0.0, 0.0]] * 20), np.tile([0.004, 0.001], (40, 1))
        >>> curve = curve_of(np.array([1.0]), np.array([[0, 1] * 20]), errors, dollars)
        >>> saving_words(curve.point(0, 0.95, 1000), ["large", "small"])
        'saves 38% [25, 50] of the bill of large, keeps 100.0% of its score: $2.50 instead of $4.00 per 1,000 queries'
    """
    name = experts[point.best]
    bills = f"{as_dollars(point.dollars_per_1000)} instead of {as_dollars(point.best_dollars_per_1000)} per 1,000 queries"
    kept = f"{point.score / point.best_score:.1%}" if point.best_score else as_score(point.score)
    low, high = (f"{100 * end:.0f}" for end in point.saved_interval)
    if not point.best_dollars_per_1000 or round(100 * point.saved) == 0:
        return f"saves nothing of the bill of {name}, keeps {kept} of its score: {bills}"
    if point.saved < 0:
        low, high = (f"{-100 * end:.0f}" for end in point.saved_interval[::-1])
        return f"costs {-point.saved:.0%} [{low}, {high}] more than {name}, has {kept} of its score: {bills}"
    return f"saves {point.saved:.0%} [{low}, {high}] of the bill of {name}, keeps {kept} of its score: {bills}"


def split_words(point: OperatingPoint, experts: Sequence[str]) -> str:
    """Who decides: the router, one expert for everything, or two of these at random.

    Example:
        >>> from dataclasses import replace
        >>> from mildroute.routers.operating import OperatingPoint, Vertex
        >>> point = replace(OperatingPoint.at_weight(1.0, 2), vertices=(Vertex(1.0, 0, 0.37), Vertex(1.0, None, 0.63)))
        >>> split_words(point, ["large", "small"])
        'mixes two points at random: 37% all to large, 63% as the router says (price weight 1)'
    """
    if not point.is_mixed:
        (vertex,) = point.vertices
        itself = f"decides each request itself (price weight {vertex.price_weight:.4g})"
        return itself if vertex.expert is None else f"sends {_vertex_words(vertex, experts)}"
    # Rounded so that both add up to 100%, and neither is shown as nothing.
    first = min(max(round(100 * point.vertices[0].probability), 1), 99)
    one, other = (_vertex_words(vertex, experts) for vertex in point.vertices)
    return f"mixes two points at random: {first}% {one}, {100 - first}% {other}"


def _vertex_words(vertex: Vertex, experts: Sequence[str]) -> str:
    if vertex.expert is not None:
        return f"all to {experts[vertex.expert]}"
    return f"as the router says (price weight {vertex.price_weight:.4g})"
