"""A fitted router and its operating point in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mildroute._format import format_dollars, format_score
from mildroute.fitting.targets import DEFAULT_QUALITY
from mildroute.fitting.text_router import TextRouter
from mildroute.persistence.registry import storage_name
from mildroute.routers.cascade.router import CascadeRouter
from mildroute.routers.frontier.operating_point import OperatingPoint, Vertex
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target
from mildroute.routers.surrogate import CustomLossRouter

# A point counts as cheaper if its bill is below this share of another's.
CHEAPER = 0.99
# Share of the queries from which an expert answers everything, up to rounding.
_ALL = 1 - 1e-9


def method_of(router: TextRouter) -> str:
    """Name the router over vectors as it is stored, with its loss and whether it uses prices.

    The loss is included only if it was set explicitly.
    """
    inner = router.router_
    is_frontier = isinstance(inner, FrontierRouter)
    learned = inner.routers_[0] if is_frontier else inner
    loss = f" with the loss {learned.loss!r}" if isinstance(learned, CustomLossRouter) else ""
    look = " with looks at answers" if isinstance(inner, CascadeRouter) and inner.looks_ else ""
    return f"{_class_name(learned)}{loss}{look}{', for any price' if is_frontier else ''}"


def describe_router(router: TextRouter) -> dict[str, str]:
    """Return the origin of a router's decisions for a report, by title."""
    judge = None if router.provenance is None else router.provenance.judge
    judged = {} if judge is None else {"learned from scores of": judge}
    parts = getattr(router.encoder_, "encoders_", [router.encoder_])
    return {"method": method_of(router), "encoder": " + ".join(map(_class_name, parts)), **judged}


def _class_name(estimator: Any) -> str:
    return storage_name(type(estimator)) or type(estimator).__name__


def only_expert(point: OperatingPoint) -> int | None:
    """Return the index of the expert that answers everything, or `None` if several do."""
    experts = [expert for expert, share in enumerate(point.shares) if share >= _ALL]
    return experts[0] if experts else None


def saving_words(point: OperatingPoint, experts: Sequence[str]) -> str:
    """Return the share saved of the baseline's bill, and the share kept of the best score."""
    name, bill = experts[point.baseline], format_dollars(point.dollars_per_1000)
    # Nothing can be kept of a score of 0, nor saved of a bill of 0.
    score = f"has a score of {format_score(point.score)}"
    share = _kept_words(point, experts)
    kept, has = (f"keeps {share}", f"has {share}") if share else (score, score)
    if not point.baseline_dollars_per_1000:
        spends = f"costs {bill} per 1,000 queries" if point.dollars_per_1000 else "costs nothing"
        return f"{spends}, while {name} costs nothing, and {has}"
    bills = f"{bill} instead of {format_dollars(point.baseline_dollars_per_1000)} per 1,000 queries"
    low, high = (f"{100 * end:.0f}" for end in point.saved_interval)
    if round(100 * point.saved) == 0:
        return f"costs as much as {name}, {kept}: {bills}"
    if point.saved < 0:
        low, high = (f"{-100 * end:.0f}" for end in point.saved_interval[::-1])
        return f"costs {-point.saved:.0%} [{low}, {high}] more than {name}, {has}: {bills}"
    return f"saves {point.saved:.0%} [{low}, {high}] of the bill of {name}, {kept}: {bills}"


def _kept_words(point: OperatingPoint, experts: Sequence[str]) -> str:
    """Return the share of the best score that is kept with its interval; "" if that is 0."""
    if not point.best_score:
        return ""
    low, high = (f"{100 * end:.1f}" for end in point.kept_interval)
    ends = "" if np.isnan(point.kept_interval).any() else f" [{low}, {high}]"
    whose = (
        "its score"
        if point.best == point.baseline
        else f"the score of {experts[point.best]}, the best in the table"
    )
    return f"{point.kept:.1%}{ends} of {whose}"


def split_words(point: OperatingPoint, experts: Sequence[str], looks: int = 0) -> str:
    """Return how a point decides: by the router, one expert, or two of these at random.

    The last names may be those of looks, which are sentences and are put in quotes.
    """
    first = len(experts) - looks
    experts = [name if index < first else f"'{name}'" for index, name in enumerate(experts)]
    if not point.is_mixed:
        (vertex,) = point.vertices
        itself = f"decides each request itself (price weight {vertex.price_weight:.4g})"
        return itself if vertex.expert is None else f"sends all to {experts[vertex.expert]}"
    # Rounded so that both add up to 100%, and neither is shown as 0.
    first = min(max(round(100 * point.vertices[0].probability), 1), 99)
    one, other = (_vertex_words(vertex, experts) for vertex in point.vertices)
    return f"makes a {first}/{100 - first} random split between {one} and {other}"


def who_answers(point: OperatingPoint, experts: Sequence[str]) -> str:
    """Return who answers at an operating point, in a few words."""
    singles = [
        (vertex.probability, experts[vertex.expert])
        for vertex in point.vertices
        if vertex.expert is not None
    ]
    if not point.uses_router:
        shares = " and ".join(f"{share:.0%} to {name}" for share, name in singles)
        return f"{shares}, at random" if len(singles) > 1 else f"all to {singles[0][1]}"
    drawn = f", but {singles[0][0]:.0%}, drawn at random, go to {singles[0][1]}" if singles else ""
    return f"the router decides for each prompt{drawn}"


def _vertex_words(vertex: Vertex, experts: Sequence[str]) -> str:
    if vertex.expert is not None:
        return experts[vertex.expert]
    return f"the router at price weight {vertex.price_weight:.4g}"


def why_constant(
    router: FrontierRouter, point: OperatingPoint, target: Target | None
) -> str | None:
    """Return why a point sends everything to one expert, or `None` if it does not."""
    expert, curve, names = only_expert(point), router.curve, router.experts_
    if expert is None:
        return None
    bills = curve.dollars[curve.singles]
    if expert == point.best and bills[expert] <= bills.min():
        return "it is the best in the table and the cheapest"
    if bills[expert] <= bills.min() and target is not None and target.kind == "quality":
        return (
            f"it is the cheapest and keeps {100 * target.value:g}% of the score of"
            f" {names[point.best]}"
        )
    if target is not None and target.kind == "price weight":
        return f"at price weight {target.value:g} it is the best for almost every query"
    if target is not None and target.kind == "budget":
        unsure = "no better expert, mix or router stays within the budget with 95% confidence"
        return (
            unsure
            if expert != point.best
            else "the budget pays for it, and nothing scores higher on held-out rows"
        )
    fraction = DEFAULT_QUALITY if target is None else target.value
    even = router.for_quality(fraction, confidence=0.5)
    if even.dollars_per_1000 < CHEAPER * point.dollars_per_1000:
        return (
            f"too few rows to promise {100 * fraction:g}% of the score of {names[point.best]} with"
            f" 95% confidence for less, though {format_dollars(even.dollars_per_1000)} per 1,000"
            " queries may do; collect more rows or ask for less quality"
        )
    if expert != point.best:
        return (
            f"it keeps {100 * fraction:g}% of the score of {names[point.best]}, and nothing cheaper"
            " does"
        )
    beaten = "" if curve.gain[0] > 0 else ", and no router beats a random mix of single experts"
    return f"no cheaper expert or mix keeps {100 * fraction:g}% of its score{beaten}"
