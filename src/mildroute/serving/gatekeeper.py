"""What each client may ask and spend: a rate of requests, and dollars in a day of UTC.

A request's price is known when it has ended. Until then an estimate is held back for it, so that many requests at once cannot run far past
the limit: the caller's own estimate, or else what the client's dearest requests of late have cost. Days are those of UTC: a client can be
told when its next one begins, and after a restart the day's sum is read from the decision log. Each process counts for itself what it has
spent since it started; several of them behind one name may together spend more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mildroute.serving.keys import Client
from mildroute.serving.rates import Bucket

__all__ = ["DAY", "Gatekeeper", "Refusal", "start_of_day"]

DAY = 86_400.0
"""Seconds."""

_BURST_SECONDS = 10.0
_FIRST_ESTIMATE = 0.02
_FADING = 0.05


@dataclass(frozen=True)
class Refusal:
    """Why a request is not let through.

    Args:
        status: Of the answer.
        message: For the client.
        code: As OpenAI's clients know it.
        seconds: Until it is worth trying again.

    Example:
        >>> Refusal(429, "too many requests", "rate_limit_exceeded", 0.25).retry_after
        '1'
    """

    status: int
    message: str
    code: str
    seconds: float

    @property
    def retry_after(self) -> str:
        """Value of the header ``Retry-After``: whole seconds, at least one."""
        return str(max(1, math.ceil(min(self.seconds, DAY))))


def start_of_day(now: float) -> float:
    """Midnight of UTC before a time, both in seconds since 1970.

    Example:
        >>> start_of_day(86_400.0 * 3 + 17)
        259200.0
    """
    return now // DAY * DAY


class Gatekeeper:
    """Lets requests of clients through, and counts what they cost. Its memory grows with the number of clients of the key file alone.

    Args:
        spent: Dollars that each client has spent today already, by name, as ``spent_since`` reads them from the decision log.
        clock: Seconds that only grow, for rates.
        now: Seconds since 1970, for days.

    Example:
        >>> gate, client = Gatekeeper(), Client("team-a", dollars_per_day=1.0)
        >>> gate.admit(client) is None
        True
        >>> gate.charge(client, 1.5)
        >>> gate.admit(client).code
        'insufficient_quota'
    """

    def __init__(
        self,
        spent: Mapping[str, float] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._now = clock, now
        self._spent, self._read_on = dict(spent or {}), now() // DAY
        self._accounts: dict[str, _Account] = {}

    def admit(self, client: Client, estimate: float | None = None) -> Refusal | None:
        """Let a request through, or say why not. Each one that is let through must be followed by one ``charge``.

        Args:
            client: Who asks.
            estimate: Dollars that it may cost, or none to judge by earlier requests.
        """
        if client.requests_per_minute is None and client.dollars_per_day is None:
            return None
        account = self._account(client)
        refusal = account.short_of_money(self._now()) or account.too_fast()
        if refusal is None:
            account.hold(estimate)
        return refusal

    def admit_free(self, client: Client) -> Refusal | None:
        """Let a request through that costs nothing, such as feedback, or say why not: only its rate counts, and no ``charge`` follows."""
        return None if client.requests_per_minute is None else self._account(client).too_fast()

    def charge(self, client: Client, dollars: float, estimate: float | None = None) -> None:
        """Count what a request has cost; nothing if it has failed.

        Args:
            client: Who asked.
            dollars: What it has cost.
            estimate: The same as for ``admit``.
        """
        if client.requests_per_minute is not None or client.dollars_per_day is not None:
            # Limits may have changed since the request was let through; what it costs is counted, and its old limits do not come back.
            account = self._accounts.get(client.name) or self._account(client)
            account.settle(dollars, estimate, self._now())

    def spent(self, client: Client) -> float:
        """Dollars of today; 0 for a client without limits, whose dollars are not counted."""
        account = self._accounts.get(client.name)
        return self._spent.get(client.name, 0.0) if account is None else account.today(self._now())

    def _account(self, client: Client) -> _Account:
        account = self._accounts.get(client.name)
        if account is None:
            account = self._accounts[client.name] = _Account(client, self._spent.pop(client.name, 0.0), self._read_on, self._clock)
        elif account.client is not client and account.client != client:
            account.change(client, self._clock)
        return account


class _Account:
    """What one client has spent and holds."""

    __slots__ = ("_bucket", "_count", "_day", "_estimate", "_held", "_spent", "client")

    def __init__(self, client: Client, spent: float, day: float, clock: Callable[[], float]) -> None:
        self._spent, self._day = spent, day
        self._count, self._held, self._estimate = 0, 0.0, 0.0
        self._bucket: Bucket | None = None
        self.client = Client(client.name)
        self.change(client, clock)

    def change(self, client: Client, clock: Callable[[], float]) -> None:
        """New limits, or the first ones; a rate that stays goes on from where it is."""
        rate = client.requests_per_minute
        if rate != self.client.requests_per_minute:
            self._bucket = None if rate is None else Bucket(rate / 60, max(1.0, rate / 60 * _BURST_SECONDS), clock)
        self.client = client

    def today(self, now: float) -> float:
        if now // DAY > self._day:
            self._day, self._spent = now // DAY, 0.0
        return self._spent

    def short_of_money(self, now: float) -> Refusal | None:
        limit = self.client.dollars_per_day
        if limit is None:
            return None
        spent = self.today(now)
        if spent >= limit:
            message = f"This key has spent its {limit:g} dollars of the day; the next day begins at midnight UTC."
            return Refusal(429, message, "insufficient_quota", start_of_day(now) + DAY - now)
        if spent + self._held + self._count * (self._estimate or limit * _FIRST_ESTIMATE) >= limit:
            message = f"The requests under way may spend the rest of this key's {limit:g} dollars of the day; wait for them."
            return Refusal(429, message, "rate_limit_exceeded", 1.0)
        return None

    def too_fast(self) -> Refusal | None:
        if self._bucket is None or self._bucket.take():
            return None
        message = f"This key may make {self.client.requests_per_minute:g} requests a minute; slow down."
        return Refusal(429, message, "rate_limit_exceeded", self._bucket.seconds_until())

    def hold(self, estimate: float | None) -> None:
        if estimate is None:
            self._count += 1
        else:
            self._held += estimate

    def settle(self, dollars: float, estimate: float | None, now: float) -> None:
        if estimate is None:
            self._count = max(0, self._count - 1)
        else:
            self._held = max(0.0, self._held - estimate)
        if dollars > 0:
            self._spent = self.today(now) + dollars
            # It rises at once and fades slowly: what is dear now and then is expected to be dear again.
            self._estimate = max(dollars, self._estimate + _FADING * (dollars - self._estimate))
