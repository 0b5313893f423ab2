"""Rate limits and daily budgets of clients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mildroute.exceptions import ArgumentError
from mildroute.serving.auth.keys import APIClient, KeyStore
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import Request

__all__ = ["DAY", "Authenticator", "LimitExceeded", "TokenBucket", "UsageLimiter", "start_of_day"]


# A bucket that fills at a steady rate: for requests, which are refused when it is empty, and for
# money, which is counted afterwards.


_GRACE = 1e-6


class TokenBucket:
    """How much may be taken now.

    It is full at first. What is had is never more than ``burst`` plus what has flowed in since, up to one microsecond of it, which
    covers the rounding of clocks: whoever waits for :meth:`seconds_until` gets what was waited for. For use in one thread.

    Args:
        rate_per_second: What flows in; 0 for a bucket that is emptied once.
        burst: What it can hold.
        clock: Seconds that only grow.

    Raises:
        ArgumentError: The rate is not finite or below 0, or the burst is not finite and positive.

    Example:
        >>> bucket = TokenBucket(2.0, 1.0, clock=lambda: 5.0)
        >>> bucket.take(), bucket.take(), bucket.seconds_until()
        (True, False, 0.5)
    """

    __slots__ = ("_at", "_burst", "_clock", "_grace", "_level", "_rate")

    def __init__(self, rate_per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not (math.isfinite(rate_per_second) and rate_per_second >= 0):
            raise ArgumentError(f"a rate must be a finite number of at least 0 a second, got {rate_per_second!r}; use 0 for no refill.")
        if not (math.isfinite(burst) and burst > 0):
            raise ArgumentError(f"a burst must be a finite number above 0, got {burst!r}; use 1 to allow one call at a time.")
        self._rate, self._burst, self._clock = rate_per_second, burst, clock
        self._grace = rate_per_second * _GRACE
        self._level, self._at = burst, clock()

    def level(self) -> float:
        """What is in it now; below zero if more was spent than there was."""
        now = self._clock()
        if now > self._at:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
            self._at = now
        return self._level

    def has(self, amount: float = 1.0) -> bool:
        """Whether so much could be taken now."""
        return self.level() + self._grace >= amount

    def take(self, amount: float = 1.0) -> bool:
        """Take so much, or nothing if there is less."""
        if not self.has(amount):
            return False
        self.spend(amount)
        return True

    def spend(self, amount: float) -> None:
        """Take so much in any case: for costs that are known only when they have arisen.

        Raises:
            ArgumentError: The amount is below 0 or not a finite number.
        """
        if not 0 <= amount < math.inf:
            raise ArgumentError(f"an amount must be a finite number of at least 0, got {amount!r}; leave out what is not known.")
        self._level = self.level() - amount

    def seconds_until(self, amount: float = 1.0) -> float:
        """Seconds until so much can be taken; infinite if it never can."""
        if self.has(amount):
            return 0.0
        if amount > self._burst or self._rate == 0:
            return math.inf
        return (amount - self._level) / self._rate


# What each client may ask and spend: a rate of requests, and dollars in a day of UTC.
#
# A request's price is known when it has ended. Until then an estimate is held back for it, so
# that many requests at once cannot run far past the limit: the caller's own estimate, or else
# what the client's most expensive requests of late have cost. Days are those of UTC: a client can be
# told when its next one begins, and after a restart the day's sum is read from the decision log.
# Each process counts for itself what it has spent since it started; several of them behind one
# name may together spend more.


DAY = 86_400.0
"""Seconds."""

_BURST_SECONDS = 10.0
_FIRST_ESTIMATE = 0.02
_FADING = 0.05


@dataclass(frozen=True)
class LimitExceeded:
    """Why a request is not let through.

    Args:
        status: Of the answer.
        message: For the client.
        code: As OpenAI's clients know it.
        seconds: Until it is worth trying again.
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


class UsageLimiter:
    """Lets requests of clients through, and counts what they cost. Its memory grows with the number of clients of the key file alone.

    Args:
        spent: Dollars that each client has spent today already, by name, as ``spent_since`` reads them from the decision log.
        clock: Seconds that only grow, for rates.
        now: Seconds since 1970, for days.

    Example:
        >>> gate, client = UsageLimiter(), APIClient("team-a", dollars_per_day=1.0)
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
        self._accounts: dict[str, ClientUsage] = {}

    def admit(self, client: APIClient, estimate: float | None = None) -> LimitExceeded | None:
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

    def admit_free(self, client: APIClient) -> LimitExceeded | None:
        """Let a request through that costs nothing, such as feedback, or say why not: only its rate counts, and no ``charge`` follows."""
        return None if client.requests_per_minute is None else self._account(client).too_fast()

    def charge(self, client: APIClient, dollars: float, estimate: float | None = None) -> None:
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

    def spent(self, client: APIClient) -> float:
        """Dollars of today; 0 for a client without limits, whose dollars are not counted."""
        account = self._accounts.get(client.name)
        return self._spent.get(client.name, 0.0) if account is None else account.today(self._now())

    def _account(self, client: APIClient) -> ClientUsage:
        account = self._accounts.get(client.name)
        if account is None:
            account = self._accounts[client.name] = ClientUsage(client, self._spent.pop(client.name, 0.0), self._read_on, self._clock)
        elif account.client is not client and account.client != client:
            account.change(client, self._clock)
        return account


class ClientUsage:
    """What one client has spent and holds."""

    __slots__ = ("_bucket", "_count", "_day", "_estimate", "_held", "_spent", "client")

    def __init__(self, client: APIClient, spent: float, day: float, clock: Callable[[], float]) -> None:
        self._spent, self._day = spent, day
        self._count, self._held, self._estimate = 0, 0.0, 0.0
        self._bucket: TokenBucket | None = None
        self.client = APIClient(client.name)
        self.change(client, clock)

    def change(self, client: APIClient, clock: Callable[[], float]) -> None:
        """New limits, or the first ones; a rate that stays goes on from where it is."""
        rate = client.requests_per_minute
        if rate != self.client.requests_per_minute:
            self._bucket = None if rate is None else TokenBucket(rate / 60, max(1.0, rate / 60 * _BURST_SECONDS), clock)
        self.client = client

    def today(self, now: float) -> float:
        if now // DAY > self._day:
            self._day, self._spent = now // DAY, 0.0
        return self._spent

    def short_of_money(self, now: float) -> LimitExceeded | None:
        limit = self.client.dollars_per_day
        if limit is None:
            return None
        spent = self.today(now)
        if spent >= limit:
            message = f"This key has spent its {limit:g} dollars of the day; the next day begins at midnight UTC."
            return LimitExceeded(429, message, "insufficient_quota", start_of_day(now) + DAY - now)
        if spent + self._held + self._count * (self._estimate or limit * _FIRST_ESTIMATE) >= limit:
            message = f"The requests under way may spend the rest of this key's {limit:g} dollars of the day; wait for them."
            return LimitExceeded(429, message, "rate_limit_exceeded", 1.0)
        return None

    def too_fast(self) -> LimitExceeded | None:
        if self._bucket is None or self._bucket.take():
            return None
        message = f"This key may make {self.client.requests_per_minute:g} requests a minute; slow down."
        return LimitExceeded(429, message, "rate_limit_exceeded", self._bucket.seconds_until())

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


# Who may come in: the client's key and what it may still ask and spend.


class Authenticator:
    """Knows clients by their keys.

    Args:
        key_store: All clients.
        usage_limiter: What each may ask and spend.
    """

    def __init__(self, key_store: KeyStore, usage_limiter: UsageLimiter) -> None:
        self._keyring, self._usage_limiter = key_store, usage_limiter

    def client_of(self, request: Request) -> APIClient:
        """Who calls; a APIError if nobody has that key."""
        sent = request.header(b"authorization")
        client = self._keyring.find(None if sent is None else sent.decode("latin-1"))
        if client is None:
            raise APIError(401, "a key of this gateway is needed, as 'Authorization: Bearer mr-...'; ask its operator for one.")
        return client

    def admit(self, client: APIClient) -> None:
        """Let one request in, or complain; each that is let in must be followed by one :meth:`charge`."""
        _complain(self._usage_limiter.admit(client))

    def admit_free(self, client: APIClient) -> None:
        """Let in a request that costs nothing, or complain; no charge follows."""
        _complain(self._usage_limiter.admit_free(client))

    def charge(self, client: APIClient, dollars: float) -> None:
        """Count what a request has cost."""
        self._usage_limiter.charge(client, dollars)


def _complain(refusal: LimitExceeded | None) -> None:
    if refusal is not None:
        raise APIError(refusal.status, refusal.message, code=refusal.code, retry_after=float(refusal.retry_after))
