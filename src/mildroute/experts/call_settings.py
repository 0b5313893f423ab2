"""How an endpoint is called: how many calls at once, how long, how often again. Nothing here changes an answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from mildroute.experts.amounts import checked_amount, checked_count
from mildroute.experts.backoff import Backoff

__all__ = ["CallSettings", "Timeouts"]


@dataclass(frozen=True)
class Timeouts:
    """Seconds after which one attempt is given up.

    Args:
        total: From sending to the last byte.
        connect: Until there is a connection.
        read: Without a byte; as long as the total where it is not given, since models may think before they speak.

    Example:
        >>> Timeouts(30).connect
        10.0
    """

    total: float = 60.0
    connect: float = 10.0
    read: float | None = None

    def __post_init__(self) -> None:
        """Check all of them."""
        for name in ("total", "connect", "read"):
            if name != "read" or self.read is not None:
                checked_amount(f"seconds of a {name} timeout", getattr(self, name), positive=True)


@dataclass(frozen=True)
class CallSettings:
    """How calls are made.

    Args:
        concurrency: Calls at the same time.
        timeouts: Of one attempt.
        backoff: When a failed attempt is repeated.
        largest: Bytes of the longest answer that is read; a longer one is an error and never held whole.

    Example:
        >>> CallSettings(concurrency=2).timeouts.total
        60.0
    """

    concurrency: int = 8
    timeouts: Timeouts = field(default_factory=Timeouts)
    backoff: Backoff = field(default_factory=Backoff)
    largest: int = 4 * 2**20

    def __post_init__(self) -> None:
        """Check the counts."""
        for name in ("concurrency", "largest"):
            checked_count(name, getattr(self, name))
