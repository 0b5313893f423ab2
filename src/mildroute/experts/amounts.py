"""Numbers in settings: seconds, dollars and counts, checked where they are given."""

from __future__ import annotations

import math
from typing import Any

from mildroute.errors import ArgumentError

__all__ = ["checked_amount", "checked_count"]


def checked_amount(name: str, value: Any, *, positive: bool = False) -> float:
    """A finite number that is not negative.

    Args:
        name: What it is, with its unit, for the message.
        value: The number.
        positive: Whether zero is refused, too.

    Example:
        >>> checked_amount("seconds of patience", 2)
        2.0
    """
    rule = "positive" if positive else "not negative"
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value < 0 or (positive and value == 0):
        raise ArgumentError(f"{name} must be a finite number, {rule}, got {value!r:.80}.")
    return float(value)


def checked_count(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number.

    Args:
        name: What it is, for the message.
        value: The number.
        least: The smallest that is allowed.

    Example:
        >>> checked_count("retries", -1, least=0)
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: retries must be a whole number of at least 0, got -1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{name} must be a whole number of at least {least}, got {value!r:.80}.")
    return value
