"""Rate limits and budgets of clients and teams, and their requests in flight."""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from mildroute.exceptions import ArgumentError
from mildroute.serving.auth.keys import APIClient, ClientTeam, KeyStore, Tenant
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import InFlightLimiter, Request, check_site
from mildroute.serving.store import StoreWait

__all__ = [
    "DAY",
    "NOTHING",
    "PERIODS",
    "ROUNDING",
    "Authenticator",
    "BudgetFactory",
    "Charge",
    "LimitExceeded",
    "Reservation",
    "TokenBucket",
    "UsageBudget",
    "UsageLimiter",
    "check_model",
    "start_of_day",
    "start_of_month",
]


# A bucket that fills at a steady rate: for requests, which are refused when it is empty, and for
# money, which is counted afterwards.


_GRACE = 1e-6


class TokenBucket:
    """How much may be taken now.

    It is full at first. What is had is never more than ``burst`` plus what has flowed in since, up
    to one microsecond of it, which covers the rounding of clocks: a client that waits for
    :meth:`seconds_until` gets what was waited for. For use in one thread.

    Args:
        rate_per_second: What flows in; 0 for a bucket that is emptied once.

    Raises:
        ArgumentError: The rate is not finite or below 0, or the burst is not finite and positive.
    """

    __slots__ = ("_at", "_clock", "_grace", "_level", "_rate", "burst")

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
        self.burst = burst
        self._clock = clock
        self._grace = rate_per_second * _GRACE
        self._level = burst
        self._at = clock()

    def level(self) -> float:
        """What is in it now; below zero if more was spent than there was."""
        now = self._clock()
        if now > self._at:
            self._level = min(self.burst, self._level + (now - self._at) * self._rate)
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
        if amount > self.burst or self._rate == 0:
            return math.inf
        return (amount - self._level) / self._rate


# What each client and each team may ask and spend: requests and tokens a minute, dollars in a day
# and in a month of UTC.
#
# What a request takes is known when it has ended. Until then a reservation is held for it: the most
# that it can take. Guesses from earlier requests let a key of $0.10 a day spend $10.00 in 200
# requests at once, and refused a key of $100,000 beyond 50 of them. Days and months are those of
# UTC: a client can be told when its next one begins, and after a restart the sums are read from the
# decision log. Without a store each process counts for itself what it has spent since it started,
# and several of them together may spend more; with one they share each limit (``leases.py``).


# Seconds.
DAY = 86_400.0

_MINUTE = 60.0
_BURST_SECONDS = 10.0
# How often a request tries to borrow more of a shared limit, if others take what was lent.
_MAX_BORROWS = 3
# By how much sums may be off after a day of additions.
ROUNDING = 1e-9


class Charge(NamedTuple):
    """What a request takes, or may take at most."""

    dollars: float = 0.0
    tokens: float = 0.0


NOTHING = Charge()
# Parts of a charge.
_DOLLARS, _TOKENS = range(2)


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


def start_of_month(now: float) -> float:
    """The first midnight of UTC of a time's month, both in seconds since 1970."""
    found = time.gmtime(now)
    return float(calendar.timegm((found.tm_year, found.tm_mon, 1, 0, 0, 0)))


class UsageBudget:
    """A limit on what requests take together, with what is held for those in flight."""

    __slots__ = ("limit", "reserved", "unit", "until")

    def __init__(self, limit: float, unit: str, until: str) -> None:
        self.limit = limit
        # For messages: "dollars of the day", and what to wait for.
        self.unit = unit
        self.until = until
        self.reserved = 0.0

    def left(self, now: float) -> float:
        """What has not been spent, reservations not counted."""
        raise NotImplementedError

    def seconds_until(self, amount: float, now: float) -> float:
        """Seconds until so much is left, if no request takes any."""
        raise NotImplementedError

    def spend(self, amount: float, now: float) -> None:
        """Count what a request has taken."""
        raise NotImplementedError

    def has_any(self, now: float) -> bool:
        """Whether anything is left, reservations not counted."""
        return self.left(now) > ROUNDING

    def covers(self, amount: float, is_bounded: bool, now: float) -> bool:
        """Whether a reservation of so much can be held; if it is not bounded, of anything."""
        free = self.left(now) - self.reserved
        return free > ROUNDING and (not is_bounded or amount <= free + ROUNDING)

    def check_left(self, owner: str, now: float) -> LimitExceeded | None:
        """Why no request is let through, or none."""
        if self.has_any(now):
            return None
        if self.left(now) > ROUNDING:
            return self._all_reserved(owner)
        message = f"{owner} has used up its {self.limit:g} {self.unit}; wait for {self.until}."
        seconds = self.seconds_until(ROUNDING, now)
        return LimitExceeded(429, message, "insufficient_quota", seconds)

    def check(
        self, amount: float, is_bounded: bool, owner: str, now: float
    ) -> LimitExceeded | None:
        """Why no reservation of so much can be held, or none."""
        if self.covers(amount, is_bounded, now):
            return None
        left = self.left(now)
        free = left - self.reserved
        if free <= ROUNDING or amount <= left + ROUNDING:
            return self._all_reserved(owner)
        message = (
            f"This request may take {amount:.4g} {self.unit}, and {owner.lower()} has {free:.4g} of"
            f" {self.limit:g} left; allow fewer tokens, or wait for {self.until}."
        )
        seconds = self.seconds_until(amount, now)
        return LimitExceeded(429, message, "insufficient_quota", min(seconds, DAY))

    def _all_reserved(self, owner: str) -> LimitExceeded:
        message = (
            f"The requests in flight may take the rest of the {self.limit:g} {self.unit} that"
            f" {owner.lower()} has; wait for them."
        )
        return LimitExceeded(429, message, "rate_limit_exceeded", 1.0)

    def change_limit(self, limit: float) -> None:
        """Another limit from now on; what was spent stays."""
        self.limit = limit

    def reserve(self, amount: float) -> None:
        """Hold so much."""
        self.reserved += amount

    def settle(self, amount: float, reserved: float, now: float) -> None:
        """Count what a request has taken, and release what was held for it."""
        self.reserved = max(0.0, self.reserved - reserved)
        if amount > 0:
            self.spend(amount, now)


class PeriodBudget(UsageBudget):
    """Dollars of a day or a month; they are counted without a limit, too."""

    __slots__ = ("_end", "_spent", "_start_of")

    def __init__(
        self, unit: str, until: str, start_of: Callable[[float], float], spent: float, at: float
    ) -> None:
        super().__init__(math.inf, unit, until)
        self._start_of = start_of
        self._end = self._end_of(at)
        self._spent = spent

    def spent(self, now: float) -> float:
        if now >= self._end:
            self._end = self._end_of(now)
            self._spent = 0.0
        return self._spent

    def _end_of(self, now: float) -> float:
        # 32 days after the start of a month lies in the next one.
        days = 1 if self._start_of is start_of_day else 32
        return self._start_of(self._start_of(now) + days * DAY)

    def left(self, now: float) -> float:
        return self.limit - self.spent(now)

    def seconds_until(self, amount: float, now: float) -> float:  # noqa: ARG002 - all of it then
        return self._end - now

    def spend(self, amount: float, now: float) -> None:
        self._spent = self.spent(now) + amount


class MinuteBudget(UsageBudget):
    """Tokens a minute, which flow in steadily."""

    __slots__ = ("_bucket",)

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        super().__init__(limit, "tokens a minute", "more to flow in")
        self._bucket = TokenBucket(limit / _MINUTE, limit, clock)

    def left(self, now: float) -> float:  # noqa: ARG002 - the bucket has a clock of its own
        return self._bucket.level()

    def seconds_until(self, amount: float, now: float) -> float:  # noqa: ARG002
        return self._bucket.seconds_until(amount)

    def spend(self, amount: float, now: float) -> None:  # noqa: ARG002
        self._bucket.spend(amount)


# Each with its unit, what to wait for, and its start.
PERIODS: dict[str, tuple[str, str, Callable[[float], float]]] = {
    "day": ("dollars of the day", "midnight UTC", start_of_day),
    "month": ("dollars of the month", "its end, in UTC", start_of_month),
}


_Checked = TypeVar("_Checked")


class RequestBucket(Protocol):
    """Requests that may be made now, as :class:`TokenBucket` counts them."""

    @property
    def burst(self) -> float:
        """The most at once."""

    def has(self, amount: float = 1.0) -> bool:
        """Whether so many may be made now."""

    def spend(self, amount: float) -> None:
        """Count them."""

    def seconds_until(self, amount: float = 1.0) -> float:
        """Seconds until so many may be made; infinite if never."""


class BudgetFactory(Protocol):
    """Makes the budgets of clients and teams: of this process, or shared through a store.

    Attributes:
        is_shared: Whether more can be borrowed of a limit than the process holds.
    """

    is_shared: bool

    def period(self, owner: str, period: str, spent: float, at: float) -> PeriodBudget:
        """Dollars of a ``"day"`` or ``"month"``."""

    def tokens(self, owner: str, limit: float) -> UsageBudget:
        """Tokens a minute."""

    def requests(self, owner: str, rate_per_second: float, burst: float) -> RequestBucket:
        """A bucket of requests."""

    async def borrow(
        self, wanted: Sequence[tuple[Any, float]], wait: StoreWait, *, is_bounded: bool
    ) -> bool:
        """Borrow what must be free of each; whether a check that failed may succeed now."""

    def borrow_soon(self, budget: Any, amount: float) -> None:
        """Borrow so much for later requests; none waits for it."""

    def check_late(self, check: Callable[[], _Checked]) -> _Checked:
        """Check a request that has waited long enough."""

    def set_on_failure(self, owner: str, mode: str | None) -> None:
        """What becomes of the limits of an owner while the store is away; none for the usual."""

    def refusal(self, owners: Iterable[str]) -> LimitExceeded | None:
        """Why requests are refused whose limits cannot be looked up, or none."""


class LocalBudgets:
    """Budgets of one process, which holds all of each limit."""

    is_shared = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def period(self, owner: str, period: str, spent: float, at: float) -> PeriodBudget:  # noqa: ARG002
        return PeriodBudget(*PERIODS[period], spent, at)

    def tokens(self, owner: str, limit: float) -> UsageBudget:  # noqa: ARG002
        return MinuteBudget(limit, self._clock)

    def requests(self, owner: str, rate_per_second: float, burst: float) -> RequestBucket:  # noqa: ARG002
        return TokenBucket(rate_per_second, burst, self._clock)

    async def borrow(
        self,
        wanted: Sequence[tuple[Any, float]],  # noqa: ARG002
        wait: StoreWait,  # noqa: ARG002
        *,
        is_bounded: bool,  # noqa: ARG002
    ) -> bool:
        return False

    def borrow_soon(self, budget: Any, amount: float) -> None:
        pass

    def check_late(self, check: Callable[[], _Checked]) -> _Checked:
        return check()

    def set_on_failure(self, owner: str, mode: str | None) -> None:
        pass

    def refusal(self, owners: Iterable[str]) -> LimitExceeded | None:  # noqa: ARG002
        return None


class Reservation(NamedTuple):
    """What is held for a request, and the budgets that hold it."""

    charge: Charge
    budgets: list[tuple[UsageBudget, int]]


_TOO_MANY_REQUESTS = 429


class UsageLimiter:
    """Lets requests of clients through, and counts what they take.

    Its memory grows with the number of clients and teams of the key file alone.

    Args:
        spent: Gives the dollars that each client has spent today and in this month, by name, as
            ``SpendLedger`` counts them in the decision log; asked when a client gets its first
            limit.
        budgets: Makes the budgets; by default they are those of this process.
        now: Seconds since 1970, for days and months.
    """

    def __init__(
        self,
        spent: Callable[[float], tuple[Mapping[str, float], Mapping[str, float]]] | None = None,
        *,
        budgets: BudgetFactory | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._now = now
        self._spent = spent or _nothing_spent
        self._budgets: BudgetFactory = LocalBudgets(clock) if budgets is None else budgets
        # By name, and whether it is a team.
        self._accounts: dict[tuple[str, bool], Account] = {}
        self._by_client: dict[str, tuple[APIClient, list[Account]]] = {}

    def admit(self, client: APIClient) -> LimitExceeded | None:
        """Let a request through by its rate, before its body is read, or say why not.

        A client that has spent its budgets is refused here already, and keeps its rate.
        """
        accounts = self._accounts_of(client)
        if not accounts:
            return None
        now = self._now()
        for account in accounts:
            for budget, _ in account.budgets:
                if (exceeded := budget.check_left(account.owner, now)) is not None:
                    return exceeded
        return _take_rate(accounts, 1)

    def admit_free(
        self, client: APIClient, requests: int = 1, admitted: int = 0
    ) -> LimitExceeded | None:
        """Let requests through that cost nothing, such as feedback, or say why not.

        Only their rate counts.

        Args:
            client: Whose requests they are.
            requests: How many.
            admitted: How many of them have been let through already.
        """
        return _take_rate(self._accounts_of(client), requests, admitted)

    def reserve(
        self, client: APIClient, charge: Charge, *, is_bounded: bool = True
    ) -> LimitExceeded | Reservation:
        """Hold the most that a request can take, or say why not; one ``settle`` must follow.

        Args:
            client: Whose request it is.
            charge: The most that it can take.
            is_bounded: Whether the request itself names its most tokens: then it must fit into what
                is left. Any other is let through if anything is left, because what it can take is a
                setting of the gateway and no choice of the client.
        """
        now = self._now()
        accounts = self._admitted_accounts(client)
        for account in accounts:
            for budget, part in account.budgets:
                exceeded = budget.check(charge[part], is_bounded, account.owner, now)
                if exceeded is not None:
                    return exceeded
        held = [entry for account in accounts for entry in account.budgets]
        for budget, part in held:
            budget.reserve(charge[part])
        return Reservation(charge, held)

    async def retry(
        self,
        client: APIClient,
        check: Callable[[], _Checked | LimitExceeded],
        refused: LimitExceeded,
        wait: StoreWait,
        *,
        charge: Charge = NOTHING,
        requests: float = 0.0,
        is_bounded: bool = True,
    ) -> _Checked | LimitExceeded:
        """Check a request again that was refused, after more was borrowed from a shared limit.

        Args:
            client: Whose request it is.
            check: Lets it through, or says why not.
            refused: Why it was not let through.
            wait: What the request may still wait for the store.
            charge: What must be left of its budgets ...
            requests: ... and of its rate.
            is_bounded: As for :meth:`reserve`.
        """
        if not self._budgets.is_shared or refused.status != _TOO_MANY_REQUESTS:
            return refused
        budgets = self._budgets
        accounts = self._admitted_accounts(client)
        wanted = [entry for account in accounts for entry in account.wanted(charge, requests)]
        for _ in range(_MAX_BORROWS):
            is_borrowed = await budgets.borrow(wanted, wait, is_bounded=is_bounded)
            # Without the store, too: then there is a share.
            found = budgets.check_late(check) if wait.is_over else check()
            if not isinstance(found, LimitExceeded):
                return found
            refused = found
            if not is_borrowed or wait.is_over:
                break
        return budgets.refusal(account.name for account in accounts) or refused

    def settle(
        self, client: APIClient, charge: Charge, reservation: Reservation | None = None
    ) -> None:
        """Count what a request has taken, and release what was held for it.

        Args:
            client: Whose request it was.
            charge: What it has taken; nothing if it has failed.
            reservation: What was held for it, and where: its client may have another team by now.
        """
        now = self._now()
        if reservation is not None:
            for budget, part in reservation.budgets:
                budget.settle(charge[part], reservation.charge[part], now)
            return
        for account in self._admitted_accounts(client):
            for budget, part in account.budgets:
                budget.settle(charge[part], 0.0, now)

    def _admitted_accounts(self, client: APIClient) -> list[Account]:
        """Accounts with the limits of the client's latest request: old ones do not come back."""
        known = self._by_client.get(client.name)
        return self._accounts_of(client) if known is None else known[1]

    def spent(self, tenant: Tenant) -> float:
        """Dollars of today; 0 for a client without limits, whose dollars are not counted."""
        account = self._accounts.get(_key_of(tenant))
        return self._spent_before(tenant)[0] if account is None else account.day.spent(self._now())

    def budgets(self) -> Iterator[tuple[str, float, float]]:
        """Name, dollars left today and dollars reserved of clients with a budget.

        Of those that have sent a request to this process.
        """
        now = self._now()
        for account in self._accounts.values():
            tenant = account.tenant
            if tenant.dollars_per_day is not None and not isinstance(tenant, ClientTeam):
                yield tenant.name, account.day.left(now), account.day.reserved

    def _accounts_of(self, client: APIClient) -> list[Account]:
        """Accounts of a client and its team, if they have limits."""
        known = self._by_client.get(client.name)
        if known is not None and known[0] is client:
            return known[1]
        accounts = [self._account(tenant) for tenant in client.tenants if tenant.limits]
        if accounts or known is not None:
            self._by_client[client.name] = client, accounts
        return accounts

    def _account(self, tenant: Tenant) -> Account:
        key = _key_of(tenant)
        account = self._accounts.get(key)
        if account is None:
            spent = self._spent_before(tenant)
            account = self._accounts[key] = Account(tenant, spent, self._now(), self._budgets)
        elif account.tenant is not tenant and account.tenant != tenant:
            account.change(tenant)
        return account

    def _spent_before(self, tenant: Tenant) -> tuple[float, float]:
        """Dollars of the day and the month so far; of a team, those of its clients."""
        names = tenant.members if isinstance(tenant, ClientTeam) else (tenant.name,)
        day, month = (
            sum(spent.get(name, 0.0) for name in names) for spent in self._spent(self._now())
        )
        return day, month


def _nothing_spent(_now: float) -> tuple[Mapping[str, float], Mapping[str, float]]:
    return {}, {}


def _key_of(tenant: Tenant) -> tuple[str, bool]:
    return tenant.name, isinstance(tenant, ClientTeam)


def _take_rate(accounts: list[Account], requests: int, admitted: int = 0) -> LimitExceeded | None:
    """Take requests from all rates, or from none if one of them has too few left."""
    for account in accounts:
        if (exceeded := account.check_rate(requests, admitted)) is not None:
            return exceeded
    for account in accounts:
        account.take_rate(requests - admitted)
    return None


class Account:
    """What one client or team has spent and holds.

    Attributes:
        budgets: Each with the part of a charge that it counts.
    """

    __slots__ = ("_bucket", "_factory", "budgets", "day", "month", "owner", "tenant")

    def __init__(
        self, tenant: Tenant, spent: tuple[float, float], at: float, factory: BudgetFactory
    ) -> None:
        self._factory = factory
        self._bucket: RequestBucket | None = None
        self.owner = "This key's team" if isinstance(tenant, ClientTeam) else "This key"
        self.tenant = type(tenant)(tenant.name)
        self.day = factory.period(self.name, "day", spent[0], at)
        self.month = factory.period(self.name, "month", spent[1], at)
        self.budgets: list[tuple[UsageBudget, int]] = [
            (self.day, _DOLLARS),
            (self.month, _DOLLARS),
        ]
        self.change(tenant)

    @property
    def name(self) -> str:
        """In the store; a team may have the name of a client."""
        kind = "team" if isinstance(self.tenant, ClientTeam) else "client"
        return f"{kind}:{self.tenant.name}"

    def change(self, tenant: Tenant) -> None:
        """New limits, or the first ones; a rate that stays continues from where it is."""
        rate, tokens = tenant.requests_per_minute, tenant.tokens_per_minute
        self._factory.set_on_failure(self.name, tenant.on_failure)
        if rate != self.tenant.requests_per_minute:
            per_second = (rate or 0.0) / _MINUTE
            burst = max(1.0, per_second * _BURST_SECONDS)
            self._bucket = (
                None if rate is None else self._factory.requests(self.name, per_second, burst)
            )
        if tokens != self.tenant.tokens_per_minute:
            self.budgets = [(self.day, _DOLLARS), (self.month, _DOLLARS)]
            if tokens is not None:
                self.budgets.append((self._factory.tokens(self.name, tokens), _TOKENS))
        self.day.change_limit(tenant.dollars_per_day or math.inf)
        self.month.change_limit(tenant.dollars_per_month or math.inf)
        self.tenant = tenant

    def check_rate(self, requests: int, admitted: int) -> LimitExceeded | None:
        bucket = self._bucket
        if bucket is None or bucket.has(requests - admitted):
            return None
        rate = f"{self.tenant.requests_per_minute:g} requests a minute"
        # The one that was admitted is gone, too: this many must fit at once, or never do.
        seconds = bucket.seconds_until(requests)
        if seconds < math.inf:
            message = f"{self.owner} may make {rate}; slow down."
            return LimitExceeded(429, message, "rate_limit_exceeded", seconds)
        message = (
            f"{self.owner} may make {rate}, {math.floor(bucket.burst):,} of them at once, and each"
            f" input counts as one, got {requests:,}; send fewer inputs at a time."
        )
        return LimitExceeded(400, message, "too_many_inputs", 0.0)

    def take_rate(self, requests: float) -> None:
        if self._bucket is not None:
            self._bucket.spend(requests)

    def wanted(self, charge: Charge, requests: float) -> Iterator[tuple[Any, float]]:
        """What must be free in each of its budgets, and in its rate, to let a request through."""
        for budget, part in self.budgets:
            yield budget, charge[part]
        if self._bucket is not None and requests:
            yield self._bucket, requests


class Authenticator:
    """Authenticates clients by their keys, and admits their requests.

    Args:
        limiter: Counts the requests in flight of each client.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        key_store: KeyStore,
        usage_limiter: UsageLimiter,
        limiter: InFlightLimiter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._key_store = key_store
        self._usage_limiter = usage_limiter
        self._limiter = limiter
        self._now = now

    def authenticate(self, request: Request) -> APIClient:
        """The client of a request; an APIError if it has no valid key."""
        if self._key_store.is_open:
            check_site(request)
        sent = request.header(b"authorization")
        client = self._key_store.find(None if sent is None else sent.decode("latin-1"))
        if client is None and (sent := request.header(b"x-api-key")) is not None:
            # Anthropic's clients send their key so, perhaps beside another one.
            client = self._key_store.find(f"Bearer {sent.decode('latin-1')}")
        if client is None:
            raise APIError(
                401,
                "a key of this gateway is needed, as 'Authorization: Bearer mr-...' or 'x-api-key:"
                " mr-...'; ask its operator for one.",
            )
        request.scope["mildroute.key"] = client.name  # for the access log
        if client.expires is not None and self._now() >= client.expires:
            raise APIError(
                401,
                "this key has expired or was revoked; ask the operator of the gateway for a new"
                " one.",
                code="key_expired",
            )
        return client

    async def admit(self, client: APIClient, request: Request) -> None:
        """Admit one request by the places of its client and by its rate, or raise an APIError."""
        self._assign(client, request)
        limiter = self._usage_limiter
        exceeded = limiter.admit(client)
        if exceeded is not None:
            check = lambda: limiter.admit(client)  # noqa: E731
            wait = request.store_wait()
            exceeded = await limiter.retry(client, check, exceeded, wait, requests=1)
        _raise_if_exceeded(exceeded)

    def _assign(self, client: APIClient, request: Request) -> None:
        # A gateway with one client has none that could be crowded out.
        is_shared = len(self._key_store) > 1
        self._limiter.assign(request, client.places, is_shared=is_shared)

    async def admit_inputs(self, client: APIClient, request: Request, count: int) -> None:
        """Admit all inputs of a request that was admitted for one, or raise an APIError."""
        if count > 1:
            await self._admit_free(client, request, count, admitted=1)

    async def reserve(
        self, client: APIClient, request: Request, charge: Charge, *, is_bounded: bool
    ) -> Reservation:
        """Hold the most that a request can take, or raise an APIError; :meth:`settle` follows."""
        limiter = self._usage_limiter
        held = limiter.reserve(client, charge, is_bounded=is_bounded)
        if isinstance(held, LimitExceeded):
            held = await limiter.retry(
                client,
                lambda: limiter.reserve(client, charge, is_bounded=is_bounded),
                held,
                request.store_wait(),
                charge=charge,
                is_bounded=is_bounded,
            )
        if isinstance(held, LimitExceeded):
            raise _error_of(held)
        return held

    async def admit_free(self, client: APIClient, request: Request) -> None:
        """Admit a request that costs nothing, or raise an APIError."""
        self._assign(client, request)
        await self._admit_free(client, request, 1, admitted=0)

    async def _admit_free(
        self, client: APIClient, request: Request, count: int, admitted: int
    ) -> None:
        limiter = self._usage_limiter
        exceeded = limiter.admit_free(client, count, admitted)
        if exceeded is not None:
            exceeded = await limiter.retry(
                client,
                lambda: limiter.admit_free(client, count, admitted),
                exceeded,
                request.store_wait(),
                requests=count - admitted,
            )
        _raise_if_exceeded(exceeded)

    def settle(self, client: APIClient, charge: Charge, reservation: Reservation | None) -> None:
        """Count what a request has taken, and release what was held for it."""
        self._usage_limiter.settle(client, charge, reservation)


def check_model(client: APIClient, model: str) -> None:
    """An APIError if a client may not name this route or expert."""
    if not client.may_use(model):
        known = ", ".join(sorted(client.models or ()))
        raise APIError(
            403,
            f"this key may use {known:.2000}, got another model; ask the operator of the gateway"
            " for it.",
            code="model_not_allowed",
            param="model",
        )


def _raise_if_exceeded(exceeded: LimitExceeded | None) -> None:
    if exceeded is not None:
        raise _error_of(exceeded)


def _error_of(exceeded: LimitExceeded) -> APIError:
    retry_after = float(exceeded.retry_after) if exceeded.status in (429, 503) else None
    return APIError(exceeded.status, exceeded.message, code=exceeded.code, retry_after=retry_after)
