"""The choice of a fitted router's operating point for a target."""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.frontier.curve import CostQualityCurve
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target

# Price weights of the default grid above 0.
_STEPS = 12
_ROUNDING = 1e-9
# Errors that the whole difference between the most expensive and the cheapest expert is worth at
# the ends of the grid of price weights.
_LEAST, _MOST = 0.003, 30.0
# Share of the score that is kept if there is no target.
DEFAULT_QUALITY = 0.99
# For promises: their probability, and the size of the batch that a budget covers.
CONFIDENCE, QUERIES = 0.95, 1000


def default_price_weights(dollars: NDArray[np.float64]) -> tuple[float, ...]:
    """Return price weights from "only quality counts" to "only money counts" for these dollars.

    Args:
        dollars: Dollars of each expert on each row, shape (n, p).

    Returns:
        Ascending weights, from 0.
    """
    spread = float(
        np.ptp(dollars, axis=1).mean()
    )  # per row, because the most expensive expert may change from row to row
    if spread <= _ROUNDING * dollars.mean():
        return (0.0, 1.0)
    return (
        0.0,
        *(float(f"{weight:.2g}") for weight in np.geomspace(_LEAST, _MOST, _STEPS) / spread),
    )


def point_of(router: TextRouter, target: Target | None) -> OperatingPoint | None:
    """Return the operating point of a stored router: the one for a target, else its own.

    Return `None` if the router has no prices.
    """
    inner = router.router_
    if not isinstance(inner, FrontierRouter):
        if target is not None:
            raise ArgumentError(
                f"this router was fitted without prices and knows no {target.kind}, got"
                f" {target.value:g}; leave it out, or fit with prices."
            )
        return None
    return (
        (inner.operating_point or inner.at(inner.price_weight))
        if target is None
        else operating_point(inner, target)[0]
    )


def without_looks(router: TextRouter, target: Target | None = None) -> TextRouter:
    """Return a router that decides by inputs alone, for the same target as a cascade.

    Args:
        router: Router over inputs whose router over vectors is a cascade.
        target: Target that replaces the one of the router's operating point.
    """
    plain = router.router_.without_looks()
    target = target or router.target
    if target is None:
        own = point_of(router, None)
        target = Target("price weight", 0.0 if own is None else own.price_weight)
    copied = copy(router)
    copied.router_ = plain.operate_at(operating_point(plain, target)[0])
    return copied


def operating_point(router: FrontierRouter, target: Target | None) -> tuple[OperatingPoint, str]:
    """Return the point of a router's frontier for a target, and the target in words."""
    if target is not None and target.kind == "price weight":
        return (
            router.at(target.value),
            f"price weight {target.value:g}: a dollar is worth that many errors",
        )
    point = resolve(router.curve, target)
    if target is not None and target.kind == "budget":
        return point, f"best score within {target.value:g} dollars per 1,000 queries"
    fraction = DEFAULT_QUALITY if target is None else target.value
    return (
        point,
        (
            f"cheapest point that keeps {fraction:.1%} of the score of"
            f" {router.experts_[point.best]}, the best in the table"
        ),
    )


def resolve(curve: CostQualityCurve, target: Target | None) -> OperatingPoint:
    """Return the point of a curve for a budget or a quality.

    The default is 99% of the score of the best single expert by score.
    """
    if target is not None and target.kind == "budget":
        return curve.for_budget(target.value, CONFIDENCE, QUERIES)
    return curve.for_quality(
        DEFAULT_QUALITY if target is None else target.value, CONFIDENCE, QUERIES
    )
