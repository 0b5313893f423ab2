"""Delays before retries: backoff with full jitter, and the header Retry-After."""

from __future__ import annotations

import math
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from mildroute._checks import validate_amount, validate_count

__all__ = ["Backoff", "retry_after"]

_MAX_DOUBLINGS = 30


@dataclass(frozen=True)
class Backoff:
    """A rule for the number of retries of a call and the delays before them.

    Args:
        retries: Additional attempts after failures (lost connections, timeouts, 5xx, broken
            answers); such an attempt may cost money.
        first: Maximum seconds before the first retry; the maximum doubles with each further retry.
        longest: Maximum seconds before any retry, even if a Retry-After header requests more.
        patience: Seconds for which a rate-limited call (429) is retried; such rejections cost
            nothing and are not failures.

    Example:
        >>> Backoff(first=1.0).wait(3, jitter=0.5)
        2.0
    """

    retries: int = 4
    first: float = 0.5
    longest: float = 60.0
    patience: float = 600.0

    def __post_init__(self) -> None:
        """Validate the settings."""
        validate_count("retries", self.retries, minimum=0)
        for name in ("first", "longest", "patience"):
            validate_amount(f"seconds of {name}", getattr(self, name))

    def wait(self, failures: int, *, jitter: float) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            failures: Number of failed attempts.
            jitter: Random share of the maximum wait, so that callers do not retry together.
        """
        return jitter * min(self.longest, self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))


def retry_after(header: str | None, now: float) -> float | None:
    """Return the seconds in a Retry-After header, or ``None`` if it is missing or malformed.

    Args:
        header: Value of the header: seconds or a date.
        now: Seconds since 1970.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
