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

# Number of positive price weights in the default grid.
_STEPS = 12
_ROUNDING = 1e-9
# Value in errors of the price difference between the most expensive and the cheapest expert, at
# the ends of the price-weight grid.
_MIN_ERRORS = 0.003
_MAX_ERRORS = 30.0
# Share of the best score to keep by default.
DEFAULT_QUALITY = 0.99
# Confidence of a promise.
CONFIDENCE = 0.95
# Number of queries that a budget covers.
QUERIES = 1000


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
        *(
            float(f"{weight:.2g}")
            for weight in np.geomspace(_MIN_ERRORS, _MAX_ERRORS, _STEPS) / spread
        ),
    )


def point_of(router: TextRouter, target: Target | None) -> OperatingPoint | None:
    """Return a stored router's operating point: for a target if given, else its own.

    Return `None` if the router has no prices.
    """
    inner = router.router_
    if not isinstance(inner, FrontierRouter):
        if target is not None:
            raise ArgumentError(
                f"this router was fitted without prices and supports no {target.kind}, got"
                f" {target.value:g}; leave it out, or fit with prices."
            )
        return None
    return (
        (inner.operating_point or inner.at(inner.price_weight))
        if target is None
        else operating_point(inner, target)[0]
    )


def without_looks(router: TextRouter, target: Target | None = None) -> TextRouter:
    """Return a cascade's router without looks, which decides by inputs alone, for the same target.

    Args:
        router: Router over inputs whose router over vectors is a cascade.
        target: Target that replaces the router's own.
    """
    plain = router.router_.without_looks()
    target = target or router.target
    if target is None:
        point = point_of(router, None)
        target = Target("price weight", 0.0 if point is None else point.price_weight)
    result = copy(router)
    result.router_ = plain.operate_at(operating_point(plain, target)[0])
    return result


def operating_point(router: FrontierRouter, target: Target | None) -> tuple[OperatingPoint, str]:
    """Return the frontier's point for a target, and a description of the target."""
    if target is not None and target.kind == "price weight":
        return (
            router.at(target.value),
            f"price weight {target.value:g}: errors per dollar",
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
    """Return a curve's point for a budget or a quality.

    The default is 99% of the best single expert's score.
    """
    if target is not None and target.kind == "budget":
        return curve.for_budget(target.value, CONFIDENCE, QUERIES)
    return curve.for_quality(
        DEFAULT_QUALITY if target is None else target.value, CONFIDENCE, QUERIES
    )
