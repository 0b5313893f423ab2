"""Requests in flight, bounded in total and for each client."""

from __future__ import annotations

from dataclasses import dataclass

from mildroute.gateway.http.errors import APIError

__all__ = ["InFlightLimiter", "Slot"]


@dataclass
class _Usage:
    """The requests and bytes that one client has in flight."""

    in_flight: int = 0
    body_bytes: int = 0


class InFlightLimiter:
    """A limiter of requests in flight and the bytes of their bodies, in total and per client.

    If clients share the gateway, none of them can hold more slots, or bytes, than are free: a
    single busy client gets half of them, two get a third each, and so on, and a new client gets as
    many as each of the others. These are the dynamic thresholds of Choudhury and Hahne with factor
    1, which need one comparison per request and no count of active clients. Without them, one key
    took 256 of 256 slots, and all others got a 503.

    Args:
        max_in_flight: Maximum number of concurrent requests.
        max_bytes: Maximum bytes of their bodies.

    Attributes:
        is_draining: Whether the gateway is about to stop. It still serves requests, but load
            balancers should send no new ones.
    """

    def __init__(self, max_in_flight: int, max_bytes: int) -> None:
        self.max_in_flight = max_in_flight
        self.max_bytes = max_bytes
        self.usage_of: dict[str, _Usage] = {}
        self.in_flight = 0
        self.body_bytes = 0
        self.is_draining = False

    def acquire(self) -> Slot:
        """Return a slot for one more request; raise an APIError if there are too many."""
        if self.in_flight >= self.max_in_flight:
            raise APIError(
                503,
                "too many requests are in flight; retry later.",
                code="overloaded",
                retry_after=1.0,
            )
        self.in_flight += 1
        return Slot(self)


class Slot:
    """One request in flight; it must be released once the request has ended."""

    def __init__(self, limiter: InFlightLimiter) -> None:
        self._limiter = limiter
        self._usage = _Usage()
        self._is_shared = False
        self._body_bytes = 0

    def assign(self, client: str, *, is_shared: bool) -> None:
        """Count the request for its client; raise an APIError if that client has too many.

        Args:
            client: Name of the client.
            is_shared: Whether there are other clients.
        """
        limiter = self._limiter
        usage = limiter.usage_of.setdefault(client, _Usage())
        if is_shared and usage.in_flight > limiter.max_in_flight - limiter.in_flight:
            raise _too_many("it holds its share of slots")
        self._is_shared = is_shared
        self._usage = usage
        usage.in_flight += 1

    def hold_bytes(self, size: int) -> None:
        """Count the bytes of a body, either those received so far or the announced total.

        Raises:
            APIError: There are too many bytes in flight.
        """
        more = size - self._body_bytes
        if more <= 0:
            return
        limiter = self._limiter
        free = limiter.max_bytes - limiter.body_bytes - more
        if free < 0:
            raise APIError(
                503,
                "the requests in flight hold too many bytes; retry later, or send less.",
                code="overloaded",
                retry_after=1.0,
            )
        if self._is_shared and self._usage.body_bytes > free:
            raise _too_many("it holds its share of bytes")
        limiter.body_bytes += more
        self._usage.body_bytes += more
        self._body_bytes = size

    def release(self) -> None:
        """Release the slot and its bytes."""
        self._limiter.in_flight -= 1
        self._limiter.body_bytes -= self._body_bytes
        self._usage.in_flight -= 1
        self._usage.body_bytes -= self._body_bytes


def _too_many(rule: str) -> APIError:
    message = f"this key has too many requests in flight ({rule}); wait for them, and retry."
    return APIError(429, message, retry_after=1.0)
