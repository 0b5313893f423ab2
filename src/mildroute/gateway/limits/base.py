"""The interface of limits, which are kept in memory or in Redis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from mildroute.gateway.keys import APIClient
from mildroute.gateway.limits.refusals import LimitExceeded

__all__ = ["BURST_SECONDS", "Limits", "Reservation", "burst_of", "countable", "requests_per_second"]

# A key may use the requests of this many seconds in one burst.
BURST_SECONDS = 10.0


class Reservation(NamedTuple):
    """Dollars held for a request until it is settled."""

    id: str
    client: str
    dollars: float


class Limits(Protocol):
    """The limits of clients, which admit requests and count their cost."""

    async def start(self) -> None:
        """Start; call this once, before the first request."""

    async def close(self) -> None:
        """Write pending data and release connections."""

    def refusal(self, client: APIClient) -> LimitExceeded | None:
        """Return why every request of a client would be refused now, judged without I/O."""

    async def reserve(
        self,
        client: APIClient,
        dollars: float = 0.0,
        *,
        requests: int = 1,
        is_bounded: bool = True,
    ) -> Reservation | LimitExceeded | None:
        """Admit a request and hold its maximum cost.

        Args:
            client: The holder of the key.
            dollars: Maximum cost of the request; 0 if it calls no expert.
            requests: Number of requests to count it as.
            is_bounded: Whether the request sets its own maximum of tokens. If so, its dollars must
                fit into the remaining budget. Any other request is admitted if any budget remains,
                because the gateway's settings, not the client, determine its maximum.

        Returns:
            The reservation, to be settled once; ``None`` if the request is admitted and nothing is
            held; or the reason for a refusal.
        """

    def settle(self, reservation: Reservation | None, dollars: float) -> None:
        """Replace the dollars held for a request by its actual cost, without waiting."""

    def budgets(self) -> Iterator[tuple[str, float, float]]:
        """Yield name, today's remaining dollars and held dollars of each client with a budget."""


def requests_per_second(client: APIClient) -> float:
    """Return the rate at which the bucket of a key is filled."""
    return (client.requests_per_minute or 0.0) / 60.0


def burst_of(client: APIClient) -> float:
    """Return the number of requests that a key may send at once."""
    return max(1.0, requests_per_second(client) * BURST_SECONDS)


def countable(dollars: float) -> float:
    """Return the dollars if they are positive and finite, and 0 otherwise."""
    return dollars if 0 < dollars < math.inf else 0.0
