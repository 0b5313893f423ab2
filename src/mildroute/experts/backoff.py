"""When a failed call is tried again: waits with full jitter, and what a server's Retry-After means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from mildroute.experts.amounts import checked_amount, checked_count

__all__ = ["Backoff", "retry_after"]

_MOST_DOUBLINGS = 30


@dataclass(frozen=True)
class Backoff:
    """How often and how late a call is repeated.

    Args:
        retries: Further attempts after failures (lost connections, timeouts, 5xx, broken answers); such an attempt may cost money.
        first: Longest wait before the first of them, in seconds; each further one doubles it.
        longest: Longest wait of all, in seconds; also what a Retry-After is cut to.
        patience: For how many seconds a call that is refused for its rate (429) is repeated; refusals cost nothing and are no failures.

    Example:
        >>> Backoff(first=1.0).wait(3, chance=0.5)
        2.0
    """

    retries: int = 4
    first: float = 0.5
    longest: float = 60.0
    patience: float = 600.0

    def __post_init__(self) -> None:
        """Check all four."""
        checked_count("retries", self.retries, least=0)
        for name in ("first", "longest", "patience"):
            checked_amount(f"seconds of {name}", getattr(self, name))

    def wait(self, failures: int, *, chance: float) -> float:
        """Seconds before the next attempt: evenly spread between none and the longest, so that callers do not return together."""
        return chance * min(self.longest, self.first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, given as seconds or as a date; none where it cannot be read.

    Args:
        header: Its value.
        now: Seconds since 1970.

    Example:
        >>> retry_after("2.5", 0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0), retry_after("soon", 0)
        (2.5, 40.0, None)
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        seconds = _until(header, now)
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _until(header: str, now: float) -> float:
    try:
        return parsedate_to_datetime(header).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return math.nan
