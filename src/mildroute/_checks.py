"""Argument checks that several packages share."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from typing import Any

from mildroute.exceptions import ArgumentError

_MAX_COUNT = 2**63 - 1


def validate_amount(name: str, value: Any, *, positive: bool = False) -> float:
    """Return a finite, nonnegative number; raise an error for other values.

    Args:
        name: Name of the number, with its unit, for error messages.
        value: The number.
        positive: Whether zero is an error as well.
    """
    rule = "positive" if positive else "not negative"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # math.isfinite raises for huge integers.
    is_valid = is_number and 0 <= value <= sys.float_info.max and not (positive and value == 0)
    if not is_valid:
        raise ArgumentError(f"{name} must be a finite number, {rule}, got {value!r:.80}.")
    return float(value)


def validate_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return a whole number of at least ``minimum``; raise an error for other values."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not is_count or not minimum <= value <= _MAX_COUNT:
        raise ArgumentError(
            f"{name} must be a whole number of at least {minimum}, got {value!r:.80}."
        )
    return int(value)


def nearest(word: str, options: Iterable[str]) -> str:
    """Return the end of an error message: the closest option, and all options."""
    names = sorted(options)
    close = difflib.get_close_matches(word[:80], names, n=1, cutoff=0.6)
    return (f"did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(names)}."
