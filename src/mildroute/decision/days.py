"""Days of UTC, over which dollars are limited."""

from __future__ import annotations

__all__ = ["DAY", "ROUNDING", "start_of_day"]

# Seconds.
DAY = 86_400.0
# Maximum error of sums of dollars after a day of additions.
ROUNDING = 1e-9


def start_of_day(now: float) -> float:
    """Return the midnight of UTC before a time, both in seconds since 1970."""
    return now // DAY * DAY
