"""Rate limits and daily budgets of clients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
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

    It is full at first. What is had is never more than ``burst`` plus what has flowed in since, up
    to one microsecond of it, which covers the rounding of clocks: whoever waits for
    :meth:`seconds_until` gets what was waited for. For use in one thread.

    Args:
        rate_per_second: What flows in; 0 for a bucket that is emptied once.

    Raises:
        ArgumentError: The rate is not finite or below 0, or the burst is not finite and positive.
    """

    __slots__ = ("_at", "_burst", "_clock", "_grace", "_level", "_rate")

    def __init__(
        self, rate_per_second: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not (math.isfinite(rate_per_second) and rate_per_second >= 0):
            raise ArgumentError(
                f"a rate must be a finite number of at least 0 a second, got {rate_per_second!r};"
                " use 0 for no refill."
            )
        if not (math.isfinite(burst) and burst > 0):
            raise ArgumentError(
                f"a burst must be a finite number above 0, got {burst!r}; use 1 to allow one call"
                " at a time."
            )
        self._rate = rate_per_second
        self._burst = burst
        self._clock = clock
        self._grace = rate_per_second * _GRACE
        self._level = burst
        self._at = clock()

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
            raise ArgumentError(
                f"an amount must be a finite number of at least 0, got {amount!r}; leave out what"
                " is not known."
            )
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
# A request's cost is known when it has ended. Until then a reservation is held for it: the most
# that it can cost. Guesses from earlier requests let a key of $0.10 a day spend $10.00 in 200
# requests at once, and refused a key of $100,000 beyond 50 of them. Days are those of UTC: a client
# can be told when its next one begins, and after a restart the day's sum is read from the decision
# log. Each process counts for itself what it has spent since it started; several of them behind one
# name may together spend more.


# Seconds.
DAY = 86_400.0

_BURST_SECONDS = 10.0
# Dollars by which sums may be off after a day of additions.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class LimitExceeded:
    """Why a request is not let through."""

    status: int
    message: str
    code: str
    seconds: float

    @property
    def retry_after(self) -> str:
        """Value of the header ``Retry-After``: whole seconds, at least one."""
        return str(max(1, math.ceil(min(self.seconds, DAY))))


def start_of_day(now: float) -> float:
    """Midnight of UTC before a time, both in seconds since 1970."""
    return now // DAY * DAY


class UsageLimiter:
    """Lets requests of clients through, and counts what they cost.

    Its memory grows with the number of clients of the key file alone.

    Args:
        spent: Dollars that each client has spent today already, by name, as ``DailySpend`` reads
            them from the decision log.
        now: Seconds since 1970, for days.
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
        self._spent = dict(spent or {})
        self._read_on = now() // DAY
        self._accounts: dict[str, ClientUsage] = {}

    def admit(self, client: APIClient) -> LimitExceeded | None:
        """Let a request through by its rate, before its body is read, or say why not.

        A client that has spent its day is refused here already, and keeps its rate.
        """
        if client.requests_per_minute is None and client.dollars_per_day is None:
            return None
        account = self._account(client)
        return account.check_day(self._now()) or account.check_rate()

    def reserve(
        self, client: APIClient, dollars: float, *, is_bounded: bool = True
    ) -> LimitExceeded | None:
        """Hold the most that a request can cost, or say why not; one ``settle`` must follow.

        Args:
            client: Whose request it is.
            dollars: The most that it can cost.
            is_bounded: Whether the request itself names its most tokens: then it must fit into what
                is left. Any other is let through if anything is left, because what it can cost is a
                setting of the gateway and no choice of the client.
        """
        if client.dollars_per_day is None:
            return None
        return self._account(client).reserve(dollars, is_bounded, self._now())

    def admit_free(self, client: APIClient) -> LimitExceeded | None:
        """Let a request through that costs nothing, such as feedback, or say why not.

        Only its rate counts.
        """
        return None if client.requests_per_minute is None else self._account(client).check_rate()

    def settle(self, client: APIClient, dollars: float, reserved: float = 0.0) -> None:
        """Count what a request has cost, and release what was held for it.

        Args:
            client: Whose request it was.
            dollars: What it has cost; nothing if it has failed.
            reserved: What was held for it.
        """
        if client.requests_per_minute is not None or client.dollars_per_day is not None:
            # Limits may have changed since the request was let through; what it costs is counted,
            # and its old limits do not come back.
            account = self._accounts.get(client.name) or self._account(client)
            account.settle(dollars, reserved, self._now())

    def spent(self, client: APIClient) -> float:
        """Dollars of today; 0 for a client without limits, whose dollars are not counted."""
        account = self._accounts.get(client.name)
        return self._spent.get(client.name, 0.0) if account is None else account.today(self._now())

    def budgets(self) -> Iterator[tuple[str, float, float]]:
        """Name, dollars left today and dollars reserved of clients with a budget.

        Of those that have sent a request to this process.
        """
        now = self._now()
        for account in self._accounts.values():
            limit = account.client.dollars_per_day
            if limit is not None:
                yield account.client.name, limit - account.today(now), account._reserved

    def _account(self, client: APIClient) -> ClientUsage:
        account = self._accounts.get(client.name)
        if account is None:
            account = self._accounts[client.name] = ClientUsage(
                client, self._spent.pop(client.name, 0.0), self._read_on, self._clock
            )
        elif account.client is not client and account.client != client:
            account.change(client, self._clock)
        return account


class ClientUsage:
    """What one client has spent and holds."""

    __slots__ = ("_bucket", "_day", "_reserved", "_spent", "client")

    def __init__(
        self, client: APIClient, spent: float, day: float, clock: Callable[[], float]
    ) -> None:
        self._spent = spent
        self._day = day
        self._reserved = 0.0
        self._bucket: TokenBucket | None = None
        self.client = APIClient(client.name)
        self.change(client, clock)

    def change(self, client: APIClient, clock: Callable[[], float]) -> None:
        """New limits, or the first ones; a rate that stays goes on from where it is."""
        rate = client.requests_per_minute
        if rate != self.client.requests_per_minute:
            self._bucket = (
                None
                if rate is None
                else TokenBucket(rate / 60, max(1.0, rate / 60 * _BURST_SECONDS), clock)
            )
        self.client = client

    def today(self, now: float) -> float:
        if now // DAY > self._day:
            self._day = now // DAY
            self._spent = 0.0
        return self._spent

    def check_day(self, now: float) -> LimitExceeded | None:
        limit = self.client.dollars_per_day
        if limit is None or self.today(now) < limit - _ROUNDING:
            return None
        message = (
            f"This key has spent its {limit:g} dollars of the day; the next day begins at"
            " midnight UTC."
        )
        return LimitExceeded(429, message, "insufficient_quota", start_of_day(now) + DAY - now)

    def reserve(self, dollars: float, is_bounded: bool, now: float) -> LimitExceeded | None:
        limit = self.client.dollars_per_day or 0.0
        free = limit - self.today(now) - self._reserved
        if free > _ROUNDING and (not is_bounded or dollars <= free + _ROUNDING):
            self._reserved += dollars
            return None
        if free <= _ROUNDING or dollars <= free + self._reserved + _ROUNDING:
            message = (
                f"The requests under way may spend the rest of this key's {limit:g} dollars of the"
                " day; wait for them."
            )
            return LimitExceeded(429, message, "rate_limit_exceeded", 1.0)
        message = (
            f"This request may cost {dollars:.2g} dollars, and this key has {free:.2g} of its"
            f" {limit:g} dollars of the day left; allow fewer tokens, or wait for midnight UTC."
        )
        return LimitExceeded(429, message, "insufficient_quota", start_of_day(now) + DAY - now)

    def check_rate(self) -> LimitExceeded | None:
        if self._bucket is None or self._bucket.take():
            return None
        message = (
            f"This key may make {self.client.requests_per_minute:g} requests a minute; slow down."
        )
        return LimitExceeded(429, message, "rate_limit_exceeded", self._bucket.seconds_until())

    def settle(self, dollars: float, reserved: float, now: float) -> None:
        self._reserved = max(0.0, self._reserved - reserved)
        if dollars > 0:
            self._spent = self.today(now) + dollars


class Authenticator:
    """Authenticates clients by their keys, and admits their requests."""

    def __init__(self, key_store: KeyStore, usage_limiter: UsageLimiter) -> None:
        self._key_store = key_store
        self._usage_limiter = usage_limiter

    def authenticate(self, request: Request) -> APIClient:
        """The client of a request; an APIError if it has no valid key."""
        sent = request.header(b"authorization")
        client = self._key_store.find(None if sent is None else sent.decode("latin-1"))
        if client is None:
            raise APIError(
                401,
                "a key of this gateway is needed, as 'Authorization: Bearer mr-...'; ask its"
                " operator for one.",
            )
        request.scope["mildroute.key"] = client.name  # for the access log
        return client

    def admit(self, client: APIClient) -> None:
        """Admit one request by its rate, or raise an APIError."""
        _raise_if_exceeded(self._usage_limiter.admit(client))

    def reserve(self, client: APIClient, dollars: float, *, is_bounded: bool) -> None:
        """Hold the most that a request can cost, or raise an APIError; :meth:`settle` follows."""
        _raise_if_exceeded(self._usage_limiter.reserve(client, dollars, is_bounded=is_bounded))

    def admit_free(self, client: APIClient) -> None:
        """Admit a request that costs nothing, or raise an APIError."""
        _raise_if_exceeded(self._usage_limiter.admit_free(client))

    def settle(self, client: APIClient, dollars: float, reserved: float) -> None:
        """Count what a request has cost, and release what was held for it."""
        self._usage_limiter.settle(client, dollars, reserved)


def _raise_if_exceeded(exceeded: LimitExceeded | None) -> None:
    if exceeded is not None:
        raise APIError(
            exceeded.status,
            exceeded.message,
            code=exceeded.code,
            retry_after=float(exceeded.retry_after),
        )
