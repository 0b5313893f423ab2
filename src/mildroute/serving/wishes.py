"""How much a client wants quality to cost: its headers, its route, its body."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mildroute.serving.complaints import ComplaintError
from mildroute.serving.settings import PolicyRules

__all__ = ["PRESET", "PRICE_WEIGHT", "price_weight_of"]

PRICE_WEIGHT, PRESET = b"x-mildroute-price-weight", b"x-mildroute-preset"
"""Headers, of which a request may have one."""


def price_weight_of(given: Mapping[str, Any], model: str, rules: PolicyRules) -> float | None:
    """The price weight to decide at, or none for the router's own.

    Args:
        given: What the client names under ``price_weight`` and ``preset``; if both, the number counts.
        model: A route, whose weight counts if the client names none.
        rules: Presets and routes.

    Raises:
        ComplaintError: The client names what is not there, or no number.

    Example:
        >>> rules = PolicyRules(presets={"cheap": 100.0}, routes={"fast": 7.0})
        >>> price_weight_of({"preset": "cheap"}, "mildroute", rules), price_weight_of({}, "fast", rules)
        (100.0, 7.0)
    """
    weight, preset = given.get("price_weight"), given.get("preset")
    if weight is not None:
        return _number(weight)
    if preset is not None:
        if not isinstance(preset, str) or preset not in rules.presets:
            known = ", ".join(sorted(rules.presets)) or "none is set up"
            raise ComplaintError(400, f"a preset must be one of the gateway's own: {known}.", param="preset")
        return rules.presets[preset]
    return rules.routes.get(model)


def _number(written: Any) -> float:
    try:
        weight = math.nan if isinstance(written, bool) else float(written)
    except (TypeError, ValueError, OverflowError):
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0):
        raise ComplaintError(
            400, "a price weight must be a finite number that is not negative; leave it out for the usual one.", param="price_weight"
        )
    return weight
