"""Targets on the operating frontier, as set by clients, presets and routes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mildroute.exceptions import ArgumentError
from mildroute.routers.frontier.target import HIGHEST_QUALITY, Target, TargetKind, quality_hint

__all__ = ["TARGETS", "describe_target", "parse_target", "target_from_setting"]

# The kind of target that each key of a setting or a request sets.
TARGETS: Mapping[str, TargetKind] = {
    "price_weight": "price weight",
    "quality": "quality",
    "budget": "budget",
}


def parse_target(name: str, value: Any) -> Target:
    """Return the target that a key and its value describe.

    Args:
        name: ``"price_weight"``, ``"quality"`` or ``"budget"``.
        value: A number, or a number as text.

    Raises:
        ArgumentError: The value is not a target. The router checks whether it can reach the target.
    """
    number = _to_number(value)
    if not (math.isfinite(number) and number >= 0):
        # A list or an object in a client's body may contain data that must not appear in errors.
        is_shown = isinstance(value, (str, int, float))
        got = f"{value!r:.60}" if is_shown else f"a {type(value).__name__}"
        raise ArgumentError(
            f"{name} must be a finite number that is not negative, got {got}; leave it out for the"
            " default."
        )
    if name == "quality" and number > HIGHEST_QUALITY:
        raise ArgumentError(
            f"quality must be a share of the best single expert's score, got {number:g};"
            f" {quality_hint(number)}"
        )
    return Target(TARGETS[name], number)


def _to_number(value: Any) -> float:
    """Return a number, or one written as in JSON; NaN for anything else."""
    # Python's float() would also accept underscores and the digits of other scripts.
    is_plain = not isinstance(value, str) or (value.isascii() and "_" not in value)
    if isinstance(value, bool) or not is_plain:
        return math.nan
    try:
        return float(value) + 0.0  # -0.0 becomes 0.0
    except (TypeError, ValueError, OverflowError):
        return math.nan


def target_from_setting(value: Any) -> Target:
    """Return the target of a preset or a route: a price weight, or a mapping of one key."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return parse_target("price_weight", value)
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in TARGETS:
        raise ArgumentError(
            "it must be a price weight, or one of {quality: 0.95}, {budget: 1.5} and"
            f" {{price_weight: 7}}, got {value!r:.60}."
        )
    ((name, number),) = value.items()
    if isinstance(number, str):
        raise ArgumentError(
            f"{name} must be a number, got the text {number!r:.60}; leave out the quotation marks."
        )
    return parse_target(name, number)


def describe_target(target: Target | None) -> str:
    """Return a target as the log writes it; empty for the router's own operating point."""
    return "" if target is None else f"{target.kind} {target.value:.12g}"
