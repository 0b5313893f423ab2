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
# Share of the queries at which an expert answers everything, up to rounding.
_ALL = 1 - 1e-9


def method_of(router: TextRouter) -> str:
    """Return a router's method: its stored name, its loss and whether it uses prices.

    The loss is included only if it was set explicitly.
    """
    inner = router.router_
    is_frontier = isinstance(inner, FrontierRouter)
    method = inner.routers_[0] if is_frontier else inner
    loss = f" with the loss {method.loss!r}" if isinstance(method, CustomLossRouter) else ""
    looks_suffix = (
        " with looks at answers" if isinstance(inner, CascadeRouter) and inner.looks_ else ""
    )
    return f"{_class_name(method)}{loss}{looks_suffix}{', for any price' if is_frontier else ''}"


def describe_router(router: TextRouter) -> dict[str, str]:
    """Return a router's method, encoder and judge for a report, by title."""
    judge = None if router.provenance is None else router.provenance.judge
    judge_row = {} if judge is None else {"learned from scores of": judge}
    parts = getattr(router.encoder_, "encoders_", [router.encoder_])
    return {
        "method": method_of(router),
        "encoder": " + ".join(map(_class_name, parts)),
        **judge_row,
    }


def _class_name(estimator: Any) -> str:
    return storage_name(type(estimator)) or type(estimator).__name__


def only_expert(point: OperatingPoint) -> int | None:
    """Return the index of the expert that answers everything, or `None` if several do."""
    experts = [expert for expert, share in enumerate(point.shares) if share >= _ALL]
    return experts[0] if experts else None


def saving_words(point: OperatingPoint, experts: Sequence[str]) -> str:
    """Describe the savings on the baseline's bill and the share of the best score kept."""
    name, bill = experts[point.baseline], format_dollars(point.dollars_per_1000)
    # A share of a zero score or a zero bill is undefined.
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
    """Describe the share of the best score kept, with its interval; "" if that score is 0."""
    if not point.best_score:
        return ""
    low, high = (f"{100 * end:.1f}" for end in point.kept_interval)
    interval = "" if np.isnan(point.kept_interval).any() else f" [{low}, {high}]"
    reference = (
        "its score"
        if point.best == point.baseline
        else f"the score of {experts[point.best]}, the best in the table"
    )
    return f"{point.kept:.1%}{interval} of {reference}"


def split_words(point: OperatingPoint, experts: Sequence[str], looks: int = 0) -> str:
    """Describe how a point decides: by the router, one expert, or a random split of two.

    The last ``looks`` names belong to looks; they are sentences and are quoted.
    """
    n_experts = len(experts) - looks
    experts = [name if index < n_experts else f"'{name}'" for index, name in enumerate(experts)]
    if not point.is_mixed:
        (vertex,) = point.vertices
        by_router = f"decides each request itself (price weight {vertex.price_weight:.4g})"
        return by_router if vertex.expert is None else f"sends all to {experts[vertex.expert]}"
    # Rounded so that both shares add up to 100% and neither is shown as 0.
    percent = min(max(round(100 * point.vertices[0].probability), 1), 99)
    first, second = (_vertex_words(vertex, experts) for vertex in point.vertices)
    return f"makes a {percent}/{100 - percent} random split between {first} and {second}"


def who_answers(point: OperatingPoint, experts: Sequence[str]) -> str:
    """Describe in a few words which experts answer at an operating point."""
    singles = [
        (vertex.probability, experts[vertex.expert])
        for vertex in point.vertices
        if vertex.expert is not None
    ]
    if not point.uses_router:
        shares = " and ".join(f"{share:.0%} to {name}" for share, name in singles)
        return f"{shares}, at random" if len(singles) > 1 else f"all to {singles[0][1]}"
    random_share = (
        f", but {singles[0][0]:.0%}, drawn at random, go to {singles[0][1]}" if singles else ""
    )
    return f"the router decides for each prompt{random_share}"


def _vertex_words(vertex: Vertex, experts: Sequence[str]) -> str:
    if vertex.expert is not None:
        return experts[vertex.expert]
    return f"the router at price weight {vertex.price_weight:.4g}"


def why_constant(
    router: FrontierRouter, point: OperatingPoint, target: Target | None
) -> str | None:
    """Explain why a point sends everything to one expert; return `None` if it does not."""
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
        no_guarantee = "no better expert, mix or router stays within the budget with 95% confidence"
        return (
            no_guarantee
            if expert != point.best
            else "the budget pays for it, and nothing scores higher on held-out rows"
        )
    fraction = DEFAULT_QUALITY if target is None else target.value
    median_point = router.for_quality(fraction, confidence=0.5)
    if median_point.dollars_per_1000 < CHEAPER * point.dollars_per_1000:
        return (
            f"too few rows to promise {100 * fraction:g}% of the score of {names[point.best]} with"
            " 95% confidence for less, though"
            f" {format_dollars(median_point.dollars_per_1000)} per 1,000 queries"
            " may do; collect more rows or ask for less quality"
        )
    if expert != point.best:
        return (
            f"it keeps {100 * fraction:g}% of the score of {names[point.best]}, and nothing cheaper"
            " does"
        )
    mix_note = "" if curve.gain[0] > 0 else ", and no router beats a random mix of single experts"
    return f"no cheaper expert or mix keeps {100 * fraction:g}% of its score{mix_note}"
