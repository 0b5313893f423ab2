"""Limits of client keys: requests a minute and dollars a day, in memory or shared through Redis.

A request reserves its maximum cost before an expert is called, and settles its actual cost when it
ends. ``docs/proposals/limits.md`` explains this design.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mildroute.decision.days import DAY, ROUNDING, start_of_day
from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.gateway.config import StoreConfig
from mildroute.gateway.keys import APIClient

if TYPE_CHECKING:
    from redis.asyncio.connection import Connection

__all__ = [
    "LimitExceeded",
    "Limits",
    "LocalLimits",
    "RedisLimits",
    "Reservation",
]


_LOG = logging.getLogger(__name__)
# Seconds in a minute.
_MINUTE = 60.0
# A key may use the requests of this many seconds in one burst.
_BURST_SECONDS = 10.0
# Tolerance for clock rounding: a client that waits for as long as a refusal says is served.
_GRACE = 1e-6
# Seconds that a request waits for Redis. A burst of requests may keep the event loop busy for a
# second, which does not mean that Redis is down; only the heartbeat decides that.
_TIMEOUT = 3.0
_HEARTBEAT_TIMEOUT = 2.0
# Seconds between two heartbeats, and between two attempts to connect.
_HEARTBEAT = 0.5
# Seconds after a loss of data during which nothing is admitted, so that each gateway can report its
# spending. Longer than a gateway takes to notice: a heartbeat and an attempt to connect.
_RECOVERY = 3.0
_MAX_CONNECTIONS = 16
# Number of reports sent concurrently after a loss of data.
_BATCH = 64
_REASON_LENGTH = 200
# A new epoch begins when Redis has lost the old one, or when the server is a different one, which
# may lack the latest writes.
_JOIN = """
local now = tonumber(redis.call('TIME')[1])
local epoch = redis.call('GET', KEYS[1])
if not epoch or string.match(epoch, '^%S+') ~= ARGV[1] then
  epoch = ARGV[1] .. ' ' .. now
  redis.call('SET', KEYS[1], epoch)
end
return {epoch, now - string.match(epoch, '%d+$')}
"""


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


class Reservation(NamedTuple):
    """Dollars held for a request until it is settled."""

    id: str
    client: str
    dollars: float


class Limits(Protocol):
    """The limits of clients: admits their requests and counts the cost."""

    async def start(self) -> None:
        """Start; call this once, before the first request."""

    async def close(self) -> None:
        """Write what has not been written yet, and release connections."""

    def refusal(self, client: APIClient) -> LimitExceeded | None:
        """Return why any request of a client would be refused now, as far as known without I/O."""

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
            requests: Number of requests that it counts as.
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
        """Yield name, remaining dollars of today and held dollars of each client with a budget."""


@dataclass
class _Account:
    """The state of one key.

    Attributes:
        client: The client and its limits, as of the latest request.
        day: The UTC day of ``spent``, in days since 1970.
        spent: Dollars that this process has counted today.
        open: Dollars of this process's open reservations, by id.
        closed: Ids of settled reservations that Redis may still hold.
        total: Dollars that all processes have spent today, from the latest reply of Redis.
        held: Dollars that all processes hold, from the latest reply of Redis.
        refused_until: When the rate limit of the key admits the next request.
    """

    client: APIClient
    day: int = 0
    spent: float = 0.0
    open: dict[str, float] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    total: float = 0.0
    held: float = 0.0
    refused_until: float = -math.inf

    def turn_to(self, day: int) -> bool:
        """Reset the sums if this day is new; return whether it is."""
        is_new = day > self.day
        if is_new:
            self.day = day
            self.spent = 0.0
            self.total = 0.0
        return is_new


def _rate(client: APIClient) -> tuple[float, float]:
    """Return the requests per second of a key, and the size of a burst."""
    per_second = (client.requests_per_minute or 0.0) / _MINUTE
    return per_second, max(1.0, per_second * _BURST_SECONDS)


def _too_many_inputs(client: APIClient, requests: int) -> LimitExceeded | None:
    burst = _rate(client)[1]
    if client.requests_per_minute is None or requests <= burst:
        return None
    message = (
        f"This key may make {client.requests_per_minute:g} requests a minute, {math.floor(burst):,}"
        f" of them at once, and each input counts as one, got {requests:,}; send fewer inputs at a"
        " time."
    )
    return LimitExceeded(400, message, "too_many_inputs", 0.0)


def _too_fast(client: APIClient, seconds: float) -> LimitExceeded:
    message = f"This key may make {client.requests_per_minute:g} requests a minute; slow down."
    return LimitExceeded(429, message, "rate_limit_exceeded", seconds)


def _too_expensive(
    client: APIClient, dollars: float, spent: float, held: float, now: float
) -> LimitExceeded:
    limit = client.dollars_per_day or 0.0
    seconds = start_of_day(now) + DAY - now
    if limit - spent <= ROUNDING:
        message = f"This key has spent its ${limit:g} for today; wait until midnight UTC."
        return LimitExceeded(429, message, "insufficient_quota", seconds)
    if dollars <= limit - spent + ROUNDING:
        message = (
            f"Requests in flight may use up the ${limit:g} that this key may spend today;"
            f" ${limit - spent - held:.4g} is not reserved. Retry when they have ended."
        )
        return LimitExceeded(429, message, "rate_limit_exceeded", 1.0)
    message = (
        f"This request may cost ${dollars:.4g}, and this key has ${limit - spent:.4g} of ${limit:g}"
        " left today; allow fewer tokens, or wait until midnight UTC."
    )
    return LimitExceeded(429, message, "insufficient_quota", seconds)


def _positive(dollars: float) -> float:
    """Return dollars that can be added up; anything but a positive number counts as 0."""
    return dollars if 0 < dollars < math.inf else 0.0


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
        # The level of each key's token bucket, and when it was last filled.
        self._buckets: dict[str, tuple[float, float]] = {}
        self._number = 0

    async def start(self) -> None:
        """Do nothing; local limits need no preparation."""

    async def close(self) -> None:
        """Do nothing; local limits are not stored."""

    def refusal(self, client: APIClient) -> LimitExceeded | None:
        """Return why any request of a client would be refused now."""
        if not client.has_limits:
            return None
        account = self._account(client)
        if client.requests_per_minute is not None and (wait := self._wait(client, 1)) > 0:
            return _too_fast(client, wait)
        limit = client.dollars_per_day
        if limit is not None and limit - account.spent <= ROUNDING:
            return _too_expensive(client, 0.0, account.spent, 0.0, self._now())
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
        if (excess := _too_many_inputs(client, requests)) is not None:
            return excess
        account = self._account(client)
        if client.requests_per_minute is not None and (wait := self._wait(client, requests)) > 0:
            return _too_fast(client, wait)
        reservation = None
        if client.dollars_per_day is not None and dollars > 0:
            held = sum(account.open.values())
            free = client.dollars_per_day - account.spent - held
            if free <= ROUNDING or (is_bounded and dollars > free + ROUNDING):
                return _too_expensive(client, dollars, account.spent, held, self._now())
            self._number += 1
            reservation = Reservation(str(self._number), client.name, dollars)
            account.open[reservation.id] = dollars
        if client.requests_per_minute is not None:
            level, at = self._buckets[client.name]
            self._buckets[client.name] = level - requests, at
        return reservation

    def settle(self, reservation: Reservation | None, dollars: float) -> None:
        """Replace the dollars held for a request by its actual cost."""
        if reservation is None:
            return
        account = self._accounts[reservation.client]
        account.turn_to(self._today())
        del account.open[reservation.id]
        account.spent += _positive(dollars)

    def budgets(self) -> Iterator[tuple[str, float, float]]:
        """Yield name, remaining dollars of today and held dollars of each client with a budget."""
        for account in self._accounts.values():
            limit = account.client.dollars_per_day
            if limit is not None:
                account.turn_to(self._today())
                yield account.client.name, limit - account.spent, sum(account.open.values())

    def spent(self, client: str) -> float:
        """Return the dollars that a client has spent today."""
        account = self._accounts.get(client)
        return 0.0 if account is None else account.spent

    def _account(self, client: APIClient) -> _Account:
        account = self._accounts.get(client.name)
        if account is None:
            account = _Account(client, self._started, self._spent_before.get(client.name, 0.0))
            self._accounts[client.name] = account
        account.client = client
        account.turn_to(self._today())
        return account

    def _today(self) -> int:
        return int(self._now() // DAY)

    def _wait(self, client: APIClient, requests: int) -> float:
        """Fill the key's bucket; return the seconds until it admits this many requests."""
        rate, burst = _rate(client)
        now = self._clock()
        level, at = self._buckets.get(client.name, (burst, now))
        level = min(burst, level + max(0.0, now - at) * rate)
        self._buckets[client.name] = level, now
        return 0.0 if level + rate * _GRACE >= requests else (requests - level) / rate


class RedisLimits:
    """Limits that several gateways share through Redis or Valkey.

    A request waits for one round trip. Its cost is reported in the background.

    Args:
        config: Address of the server.
        on_failure: While the server cannot be reached, ``"closed"`` refuses requests of keys with
            limits, and ``"open"`` admits them.

    Attributes:
        is_available: Whether the server currently responds.
    """

    def __init__(
        self,
        config: StoreConfig,
        on_failure: str,
    ) -> None:
        try:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError
        except ImportError:
            raise MissingExtraError.for_package(
                "redis", extra="fleet", user="store in gateway.yaml"
            ) from None
        password = None
        if config.password_env is not None:
            # Secret files often end with a newline.
            password = os.environ.get(config.password_env, "").strip()
            if not password:
                raise ArgumentError(
                    f"the environment variable {config.password_env} must hold the store's"
                    " password, got nothing; export it before you start."
                )
        self._errors = (RedisError, OSError, TimeoutError)

        def connect(connections: int) -> Redis:
            pool = BlockingConnectionPool.from_url(
                config.url or "",
                password=password,
                max_connections=connections,
                timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
                # A reservation that is sent twice is held twice.
                retry=Retry(NoBackoff(), 0),
                redis_connect_func=self._connected,
                decode_responses=True,
            )
            return Redis.from_pool(pool)

        self._redis = connect(_MAX_CONNECTIONS)
        # The heartbeat does not wait behind requests.
        self._pulse = connect(1)
        source = Path(__file__).with_name("limits.lua").read_text(encoding="utf-8")
        self._count = self._redis.register_script(source)
        self._join_epoch = self._pulse.register_script(_JOIN)
        self._prefix = config.prefix
        self._is_closed_on_failure = on_failure == "closed"
        self._password = password
        self._name = os.urandom(8).hex()
        self._number = 0
        self._accounts: dict[str, _Account] = {}
        # Run, epoch and clock offset of the server, as last seen.
        self._run = ""
        self._epoch = ""
        self._ahead = 0.0
        self.is_available = False
        self._was_available = True
        self._heart: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()
        self._reports: dict[str, asyncio.Task[None]] = {}

    async def check_access(self) -> bool:
        """Return whether the server responds; raise an error if it denies access.

        Raises:
            ArgumentError: The server refuses the password or the commands.
        """
        from redis.exceptions import AuthenticationError, NoPermissionError

        try:
            await self._join()
        except (AuthenticationError, NoPermissionError) as error:
            raise ArgumentError(
                f"the store must let this gateway read and write, got: {self._reason(error)}; check"
                " store.url and the variable that store.password_env names."
            ) from None
        except self._errors:
            return False
        return True

    async def start(self) -> None:
        """Connect to the server, and check it regularly until :meth:`close`."""
        await self._beat()
        self._heart = asyncio.get_running_loop().create_task(self._beat_forever())

    async def close(self) -> None:
        """Send the remaining reports, and disconnect."""
        self._is_closing.set()
        if self._heart is not None:
            # Not cancelled at once, because redis-py may mistake that for its own timeout.
            await asyncio.wait((self._heart,), timeout=_TIMEOUT)
            self._heart.cancel()
        if self.is_available:
            with contextlib.suppress(*self._errors):
                async with asyncio.timeout(_TIMEOUT):
                    await self._report_all(dirty_only=True)
        for connections in (self._redis, self._pulse):
            await connections.aclose()

    def refusal(self, client: APIClient) -> LimitExceeded | None:
        """Return why any request of a client would be refused now, as far as known."""
        account = self._accounts.get(client.name)
        if account is None or not client.has_limits:
            return None
        if not self.is_available:
            return _unavailable() if self._is_closed_on_failure else None
        wait = account.refused_until - time.monotonic()
        if wait > 0 and client.requests_per_minute is not None:
            return _too_fast(client, wait)
        limit = client.dollars_per_day
        now = self._now()
        # The total of all gateways never shrinks within a day.
        is_today = account.day == int(now // DAY)
        if limit is not None and is_today and limit - account.total <= ROUNDING:
            return _too_expensive(client, 0.0, account.total, 0.0, now)
        return None

    async def reserve(
        self,
        client: APIClient,
        dollars: float = 0.0,
        *,
        requests: int = 1,
        is_bounded: bool = True,
    ) -> Reservation | LimitExceeded | None:
        """Admit a request and hold its maximum cost, in one round trip."""
        if not client.has_limits:
            return None
        if (excess := _too_many_inputs(client, requests)) is not None:
            return excess
        account = self._accounts.setdefault(client.name, _Account(client))
        account.client = client
        self._number += 1
        limit = client.dollars_per_day if dollars > 0 else None
        reservation = Reservation(f"{self._name}.{self._number}", client.name, dollars)
        per_second, burst = _rate(client)
        request = (
            reservation.id,
            dollars,
            int(is_bounded),
            -1 if limit is None else limit,
            requests,
            -1 if client.requests_per_minute is None else per_second,
            burst,
            self._now() + _TIMEOUT,
        )
        verdict, wait = await self._try_reserve(account, reservation, request)
        if verdict == "rate":
            account.refused_until = time.monotonic() + wait
            return _too_fast(client, wait)
        if verdict == "dollars":
            return _too_expensive(client, dollars, account.total, account.held, self._now())
        if verdict != "admitted" and self._is_closed_on_failure:
            return _unavailable()
        if limit is None:
            return None
        account.open[reservation.id] = dollars
        return reservation

    async def _try_reserve(
        self, account: _Account, reservation: Reservation, request: tuple[float | str, ...]
    ) -> tuple[str, float]:
        """Ask Redis for a reservation; the verdict is ``"unknown"`` if there is no reply."""
        if not self.is_available:
            return "unknown", 0.0
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._call(account, *request)
        except self._errors as error:
            # Redis may hold the dollars anyway.
            account.closed.add(reservation.id)
            if not isinstance(error, TimeoutError):
                self._lose(error)
            return "unknown", 0.0

    def settle(self, reservation: Reservation | None, dollars: float) -> None:
        """Count the cost of a request, and report it to Redis in the background."""
        if reservation is None:
            return
        account = self._accounts[reservation.client]
        account.turn_to(int(self._now() // DAY))
        del account.open[reservation.id]
        account.spent += _positive(dollars)
        account.closed.add(reservation.id)
        self._report_soon(account)

    def budgets(self) -> Iterator[tuple[str, float, float]]:
        """Yield name, remaining dollars of today and held dollars of each client with a budget."""
        for account in self._accounts.values():
            limit = account.client.dollars_per_day
            if limit is not None:
                yield account.client.name, limit - account.total, account.held

    async def _connected(self, connection: Connection) -> None:
        """Set up a new connection, and detect a change of server."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        found = re.search(r"run_id:(\w+)", str(await connection.read_response()))
        run = "unknown" if found is None else found[1]
        if run != self._run:
            self._run = run
            self._epoch = ""

    async def _call(self, account: _Account, *request: float | str) -> tuple[str, float]:
        """Run the script; return the verdict, and the seconds to wait if the rate is exceeded."""
        keys = [f"{self._prefix}:epoch"]
        keys += [f"{self._prefix}:{kind}:{account.client.name}" for kind in ("rate", "dollars")]
        closed = list(account.closed)
        # Only reports list all open reservations, in case data was lost.
        opened = {} if request else account.open
        report = {"day": account.day, "spent": account.spent, "closed": closed, "open": opened}
        reply = await self._count(keys, [self._epoch, self._name, json.dumps(report), *request])
        verdict = str(reply[0])
        if verdict == "unknown":
            # Redis has lost its data since the latest heartbeat.
            self.is_available = False
            return verdict, 0.0
        now, account.total, account.held, wait = map(float, reply[1:])
        self._ahead = now - time.time()
        total = account.total
        if account.turn_to(int(now // DAY)) and account.open:
            # Redis has dropped open reservations along with the old day.
            self._report_soon(account)
        account.total = total
        account.closed.difference_update(closed)
        return verdict, wait

    def _report_soon(self, account: _Account) -> None:
        """Report this gateway's spending and reservations; at most one report per key at a time."""
        if self.is_available and account.client.name not in self._reports:
            task = asyncio.get_running_loop().create_task(self._report(account))
            self._reports[account.client.name] = task

    async def _report(self, account: _Account) -> None:
        try:
            is_due = True
            while is_due and self.is_available:
                async with asyncio.timeout(_TIMEOUT):
                    await self._call(account)
                # More requests may have been settled meanwhile.
                is_due = bool(account.closed)
        except self._errors as error:
            self._lose(error)
        finally:
            self._reports.pop(account.client.name, None)

    async def _report_all(self, *, dirty_only: bool = False) -> None:
        accounts = [each for each in self._accounts.values() if each.closed or not dirty_only]
        for start in range(0, len(accounts), _BATCH):
            batch = accounts[start : start + _BATCH]
            await asyncio.gather(*(self._call(account) for account in batch))

    async def _beat_forever(self) -> None:
        while not await self._sleep(_HEARTBEAT):
            await self._beat()

    async def _sleep(self, seconds: float) -> bool:
        """Sleep until the time is over or the gateway stops; return whether the gateway stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_closing.wait()
        return self._is_closing.is_set()

    async def _beat(self) -> None:
        """Check that the server responds and has its data; send pending reports."""
        try:
            async with asyncio.timeout(_HEARTBEAT_TIMEOUT):
                is_current = self.is_available and self._epoch == await self._pulse.get(
                    f"{self._prefix}:epoch"
                )
            if not is_current:
                self.is_available = False
                age = await self._join()
                await self._sleep(max(0.0, _RECOVERY - age))
                self.is_available = True
            elif any(account.closed for account in self._accounts.values()):
                async with asyncio.timeout(_TIMEOUT):
                    await self._report_all(dirty_only=True)
        except self._errors as error:
            self._lose(error)
            return
        if not self._was_available:
            _LOG.info("the store responds again")
        self._was_available = True

    async def _join(self) -> float:
        """Join the server's epoch and report everything; return the age of the epoch in seconds."""
        async with asyncio.timeout(_TIMEOUT):
            await self._pulse.ping()  # a new connection reads the server's run id
            reply = await self._join_epoch([f"{self._prefix}:epoch"], [self._run])
        self._epoch = str(reply[0])
        await self._report_all()
        return float(reply[1])

    def _lose(self, error: BaseException) -> None:
        self.is_available = False
        if self._was_available:
            limits = "closed" if self._is_closed_on_failure else "open"
            fields = {"reason": self._reason(error), "limits": limits}
            _LOG.warning("the store does not respond", extra={"fields": fields})
        self._was_available = False

    def _reason(self, error: BaseException) -> str:
        reason = str(error) or type(error).__name__
        if self._password:
            reason = reason.replace(self._password, "[secret]")
        return reason[:_REASON_LENGTH]

    def _now(self) -> float:
        """Return the time of the server, in seconds since 1970."""
        return time.time() + self._ahead


def _unavailable() -> LimitExceeded:
    message = "The limits of this key cannot be checked at the moment; try again."
    return LimitExceeded(503, message, "limits_unavailable", 1.0)
