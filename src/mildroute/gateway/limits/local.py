"""Limits kept in the memory of one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from mildroute.decision.days import DAY, ROUNDING
from mildroute.gateway.keys import APIClient
from mildroute.gateway.limits.base import Reservation, burst_of, countable, requests_per_second
from mildroute.gateway.limits.refusals import (
    LimitExceeded,
    too_expensive,
    too_fast,
    too_many_inputs,
)

__all__ = ["LocalLimits"]

# Tolerance for clock rounding, so that a client is served if it waits as long as it was told to.
_GRACE = 1e-6


@dataclass
class _Account:
    """The state of one key.

    Attributes:
        client: The client and its limits at the latest request.
        day: The UTC day of ``spent``, in days since 1970.
        spent: Dollars spent on that day.
        held: Dollars of open reservations, by id.
        level: Requests that the rate admits now.
        filled: Time at which ``level`` was computed, on the monotonic clock.
    """

    client: APIClient
    day: int
    spent: float
    level: float
    filled: float
    held: dict[str, float] = field(default_factory=dict)


class LocalLimits:
    """Limits kept in the memory of one process.

    Memory grows with the number of keys that have limits.

    Args:
        spent: Dollars that each client had already spent today before the start, by name.
        clock: Returns monotonic seconds, for rates.
        now: Returns seconds since 1970, for days.
    """

    def __init__(
        self,
        spent: Mapping[str, float] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._now = now
        self._spent_before = dict(spent or {})
        self._started = self._today()
        self._accounts: dict[str, _Account] = {}
        self._number = 0

    async def start(self) -> None:
        """Do nothing; local limits need no preparation."""

    async def close(self) -> None:
        """Do nothing; local limits are not stored."""

    def refusal(self, client: APIClient) -> LimitExceeded | None:
        """Return why every request of a client would be refused now."""
        if not client.has_limits:
            return None
        account = self._account(client)
        if client.requests_per_minute is not None and (wait := self._wait(account, 1)) > 0:
            return too_fast(client, wait)
        limit = client.dollars_per_day
        if limit is not None and limit - account.spent <= ROUNDING:
            return too_expensive(client, 0.0, account.spent, 0.0, self._now())
        return None

    async def reserve(
        self,
        client: APIClient,
        dollars: float = 0.0,
        *,
        requests: int = 1,
        is_bounded: bool = True,
    ) -> Reservation | LimitExceeded | None:
        """Admit a request and hold its maximum cost."""
        if not client.has_limits:
            return None
        account = self._account(client)
        if client.requests_per_minute is not None:
            burst = burst_of(client)
            if requests > burst:
                return too_many_inputs(client, requests, burst)
            if (wait := self._wait(account, requests)) > 0:
                return too_fast(client, wait)
        reservation = None
        if client.dollars_per_day is not None and dollars > 0:
            held = sum(account.held.values())
            free = client.dollars_per_day - account.spent - held
            if free <= ROUNDING or (is_bounded and dollars > free + ROUNDING):
                return too_expensive(client, dollars, account.spent, held, self._now())
            self._number += 1
            reservation = Reservation(str(self._number), client.name, dollars)
            account.held[reservation.id] = dollars
        if client.requests_per_minute is not None:
            account.level -= requests
        return reservation

    def settle(self, reservation: Reservation | None, dollars: float) -> None:
        """Replace the dollars held for a request by its actual cost."""
        if reservation is None:
            return
        account = self._accounts[reservation.client]
        self._begin_day(account)
        del account.held[reservation.id]
        account.spent += countable(dollars)

    def budgets(self) -> Iterator[tuple[str, float, float]]:
        """Yield name, today's remaining dollars and held dollars of each client with a budget."""
        for account in self._accounts.values():
            limit = account.client.dollars_per_day
            if limit is not None:
                self._begin_day(account)
                yield account.client.name, limit - account.spent, sum(account.held.values())

    def spent(self, client: str) -> float:
        """Return the dollars that a client has spent today."""
        account = self._accounts.get(client)
        return 0.0 if account is None else account.spent

    def _account(self, client: APIClient) -> _Account:
        """Return the account of a client, with its current limits and day."""
        account = self._accounts.get(client.name)
        if account is None:
            spent = self._spent_before.get(client.name, 0.0)
            account = _Account(client, self._started, spent, burst_of(client), self._clock())
            self._accounts[client.name] = account
        account.client = client
        self._begin_day(account)
        return account

    def _begin_day(self, account: _Account) -> None:
        today = self._today()
        if today > account.day:
            account.day = today
            account.spent = 0.0

    def _today(self) -> int:
        return int(self._now() // DAY)

    def _wait(self, account: _Account, requests: int) -> float:
        """Fill the bucket of a key; return the seconds until it admits this many requests."""
        rate = requests_per_second(account.client)
        now = self._clock()
        filled = account.level + max(0.0, now - account.filled) * rate
        account.level = min(burst_of(account.client), filled)
        account.filled = now
        return (
            0.0 if account.level + rate * _GRACE >= requests else (requests - account.level) / rate
        )
