"""UTC days, for daily limits on dollars."""

from __future__ import annotations

__all__ = ["DAY", "ROUNDING", "start_of_day"]

# Seconds in a day.
DAY = 86_400.0
# Maximum rounding error of a sum of dollars after a day of additions.
ROUNDING = 1e-9


def start_of_day(now: float) -> float:
    """Return the last UTC midnight before a time, both in seconds since 1970."""
    return now // DAY * DAY
