"""Limits that several gateways share through Redis or Valkey."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mildroute.decision.days import DAY, ROUNDING
from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.gateway.config import StoreConfig
from mildroute.gateway.keys import APIClient
from mildroute.gateway.limits.base import Reservation, burst_of, countable, requests_per_second
from mildroute.gateway.limits.refusals import (
    LimitExceeded,
    too_expensive,
    too_fast,
    too_many_inputs,
    unavailable,
)

if TYPE_CHECKING:
    from redis.asyncio.connection import Connection

__all__ = ["RedisLimits"]

_LOG = logging.getLogger(__name__)
_RESERVE = Path(__file__).with_name("reserve.lua").read_text(encoding="utf-8")
_JOIN = Path(__file__).with_name("join.lua").read_text(encoding="utf-8")
# Seconds that a request waits for Redis. A burst of requests may keep the event loop busy for a
# second, which does not mean that Redis is down; only the heartbeat can tell.
_TIMEOUT = 3.0
_HEARTBEAT_TIMEOUT = 2.0
# Seconds between two heartbeats, and between two attempts to connect.
_HEARTBEAT = 0.5
# Seconds after a loss of data during which nothing is admitted, so that each gateway can report its
# spending. This is longer than a gateway takes to notice the loss: a heartbeat and an attempt to
# connect.
_RECOVERY = 3.0
_MAX_CONNECTIONS = 16
# Number of reports sent concurrently after a loss of data.
_BATCH = 64
_REASON_LENGTH = 200


@dataclass
class _Account:
    """The state of one key.

    Attributes:
        client: The client and its limits at the latest request.
        day: The UTC day of ``spent``, ``total`` and ``held``, in days since 1970.
        spent: Dollars that this gateway has counted today.
        open: Dollars of this gateway's open reservations, by id.
        closed: Ids of settled reservations that Redis may still hold.
        total: Dollars that all gateways have spent today, from the latest reply of Redis.
        held: Dollars that all gateways hold, from the latest reply of Redis.
        refused_until: Time at which the rate limit of the key admits the next request.
    """

    client: APIClient
    day: int = 0
    spent: float = 0.0
    open: dict[str, float] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    total: float = 0.0
    held: float = 0.0
    refused_until: float = -math.inf

    def begin_day(self, day: int) -> bool:
        """Reset the sums if the day is new, and return whether it is."""
        is_new = day > self.day
        if is_new:
            self.day = day
            self.spent = 0.0
            self.total = 0.0
            self.held = sum(self.open.values())
        return is_new


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
                # No retries: a reservation that is sent twice is held twice.
                retry=Retry(NoBackoff(), 0),
                redis_connect_func=self._connected,
                decode_responses=True,
            )
            return Redis.from_pool(pool)

        self._redis = connect(_MAX_CONNECTIONS)
        # The heartbeat has its own connection so that it never waits behind requests.
        self._pulse = connect(1)
        self._count = self._redis.register_script(_RESERVE)
        self._join_epoch = self._pulse.register_script(_JOIN)
        self._prefix = config.prefix
        self._is_closed_on_failure = on_failure == "closed"
        self._password = password
        self._name = os.urandom(8).hex()
        self._number = 0
        self._accounts: dict[str, _Account] = {}
        # The latest run id, epoch and clock offset of the server.
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
            # Do not cancel at once, because redis-py may mistake that for its own timeout.
            await asyncio.wait((self._heart,), timeout=_TIMEOUT)
            self._heart.cancel()
        if self.is_available:
            with contextlib.suppress(*self._errors):
                async with asyncio.timeout(_TIMEOUT):
                    await self._report_all(dirty_only=True)
        for connections in (self._redis, self._pulse):
            await connections.aclose()

    def refusal(self, client: APIClient) -> LimitExceeded | None:
        """Return why every request of a client would be refused now, judged from known totals."""
        account = self._accounts.get(client.name)
        if account is None or not client.has_limits:
            return None
        if not self.is_available:
            return unavailable() if self._is_closed_on_failure else None
        wait = account.refused_until - time.monotonic()
        if wait > 0 and client.requests_per_minute is not None:
            return too_fast(client, wait)
        limit = client.dollars_per_day
        # The total of all gateways never shrinks within a day.
        is_today = account.day == self._today()
        if limit is not None and is_today and limit - account.total <= ROUNDING:
            return too_expensive(client, 0.0, account.total, 0.0, self._now())
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
        burst = burst_of(client)
        if client.requests_per_minute is not None and requests > burst:
            return too_many_inputs(client, requests, burst)
        account = self._accounts.setdefault(client.name, _Account(client))
        account.client = client
        self._number += 1
        limit = client.dollars_per_day if dollars > 0 else None
        reservation = Reservation(f"{self._name}.{self._number}", client.name, dollars)
        request = (
            reservation.id,
            dollars,
            int(is_bounded),
            -1 if limit is None else limit,
            requests,
            -1 if client.requests_per_minute is None else requests_per_second(client),
            burst,
            self._now() + _TIMEOUT,
        )
        verdict, wait = await self._try_reserve(account, reservation, request)
        if verdict == "rate":
            account.refused_until = time.monotonic() + wait
            return too_fast(client, wait)
        if verdict == "dollars":
            return too_expensive(client, dollars, account.total, account.held, self._now())
        if verdict != "admitted" and self._is_closed_on_failure:
            return unavailable()
        if limit is None:
            return None
        account.open[reservation.id] = dollars
        return reservation

    async def _try_reserve(
        self, account: _Account, reservation: Reservation, request: tuple[float | str, ...]
    ) -> tuple[str, float]:
        """Request a reservation from Redis; the verdict is ``"unknown"`` if there is no reply."""
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
        account.begin_day(self._today())
        del account.open[reservation.id]
        account.spent += countable(dollars)
        account.closed.add(reservation.id)
        self._report_soon(account)

    def budgets(self) -> Iterator[tuple[str, float, float]]:
        """Yield name, today's remaining dollars and held dollars of each client with a budget."""
        for account in self._accounts.values():
            limit = account.client.dollars_per_day
            if limit is None:
                continue
            if account.begin_day(self._today()) and account.open:
                # Redis drops open reservations along with the old day.
                self._report_soon(account)
            yield account.client.name, limit - account.total, account.held

    async def _connected(self, connection: Connection) -> None:
        """Set up a new connection, and detect a change of server."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        reply = str(await connection.read_response())
        if "redis_mode:cluster" in reply:
            raise ArgumentError(
                "store.url must be a single Redis or Valkey server, got a node of a cluster; limits"
                " need one server, perhaps with a replica."
            )
        match = re.search(r"run_id:(\w+)", reply)
        run = "unknown" if match is None else match[1]
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
        now, total, held, wait = map(float, reply[1:])
        self._ahead = now - time.time()
        day = int(now // DAY)
        if account.begin_day(day) and account.open:
            # Redis has dropped open reservations along with the old day.
            self._report_soon(account)
        if account.day == day:
            account.total = total
            account.held = held
        account.closed.difference_update(closed)
        return verdict, wait

    def _report_soon(self, account: _Account) -> None:
        """Report this gateway's spending and reservations, with one report per key at a time."""
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
        accounts = [
            account for account in self._accounts.values() if account.closed or not dirty_only
        ]
        for start in range(0, len(accounts), _BATCH):
            batch = accounts[start : start + _BATCH]
            await asyncio.gather(*(self._call(account) for account in batch))

    async def _beat_forever(self) -> None:
        while not await self._sleep(_HEARTBEAT):
            await self._beat()

    async def _sleep(self, seconds: float) -> bool:
        """Sleep for some seconds or until the gateway stops; return whether it stops."""
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

    def _today(self) -> int:
        """Return the UTC day of the server, in days since 1970."""
        return int(self._now() // DAY)
