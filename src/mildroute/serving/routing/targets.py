"""Targets by name: what a client or a preset may ask of the operating frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mildroute._fit import Target, TargetKind
from mildroute.exceptions import ArgumentError
from mildroute.routers.operating_point import HIGHEST_QUALITY, quality_hint

__all__ = ["TARGETS", "target_named", "target_of_setting", "words_of"]


TARGETS: Mapping[str, TargetKind] = {"price_weight": "price weight", "quality": "quality", "budget": "budget"}
"""Keys of a setting and of a request, each with the kind of target it means."""


def target_named(name: str, value: Any) -> Target:
    """The target that a key and its value ask for.

    Args:
        name: ``"price_weight"``, ``"quality"`` or ``"budget"``.
        value: A number, or its text.

    Raises:
        ArgumentError: The value makes no sense; whether the target can be reached is for a router to say.

    Example:
        >>> target_named("quality", "0.95")
        Target(kind='quality', value=0.95)
        >>> target_named("quality", 95)
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: quality must be a share of the best single expert's score, got 95; did you mean 0.95?
    """
    try:
        number = math.nan if isinstance(value, bool) or not _is_plain(value) else float(value) + 0.0  # without the sign of zero
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(f"{name} must be a finite number that is not negative, got {value!r:.60}; leave it out for the usual one.")
    if name == "quality" and number > HIGHEST_QUALITY:
        raise ArgumentError(f"quality must be a share of the best single expert's score, got {number:g}; {quality_hint(number)}")
    return Target(TARGETS[name], number)


def _is_plain(value: Any) -> bool:
    """Whether a text is a number as JSON writes it: Python's ``float`` would take underscores and digits of other scripts, too."""
    return not isinstance(value, str) or (value.isascii() and "_" not in value)


def target_of_setting(value: Any) -> Target:
    """The target of a preset or a route: a price weight, or a mapping of one name to its value.

    Example:
        >>> target_of_setting(7), target_of_setting({"budget": 1.5})
        (Target(kind='price weight', value=7.0), Target(kind='budget', value=1.5))
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return target_named("price_weight", value)
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in TARGETS:
        raise ArgumentError(
            f"it must be a price weight, or one of {{quality: 0.95}}, {{budget: 1.5}} and {{price_weight: 7}}, got {value!r:.60}."
        )
    ((name, number),) = value.items()
    if isinstance(number, str):
        raise ArgumentError(f"{name} must be a number, got the text {number!r:.60}; leave out the quotation marks.")
    return target_named(name, number)


def words_of(target: Target | None) -> str:
    """A target as the log has it; empty for the router's own operating point.

    Example:
        >>> words_of(Target("quality", 0.95)), words_of(None)
        ('quality 0.95', '')
    """
    return "" if target is None else f"{target.kind} {target.value:.12g}"
