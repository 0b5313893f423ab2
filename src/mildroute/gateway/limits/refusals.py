"""Refusals of requests that exceed a limit, with messages for the client."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mildroute.decision.days import DAY, ROUNDING, start_of_day
from mildroute.gateway.keys import APIClient

__all__ = ["LimitExceeded", "too_expensive", "too_fast", "too_many_inputs", "unavailable"]


@dataclass(frozen=True)
class LimitExceeded:
    """The reason why a request is refused."""

    status: int
    message: str
    code: str
    seconds: float

    @property
    def retry_after(self) -> float:
        """Return the whole seconds to wait, at least one."""
        return float(max(1, math.ceil(min(self.seconds, DAY))))


def too_many_inputs(client: APIClient, requests: int, burst: float) -> LimitExceeded:
    """Refuse a request with more inputs than the key can ever send at once."""
    message = (
        f"This key may make {client.requests_per_minute:g} requests a minute, {math.floor(burst):,}"
        f" of them at once, and each input counts as one, got {requests:,}; send fewer inputs at a"
        " time."
    )
    return LimitExceeded(400, message, "too_many_inputs", 0.0)


def too_fast(client: APIClient, seconds: float) -> LimitExceeded:
    """Refuse a request that exceeds the rate of its key."""
    message = f"This key may make {client.requests_per_minute:g} requests a minute; slow down."
    return LimitExceeded(429, message, "rate_limit_exceeded", seconds)


def too_expensive(
    client: APIClient, dollars: float, spent: float, held: float, now: float
) -> LimitExceeded:
    """Refuse a request that may exceed the budget of its key.

    Args:
        client: The holder of the key.
        dollars: Maximum cost of the request.
        spent: Dollars that the key has spent today.
        held: Dollars reserved by requests in flight.
        now: Seconds since 1970.
    """
    limit = client.dollars_per_day or 0.0
    remaining = limit - spent
    seconds = start_of_day(now) + DAY - now
    if remaining <= ROUNDING:
        message = f"This key has spent its ${limit:g} for today; wait until midnight UTC."
        return LimitExceeded(429, message, "insufficient_quota", seconds)
    if dollars <= remaining + ROUNDING:
        message = (
            f"Requests in flight may use up the ${limit:g} that this key may spend today;"
            f" ${remaining - held:.4g} is not reserved. Retry when they have ended."
        )
        return LimitExceeded(429, message, "rate_limit_exceeded", 1.0)
    message = (
        f"This request may cost ${dollars:.4g}, and this key has ${remaining:.4g} of ${limit:g}"
        " left today; allow fewer tokens, or wait until midnight UTC."
    )
    return LimitExceeded(429, message, "insufficient_quota", seconds)


def unavailable() -> LimitExceeded:
    """Refuse a request because the store does not respond."""
    message = "The limits of this key cannot be checked at the moment; try again."
    return LimitExceeded(503, message, "limits_unavailable", 1.0)
