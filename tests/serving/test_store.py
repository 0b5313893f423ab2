"""Limits and conversations that several gateways share, on a real redis-server.

Several limiters in one process stand for several gateways: they share nothing but the store. What
holds must hold on a busy machine, too, on which a call may take longer than its 10 ms and the store
counts as away for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.exceptions import ArgumentError
from mildroute.serving import store as store_module
from mildroute.serving.auth import leases
from mildroute.serving.auth.keys import APIClient, ClientTeam, KeyStore, hash_key, new_key
from mildroute.serving.auth.leases import SCRIPTS, LeasedBudgets, LeasedFlow, LeasedPeriod
from mildroute.serving.auth.limits import (
    NOTHING,
    Charge,
    LimitExceeded,
    Reservation,
    UsageLimiter,
    start_of_month,
)
from mildroute.serving.config import (
    FailoverConfig,
    GatewayConfig,
    RoutingConfig,
    StoreConfig,
    read_config,
)
from mildroute.serving.http.body import ParsedRequest, parse_request
from mildroute.serving.routing.decider import SessionAffinity
from mildroute.serving.store import RedisStore, Script, StoreError, StoreWait
from mildroute.serving.upstream._http1 import Deadlines
from mildroute.serving.upstream.client import UpstreamRequest
from mildroute.serving.upstream.pool import CircuitHints, ExpertPool
from tests.experts.hostile_server import HostileServer, says
from tests.serving.fakes import experts_at
from tests.serving.running import running
from tests.support.redis import RedisServer

ROUNDING = 1e-6
GATEWAYS = 4
RANDOM = np.random.default_rng(7)
# Seconds until a limit must be spent, on a machine on which the store is mostly late; and without a
# request let through, once enough is spent.
PATIENCE = 45.0
SHORT_PATIENCE = 0.8


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


class Limits:
    """The limits of one gateway."""

    def __init__(self, url: str, now: Callable[[], float] = time.time, **settings: Any) -> None:
        self.calls: list[tuple[str, float, bool]] = []
        self.store = RedisStore(
            StoreConfig(url=url, **settings), SCRIPTS, lambda *call: self.calls.append(call)
        )
        self.leases = LeasedBudgets(self.store)
        self.limiter = UsageLimiter(budgets=self.leases, now=now)
        self.waits: list[float] = []

    async def start(self) -> None:
        await self.store.start()
        await self.leases.start()

    async def close(self) -> None:
        await self.leases.close()
        await self.store.close()

    async def vanish(self) -> None:
        """Leave as a process does that is killed: nothing is given back."""
        assert self.leases._task is not None
        self.leases._task.cancel()
        await self.store.close()

    async def reserve(
        self, client: APIClient, charge: Charge, *, is_bounded: bool = True
    ) -> LimitExceeded | Reservation:
        started = time.perf_counter()
        check = lambda: self.limiter.reserve(client, charge, is_bounded=is_bounded)  # noqa: E731
        held = check()
        if isinstance(held, LimitExceeded):
            held = await self.limiter.retry(
                client, check, held, StoreWait(), charge=charge, is_bounded=is_bounded
            )
        self.waits.append(time.perf_counter() - started)
        return held

    async def admit(self, client: APIClient) -> LimitExceeded | None:
        exceeded = self.limiter.admit(client)
        if exceeded is not None:
            check = lambda: self.limiter.admit(client)  # noqa: E731
            exceeded = await self.limiter.retry(client, check, exceeded, StoreWait(), requests=1)
        return exceeded

    def day(self, client: APIClient) -> LeasedPeriod:
        return self.limiter._accounts[client.name, False].day  # type: ignore[return-value]

    def flow(self) -> LeasedFlow:
        """The only one."""
        (flow,) = self.leases._flows.values()
        return flow

    async def spend(self, client: APIClient, dollars: float) -> bool:
        """One request that takes what was reserved for it; false if it was refused."""
        held = await self.reserve(client, Charge(dollars))
        if isinstance(held, LimitExceeded):
            return False
        self.limiter.settle(client, Charge(dollars), held)
        return True


async def settled(fleet: list[Limits], client: APIClient) -> None:
    """Let all gateways have a slice and a share, which they get when the entry is a second old."""
    end = time.monotonic() + 10
    for limits in fleet:
        assert await limits.spend(client, 0.001)
    while not all(limits.day(client)._spare > 0 for limits in fleet):
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
        for limits in fleet:
            assert await limits.spend(client, 1e-6)
            await limits.leases.settle()


async def age(store: RedisStore) -> None:
    """Let a store count as one that was not flushed lately."""
    with contextlib.suppress(StoreError):
        await store.call("age", "SET", store.key("epoch"), "1", in_background=True)


@asynccontextmanager
async def gateways(url: str, count: int = GATEWAYS, **settings: Any) -> AsyncIterator[list[Limits]]:
    prefix = settings.pop("prefix", os.urandom(4).hex())
    made = [Limits(url, prefix=prefix, **settings) for _ in range(count)]
    for limits in made:
        await limits.start()
    await asyncio.gather(*(limits.leases.settle() for limits in made))  # all know of all
    await age(made[0].store)
    try:
        yield made
    finally:
        for limits in made:
            await limits.close()


async def spend_all(
    fleet: list[Limits],
    clients: list[APIClient],
    *,
    is_bounded: bool = True,
    share: Callable[[], float] = RANDOM.random,
    largest: float = 0.002,
    enough: float,
) -> dict[str, float]:
    """Send requests to all gateways until enough is spent and none is let through for a while."""
    spent = {client.name: 0.0 for client in clients}
    end = time.monotonic() + PATIENCE
    last = time.monotonic()

    async def work(limits: Limits, client: APIClient) -> None:
        nonlocal last
        while time.monotonic() < end and (
            sum(spent.values()) < enough or time.monotonic() < last + SHORT_PATIENCE
        ):
            charge = Charge(RANDOM.uniform(0.25, 1.0) * largest)
            held = await limits.reserve(client, charge, is_bounded=is_bounded)
            if isinstance(held, LimitExceeded):
                is_closed = limits.store.config.on_failure == "closed"
                assert held.status == 429 or (is_closed and held.code == "limits_unavailable")
                await asyncio.sleep(0.02)
                continue
            last = time.monotonic()
            await asyncio.sleep(0.002)
            taken = Charge(charge.dollars * share())
            limits.limiter.settle(client, taken, held)
            spent[client.name] += taken.dollars

    await asyncio.gather(
        *(work(limits, client) for limits in fleet for client in clients for _ in range(2))
    )
    return spent


def run(test: Awaitable[Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(bounded())


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.005)


async def until_all(
    fleet: Sequence[Limits], call: Callable[[Limits], Awaitable[Any]], *, is_available: bool
) -> None:
    """Make calls until all gateways have the store, or none has it."""
    end = time.monotonic() + 10
    while any(limits.store.is_available != is_available for limits in fleet):
        assert time.monotonic() < end, "it did not happen"
        await asyncio.gather(*(call(limits) for limits in fleet))
        await asyncio.sleep(0.02)


async def lateness(seconds: float, until_then: asyncio.Event) -> list[float]:
    """How late the event loop wakes what sleeps for so long: the machine's part of any wait."""
    late = []
    while not until_then.is_set():
        started = time.perf_counter()
        await asyncio.sleep(seconds)
        late.append(time.perf_counter() - started - seconds)
    return late


async def send(server: RedisServer, *command: str) -> None:
    """Send a command on a connection of its own, whatever the gateways think of the store."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b" ".join(part.encode() for part in command) + b"\r\n")
    assert (await reader.readline()).startswith(b"+OK")
    writer.close()
    await writer.wait_closed()


async def spent_of(server: RedisServer, key: str) -> float:
    """What is spent of a limit by its entry, whatever the gateways think of the store."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"HGET {key} spent\r\n".encode())
    is_there = await reader.readline() != b"$-1\r\n"
    found = float(await reader.readline()) if is_there else 0.0
    writer.close()
    await writer.wait_closed()
    return found


async def until_told(server: RedisServer, limits: Limits, spent: dict[str, float]) -> None:
    """Settle until the store knows what was spent of each limit; it may be late at first."""
    end = time.monotonic() + 10
    while True:
        await limits.leases.settle()
        found = {key: await spent_of(server, key) for key in spent}
        if found == pytest.approx(spent):
            return
        assert time.monotonic() < end, found
        await asyncio.sleep(0.05)


async def eventually(call: Callable[[], Awaitable[bool]], *, is_wanted: bool = True) -> None:
    """Wait for a result: on a busy machine the store may be away for a moment."""
    end = time.monotonic() + 5
    while await call() != is_wanted:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


class TestMoney:
    def test_four_gateways_spend_a_limit_and_no_more(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url) as fleet:
                client = APIClient("a", dollars_per_day=1.0, dollars_per_month=100.0)
                spent = (await spend_all(fleet, [client], enough=0.98))["a"]
                assert 0.98 <= spent <= 1.0 + ROUNDING
                requests = sum(len(limits.waits) for limits in fleet)
                calls = sum(len(limits.calls) for limits in fleet)
                assert calls < requests / 2  # of a limit this small; docs have those of a large one
                await asyncio.gather(*(limits.leases.settle() for limits in fleet))
                # All know what all have spent.
                await until(lambda: fleet[0].store.is_available)
                await fleet[0].leases.settle()
            async with gateways(redis.url, 1, prefix=fleet[0].store.config.prefix) as (late,):
                held = await late.reserve(client, Charge(0.05))
                assert isinstance(held, LimitExceeded)
                assert late.limiter.spent(client) == pytest.approx(spent, abs=ROUNDING)

        run(test())

    def test_requests_without_a_bound_go_over_by_one_reservation(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url) as fleet:
                client = APIClient("a", dollars_per_day=0.5)
                spent = await spend_all(
                    fleet,
                    [client],
                    is_bounded=False,
                    share=lambda: 1.0,
                    largest=0.02,
                    enough=0.5,
                )
                assert 0.5 * 0.98 <= spent["a"] <= 0.5 + 0.02 + ROUNDING

        run(test())

    def test_a_reservation_beyond_the_limit_does_not_keep_others_out(
        self, redis: RedisServer
    ) -> None:
        """What was lent over a limit goes back with the request that needed it."""

        async def test() -> None:
            async with gateways(redis.url, 2) as fleet:
                client = APIClient("a", dollars_per_day=1.0)

                async def ask(limits: Limits) -> bool:
                    held = await limits.reserve(client, Charge(2.0), is_bounded=False)
                    if isinstance(held, LimitExceeded):
                        return False
                    limits.limiter.settle(client, Charge(0.01), held)
                    return True

                for turn in range(20):
                    await eventually(lambda limits=fleet[turn % 2]: ask(limits))  # type: ignore[misc]

        run(test())

    def test_a_team_and_its_clients_each_keep_their_limit(self, redis: RedisServer) -> None:
        async def test() -> None:
            team = ClientTeam("t", dollars_per_day=0.5, members=("a", "b"))
            clients = [
                APIClient("a", dollars_per_day=0.2, team=team),
                APIClient("b", dollars_per_month=3.0, team=team),
            ]
            async with gateways(redis.url, 2) as fleet:
                # Alone at first: otherwise b may have the team's last dollars before a has its own.
                first = (await spend_all(fleet, clients[:1], enough=0.196))["a"]
                spent = await spend_all(fleet, clients, enough=0.49 - first)
            assert 0.2 * 0.98 <= first + spent["a"] <= 0.2 + ROUNDING
            assert 0.5 * 0.98 <= first + spent["a"] + spent["b"] <= 0.5 + ROUNDING

        run(test())

    def test_what_a_drained_gateway_held_is_free_at_once(self, redis: RedisServer) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0)
            async with gateways(redis.url, 1) as (first,):
                assert await first.spend(client, 0.1)
            async with gateways(redis.url, 1, prefix=first.store.config.prefix) as (second,):
                assert await second.spend(client, 0.9)
                assert not await second.spend(client, 0.001)

        run(test())

    def test_a_drain_with_full_rates_settles_all(
        self, redis: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The entry of a rate that is full again expires at once, which Redis refused."""

        async def test() -> None:
            clients = [
                APIClient(f"c{number}", dollars_per_day=1.0, requests_per_minute=6000)
                for number in range(8)
            ]
            async with gateways(redis.url, 1) as (first,):
                for client in clients:
                    assert await first.admit(client) is None
                    assert await first.spend(client, 0.1)
                await asyncio.sleep(0.1)  # a rate of 100 a second is full after 0.01
            async with gateways(redis.url, 1, prefix=first.store.config.prefix) as (second,):
                for client in clients:
                    await eventually(lambda client=client: second.spend(client, 0.9))  # type: ignore[misc]
                    assert not await second.spend(client, 0.001)

        run(test())
        assert "rejected" not in caplog.text

    def test_what_a_killed_gateway_held_comes_back(self, redis: RedisServer) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0)
            async with gateways(redis.url, 2, lease_ttl=1.5) as (killed, other):
                await settled([killed, other], client)
                assert await killed.spend(client, 0.05)
                await killed.leases.settle()
                killed_at = time.monotonic()
                await killed.vanish()
                assert not await other.spend(client, 0.9)  # a slice and a share are not free yet
                while not await other.spend(client, 0.9):
                    assert time.monotonic() < killed_at + 5
                    await asyncio.sleep(0.05)
                # What it had spent stays spent.
                assert not await other.spend(client, 0.05)

        run(test())

    def test_idle_slices_go_to_gateways_that_need_them(self, redis: RedisServer) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0)
            async with gateways(redis.url) as fleet:
                for limits in fleet[1:]:
                    assert await limits.spend(client, 0.001)
                started = time.monotonic()
                spent = 0.0
                while spent < 0.98:
                    assert time.monotonic() < started + 8
                    if await fleet[0].spend(client, 0.004):
                        spent += 0.004
                    else:
                        await asyncio.sleep(0.02)
                assert spent <= 1.0

        run(test())

    def test_a_clock_that_is_off_changes_nothing(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 2) as fleet:
                late = Limits(
                    redis.url, lambda: time.time() - 60, prefix=fleet[0].store.config.prefix
                )
                tomorrow = Limits(
                    redis.url, lambda: time.time() + 86_400, prefix=fleet[0].store.config.prefix
                )
                fleet += [late, tomorrow]
                await late.start()
                await tomorrow.start()
                client = APIClient("a", dollars_per_day=0.5)
                spent = (await spend_all(fleet, [client], enough=0.49))["a"]
                assert 0.5 * 0.98 <= spent <= 0.5 + ROUNDING

        run(test())

    def test_the_decision_log_tells_an_empty_store(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                ledger = {"a": 0.7}
                limiter = UsageLimiter(lambda _: (ledger, ledger), budgets=limits.leases)
                limits.limiter = limiter
                client = APIClient("a", dollars_per_day=1.0)
                assert not await limits.spend(client, 0.31)
                assert await limits.spend(client, 0.3)

        run(test())

    def test_a_limit_that_is_lowered_or_raised_counts_at_once(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 2) as (one, other):
                await settled([one, other], APIClient("a", dollars_per_day=100.0))
                lower = APIClient("a", dollars_per_day=1.0)
                for limits in (one, other):
                    await limits.admit(lower)  # refused, as long as one holds more than there is
                assert not await one.spend(lower, 1.5)
                spent = (await spend_all([one, other], [lower], enough=0.97, largest=0.01))["a"]
                assert 0.97 <= spent <= 1.0 + ROUNDING
                higher = APIClient("a", dollars_per_day=3.0)
                assert await one.admit(higher) is None
                assert await one.spend(higher, 1.0)

        run(test())

    def test_a_period_that_ends_begins_at_zero(self, redis: RedisServer) -> None:
        """The store's day cannot be moved; the gateway's notion of its end can."""

        async def test() -> None:
            clock = Clock()
            async with gateways(redis.url, 1) as (limits,):
                lender = LeasedBudgets(limits.store, clock)
                limits.limiter = UsageLimiter(budgets=lender, clock=clock)
                client = APIClient("a", dollars_per_day=1.0)
                assert await limits.spend(client, 0.25)
                assert limits.limiter.spent(client) == pytest.approx(0.25)
                await lender.settle()
                clock.now += 2 * 86_400
                assert limits.limiter.spent(client) == 0.0
                # The store's day is not over: it still knows, and nothing is counted twice.
                assert not await limits.spend(client, 0.8)
                clock.now += 1
                assert await limits.spend(client, 0.75)

        run(test())


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


class TestPeriods:
    def test_one_that_began_without_the_store_ends_without_it(self, tmp_path: Path) -> None:
        """At midnight, and at that of the next days."""

        async def test() -> None:
            clock = Clock()
            limits = Limits(RedisServer(tmp_path).url, replicas=2)
            await limits.start()
            lender = LeasedBudgets(limits.store, clock)
            noon = 20_000.5 * 86_400
            limits.limiter = UsageLimiter(budgets=lender, clock=clock, now=lambda: noon)
            client = APIClient("a", dollars_per_day=1.0)
            for _ in range(3):
                assert await limits.spend(client, 0.5)
                assert not await limits.spend(client, 0.001)
                clock.now += 86_400
            await limits.close()

        run(test())

    def test_a_store_whose_clock_goes_back_over_midnight_begins_no_second_day(
        self, redis: RedisServer
    ) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0)
            async with gateways(redis.url, 1) as (limits,):
                await eventually(lambda: limits.spend(client, 0.9))
                key = limits.day(client).key
                await until_told(redis, limits, {key: 0.9})
                tomorrow = (time.time() // 86_400 + 1) * 86_400
                await limits.store.call(
                    "set", "HSET", key, "start", f"{tomorrow:.17g}", in_background=True
                )
            async with gateways(redis.url, 1, prefix=limits.store.config.prefix) as (later,):
                assert not await later.spend(client, 0.2)
                await eventually(lambda: later.spend(client, 0.1))

        run(test())

    def test_restarts_from_a_snapshot_lend_no_dollar_twice(self, tmp_path: Path) -> None:
        """Nor does a gateway that knows nothing get any, before those that know have told."""

        async def test(server: RedisServer) -> None:
            client = APIClient("a", dollars_per_day=1.0)
            async with gateways(server.url, 1, on_failure="closed") as (limits,):
                await eventually(lambda: limits.spend(client, 0.2))
                await until_told(server, limits, {limits.day(client).key: 0.2})
                await send(server, "SAVE")
                await eventually(lambda: limits.spend(client, 0.4))
                await until_told(server, limits, {limits.day(client).key: 0.6})
                for _ in range(3):
                    server.kill()
                    await until(lambda: not limits.store.is_available)
                    server.start()
                    prefix = limits.store.config.prefix
                    other = Limits(server.url, prefix=prefix, on_failure="closed")
                    await other.start()
                    assert not await other.spend(client, 0.5)
                    await other.vanish()
                    await until(lambda: limits.store.is_available)
                    await until_told(server, limits, {limits.day(client).key: 0.6})

        with RedisServer(tmp_path) as server:
            run(test(server))

    def test_what_a_flushed_store_was_not_told_it_is_told_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test(server: RedisServer) -> None:
            clients = [APIClient(f"c{number}", dollars_per_day=1.0) for number in range(130)]
            async with gateways(server.url, 1) as (limits,):
                for client in clients:
                    await eventually(lambda client=client: limits.spend(client, 0.1))  # type: ignore[misc]
                told = {limits.day(client).key: 0.1 for client in clients}
                await until_told(server, limits, told)
                exchange, batches = limits.leases.exchange, 0

                def stumble(*leases: Any, **given: Any) -> asyncio.Task[bool]:
                    nonlocal batches
                    batches += 1
                    if batches == 2:
                        limits.store.mark_away()
                    return exchange(*leases, **given)

                limits.leases.active.clear()
                await send(server, "FLUSHALL")
                with monkeypatch.context() as patch:
                    patch.setattr(limits.leases, "exchange", stumble)
                    await limits.leases.settle()
                await until_told(server, limits, told)

        with RedisServer(tmp_path) as server:
            run(test(server))

    def test_a_store_that_returns_from_an_older_snapshot_is_told(self, redis: RedisServer) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0)
            async with gateways(redis.url, 2, lease_ttl=1.5, on_failure="closed") as fleet:
                one, other = fleet
                for limits in fleet:
                    await eventually(lambda limits=limits: limits.spend(client, 0.01))  # type: ignore[misc]
                    await limits.leases.settle()
                key = one.day(client).key
                old = await one.store.call("dump", "DUMP", key, in_background=True)
                for limits in fleet:
                    await eventually(lambda limits=limits: limits.spend(client, 0.4))  # type: ignore[misc]
                    await limits.leases.settle()
                await asyncio.sleep(2)  # leases of the snapshot are over
                parts = ("RESTORE", key, 0, old, "REPLACE")
                await one.store.call("restore", *parts, in_background=True)
                spent = 0.82 + (await spend_all(fleet, [client], enough=0.16))["a"]
                assert 0.98 <= spent <= 1.0 + ROUNDING
                await asyncio.gather(*(limits.leases.settle() for limits in fleet))
                assert other.limiter.spent(client) == pytest.approx(spent, abs=0.01)

        run(test())


class TestRates:
    def test_requests_of_four_gateways_keep_the_rate(self, redis: RedisServer) -> None:
        async def test() -> None:
            # 100 a second, and 1,000 at once.
            client = APIClient("a", requests_per_minute=6000)
            async with gateways(redis.url) as fleet:
                admitted = 0
                started = time.monotonic()

                async def work(limits: Limits) -> None:
                    nonlocal admitted
                    while time.monotonic() < started + 3:
                        if await limits.admit(client) is None:
                            admitted += 1
                            if admitted % 50 == 0:
                                await asyncio.sleep(0)
                        else:
                            await asyncio.sleep(0.005)

                await asyncio.gather(*(work(limits) for limits in fleet))
                allowed = 1000 + 100 * (time.monotonic() - started)
            assert allowed * 0.98 - GATEWAYS <= admitted <= allowed * 1.02

        run(test())

    def test_a_gateway_that_waits_no_longer_gets_its_part_of_what_is_left(
        self, redis: RedisServer
    ) -> None:
        async def test() -> None:
            # 100 a second, and 1,000 at once.
            client = APIClient("a", requests_per_minute=6000)
            async with gateways(redis.url, 2) as (one, _):
                end = time.monotonic() + 10
                while await one.admit(client) is None or one.flow()._level >= 1:
                    assert time.monotonic() < end
                heard = one.flow()._level_at
                check = lambda: one.limiter.admit(client)  # noqa: E731
                admitted = sum(one.leases.check_late(check) is None for _ in range(50))
                assert admitted <= 1 + 50 * (time.monotonic() - heard)

        run(test())

    def test_tokens_a_minute_are_shared(self, redis: RedisServer) -> None:
        async def test() -> None:
            client = APIClient("a", tokens_per_minute=6000)
            async with gateways(redis.url, 2) as (one, other):
                charge = Charge(0.0, 1000.0)
                held = [await limits.reserve(client, charge) for limits in [one, other] * 3]
                assert all(isinstance(entry, Reservation) for entry in held)
                refused = await other.reserve(client, charge)
                assert isinstance(refused, LimitExceeded)
                assert refused.status == 429
                # What was held and not taken is there for the other gateway.
                one.limiter.settle(client, NOTHING, held[0])  # type: ignore[arg-type]
                end = time.monotonic() + 5
                while isinstance(await other.reserve(client, charge), LimitExceeded):
                    assert time.monotonic() < end
                    await asyncio.sleep(0.05)

        run(test())

    def test_new_limits_go_on_from_the_old_ones(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                slow = APIClient("a", requests_per_minute=6)
                assert await limits.admit(slow) is None
                assert await limits.admit(slow) is not None
                refused = await limits.admit(APIClient("a", requests_per_minute=12))
                assert refused is not None
                assert refused.seconds < 6

        run(test())


class TestStoreAway:
    @pytest.fixture
    def own(self, tmp_path: Path) -> Iterator[RedisServer]:
        with RedisServer(tmp_path) as server:
            yield server

    @pytest.mark.parametrize("fault", ["pause", "kill", "flush", "client pause"])
    def test_limits_hold_and_no_request_waits(self, own: RedisServer, fault: str) -> None:
        async def disturb() -> None:
            await asyncio.sleep(0.2)
            if fault == "flush":
                await send(own, "FLUSHALL")
            elif fault == "client pause":
                await send(own, "CLIENT", "PAUSE", "700")
            elif fault == "pause":
                own.pause()
                await asyncio.sleep(0.7)
                own.resume()
            else:
                own.kill()
                await asyncio.sleep(0.7)
                own.start()

        async def test() -> None:
            async with gateways(own.url) as fleet:
                client = APIClient("a", dollars_per_day=1.0)
                is_over = asyncio.Event()
                late = asyncio.create_task(lateness(0.01, is_over))
                spent, _ = await asyncio.gather(spend_all(fleet, [client], enough=0.98), disturb())
                is_over.set()
                waits = [wait for limits in fleet for wait in limits.waits]
                # A wait of 10 ms ends two or three turns of the loop later than a sleep.
                allowed = 0.02 + 3 * max(0.0, np.quantile(await late, 0.99) - 0.001)
            assert 0.98 <= spent["a"] <= 1.0 + ROUNDING
            assert np.quantile(waits, 0.99) < allowed

        run(test())

    def test_shares_together_are_what_is_left(self, own: RedisServer) -> None:
        async def test() -> None:
            async with gateways(own.url) as fleet:
                client = APIClient("a", dollars_per_day=1.0)
                await settled(fleet, client)
                before = sum(limits.day(client).total for limits in fleet)
                own.kill()
                spent = before + (await spend_all(fleet, [client], enough=0.6))["a"]
                assert not any(limits.store.is_available for limits in fleet)
            assert 0.6 < spent <= 1.0 + ROUNDING

        run(test())

    def test_a_client_without_a_slice_gets_its_part_of_the_limit(self, own: RedisServer) -> None:
        async def test() -> None:
            async with gateways(own.url, 2) as (one, other):
                own.kill()
                await until(lambda: not one.store.is_available and not other.store.is_available)
                client = APIClient("a", dollars_per_day=1.0, requests_per_minute=600)
                assert await one.spend(client, 0.5)
                assert not await one.spend(client, 0.01)
                # The part of the rate that flows in: 5 a second.
                end = time.monotonic() + 5
                while await other.admit(client) is not None:
                    assert time.monotonic() < end
                    await asyncio.sleep(0.02)

        run(test())

    def test_closed_and_open(self, own: RedisServer) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0, requests_per_minute=600)
            async with (
                gateways(own.url, 1, on_failure="closed") as (closed,),
                gateways(own.url, 1, on_failure="open") as (opened,),
            ):
                await eventually(lambda: closed.spend(client, 0.001))
                own.kill()
                await until(lambda: not closed.store.is_available)
                await until(lambda: not opened.store.is_available)
                assert await closed.spend(client, 0.01)  # of its slice
                refused = await closed.reserve(client, Charge(0.5))
                assert isinstance(refused, LimitExceeded)
                assert (refused.status, refused.retry_after) == (503, "1")
                assert all([await opened.spend(client, 0.3) for _ in range(10)])
                assert all([await opened.admit(client) is None for _ in range(1000)])
                own.start()
                await until(lambda: opened.store.is_available)
                # What was let through without the store counts.
                await eventually(lambda: opened.spend(client, 0.001), is_wanted=False)

        run(test())

    @pytest.mark.parametrize(
        ("break_it", "mend_it", "reason"),
        [
            (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "OOM"),
            (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "READONLY"),
        ],
    )
    def test_a_store_that_can_write_nothing_counts_as_away(
        self,
        own: RedisServer,
        caplog: pytest.LogCaptureFixture,
        break_it: tuple[str, ...],
        mend_it: tuple[str, ...],
        reason: str,
    ) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0, requests_per_minute=600)
            async with (
                gateways(own.url, 1) as (shared,),
                gateways(own.url, 1, on_failure="closed") as (closed,),
                gateways(own.url, 1, on_failure="open") as (opened,),
            ):
                await settled([shared], client)
                await shared.store.call("break", *break_it, in_background=True)
                fleet = (shared, closed, opened)
                # Calls find out; a few may succeed before the store minds its memory.
                await until_all(fleet, lambda limits: limits.spend(client, 0.3), is_available=False)
                refused = await closed.reserve(client, Charge(0.9))
                assert isinstance(refused, LimitExceeded)
                assert (refused.status, refused.code) == (503, "limits_unavailable")
                assert all([await opened.spend(client, 0.3) for _ in range(10)])
                tried = [await shared.reserve(client, Charge(0.05)) for _ in range(21)]
                assert not isinstance(tried[0], LimitExceeded)
                refused = tried[-1]
                assert isinstance(refused, LimitExceeded)
                assert refused.status == 429
                assert "store of the limits is away" in refused.message
                # Until it can write it stays away, though it responds.
                looks = len(shared.calls)
                await until(lambda: len(shared.calls) > looks + 2)
                assert not shared.store.is_available
                assert all(is_failed for _, _, is_failed in shared.calls[looks:])
                connection = await shared.store._connect()
                await connection.send(mend_it)
                connection.close()
                await until_all(fleet, lambda limits: limits.leases.settle(), is_available=True)
                # What was spent without it counts.
                await eventually(lambda: opened.spend(client, 0.001), is_wanted=False)

        run(test())
        lines = [line for line in caplog.records if line.getMessage() == "the store is away"]
        assert any(reason in line.fields["reason"] for line in lines)  # type: ignore[attr-defined]

    def test_a_gateway_that_never_reached_the_store_serves(self, tmp_path: Path) -> None:
        async def test() -> None:
            limits = Limits(RedisServer(tmp_path).url, replicas=4)
            started = time.monotonic()
            await limits.start()
            assert time.monotonic() - started < 3
            client = APIClient("a", dollars_per_day=1.0)
            assert await limits.spend(client, 0.25)
            assert not await limits.spend(client, 0.001)
            await limits.close()

        run(test())

    def test_a_key_and_a_team_may_have_a_mode_of_their_own(self, own: RedisServer) -> None:
        async def test() -> None:
            async with gateways(own.url, 1) as (limits,):
                own.kill()
                await until(lambda: not limits.store.is_available)
                team = ClientTeam("t", dollars_per_day=9.0, on_failure="closed", members=("c",))
                clients = {
                    "share": APIClient("a", dollars_per_day=1.0),
                    "closed": APIClient("b", dollars_per_day=1.0, on_failure="closed"),
                    "team": APIClient("c", dollars_per_day=1.0, team=team),
                    "open": APIClient("d", dollars_per_day=1.0, on_failure="open"),
                }
                found = {}
                for name, client in clients.items():
                    held = await limits.reserve(client, Charge(0.9))
                    again = await limits.reserve(client, Charge(0.9))
                    found[name] = [
                        each.status if isinstance(each, LimitExceeded) else 200
                        for each in (held, again)
                    ]
                assert found == {
                    "share": [200, 429],
                    "closed": [503, 503],
                    "team": [503, 503],
                    "open": [200, 200],
                }
                # The key file was changed, and read again.
                changed = APIClient("b", dollars_per_day=1.0)
                assert await limits.admit(changed) is None
                assert isinstance(await limits.reserve(changed, Charge(0.9)), Reservation)

        run(test())


@asynccontextmanager
async def delayed(port: int, seconds: float) -> AsyncIterator[str]:
    """The URL of a proxy of a Redis whose replies come so much later."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def pipe(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float
    ) -> None:
        while data := await reader.read(1 << 16):
            loop.call_later(delay, writer.write, data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", port)
        writers.extend((writer, to_redis))
        for pair in ((reader, to_redis, 0.0), (from_redis, writer, seconds)):
            tasks.add(loop.create_task(pipe(*pair)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.02)


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[str]:
    """The URL of a server that says this, whatever it is asked."""
    talks: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(writer)
        with contextlib.suppress(ConnectionError):
            await reader.read(1 << 16)
            writer.write(reply)
            await writer.drain()
        writer.transport.abort()
        talks.discard(writer)

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await asyncio.sleep(0.02)
        server.close()
        await until(lambda: not talks)
        await asyncio.sleep(0.02)


async def request(limits: Limits, client: APIClient) -> tuple[float, float]:
    """Admission and reservation of one request: the seconds that they took, and its dollars."""
    wait = StoreWait()
    charge = Charge(0.002, 50.0)
    limiter = limits.limiter
    spent = 0.0
    started = time.perf_counter()
    admit = lambda: limiter.admit(client)  # noqa: E731
    exceeded = admit()
    if exceeded is not None:
        exceeded = await limiter.retry(client, admit, exceeded, wait, requests=1)
    if exceeded is None:
        reserve = lambda: limiter.reserve(client, charge)  # noqa: E731
        held = reserve()
        if isinstance(held, LimitExceeded):
            held = await limiter.retry(client, reserve, held, wait, charge=charge)
        if isinstance(held, Reservation):
            spent = charge.dollars
            limiter.settle(client, charge, held)
    return time.perf_counter() - started, spent


class TestSlowStore:
    def test_a_request_waits_10_ms_over_all_its_calls(self) -> None:
        """With three calls of 8 ms each for rate and reservation it waited up to 48 ms."""

        async def waited() -> float:
            wait = StoreWait()
            started = time.perf_counter()
            while not wait.is_over:
                await wait.wait([asyncio.ensure_future(asyncio.sleep(0.008))])
            return time.perf_counter() - started

        async def test() -> None:
            # A loop that is late makes some of them longer.
            assert min([await waited() for _ in range(10)]) < 0.0125

        run(test())

    def test_limits_hold_and_can_be_used_up(self, redis: RedisServer) -> None:
        async def test() -> None:
            client = APIClient(
                "a", dollars_per_day=1.0, requests_per_minute=1e5, tokens_per_minute=1e6
            )
            async with delayed(redis.port, 0.008) as url, gateways(url, 3) as fleet:
                made: list[tuple[float, float]] = []

                def spent() -> float:
                    return sum(dollars for _, dollars in made)

                async def work(limits: Limits) -> None:
                    started = time.monotonic()
                    while time.monotonic() < started + 2 or (
                        spent() <= 0.5 and time.monotonic() < started + PATIENCE
                    ):
                        made.append(await request(limits, client))
                        await asyncio.sleep(0.002)

                await asyncio.gather(*(work(limits) for limits in fleet for _ in range(6)))
            assert 0.5 < spent() <= 1.0 + ROUNDING

        run(test())


class TestRestart:
    def test_a_gateway_that_knows_nothing_lends_little_of_a_store_that_was_flushed(
        self, redis: RedisServer
    ) -> None:
        """It may come first; the one that knows what was spent comes a second later."""

        async def test() -> None:
            client = APIClient("a", dollars_per_day=1.0)
            # Closed: on a busy machine the store may be away for a moment, and a share be taken.
            async with gateways(redis.url, 2, on_failure="closed") as (knows, new):
                spent = 0.0
                while spent < 0.9:
                    await eventually(lambda: knows.spend(client, 0.01))
                    spent += 0.01
                await knows.leases.settle()
                knows.leases._task.cancel()  # type: ignore[union-attr]
                await knows.store.call("flush", "FLUSHALL", in_background=True)
                for _ in range(100):
                    spent += 0.01 * await new.spend(client, 0.01)
                assert spent <= 0.9 + 1 / 16 + 0.01
                await until(lambda: knows.store.is_available)
                await knows.leases.settle()
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    spent += 0.001 * await new.spend(client, 0.001)
                    await asyncio.sleep(0.005)
                assert 0.98 <= spent <= 1.0 + ROUNDING

        run(test())


class TestUrgentSettlements:
    def test_a_killed_gateway_takes_little_with_it(self, redis: RedisServer) -> None:
        async def test() -> None:
            client = APIClient("a", dollars_per_day=100.0)
            async with gateways(redis.url, 2) as (killed, other):
                await settled([killed, other], client)
                end = time.monotonic() + 0.65  # less than a second since the last settlement
                spent = killed.day(client).total
                while time.monotonic() < end:
                    spent += 0.01 * await killed.spend(client, 0.01)
                    await asyncio.sleep(0.0005)
                await killed.vanish()
                calls = [name for name, *_ in killed.calls].count("lend")
                assert calls < 60
                assert killed.day(client).total - killed.day(client)._settled <= 0.4 * spent

        run(test())


class TestScript:
    def test_months_are_those_of_the_calendar(self, redis: RedisServer) -> None:
        async def test() -> None:
            calendar, _, _ = leases.LEND.source.partition("-- End of the calendar.")
            source = calendar + "return {period_of(ARGV[1], tonumber(ARGV[2]))}"
            script = Script("calendar", source)
            async with gateways(redis.url, 1) as (limits,):
                for day in range(0, 40_000, 97):
                    now = 86_400 * day + 12_345
                    found = await limits.store.run(script, [], ["month", now], in_background=True)
                    start = start_of_month(now)
                    assert found == [start, start_of_month(start + 32 * 86_400)]

        run(test())

    def test_a_call_that_comes_too_late_changes_nothing(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                keys = [limits.store.key("{client:a}", "day"), limits.store.key("epoch")]
                terms = ["day", 1.0, 7, 0, "", 0, 0, 0.25, 0.25, 0.1, 0, 1]
                values = ["me", 60, *terms]
                first = await limits.store.run(leases.LEND, keys, [*values], in_background=True)
                again = await limits.store.run(leases.LEND, keys, [*values], in_background=True)
                assert float(first[0][2]) == 0.25
                assert float(first[0][4]) == 0.1
                assert again == [[]]

        run(test())


class TestRedisStore:
    def test_scripts_survive_a_flush_of_scripts(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                await limits.store.call("flush", "SCRIPT", "FLUSH", in_background=True)
                assert await limits.spend(APIClient("a", dollars_per_day=1.0), 0.1)

        run(test())

    def test_an_error_of_the_store_is_raised_and_counted(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                with pytest.raises(StoreError, match="unknown command"):
                    await limits.store.call("nonsense", "NONSENSE", in_background=True)
                assert limits.calls[-1][0] == "nonsense"
                assert limits.calls[-1][2]
                assert limits.store.is_available

        run(test())

    def test_password_and_database(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test(server: RedisServer) -> None:
            refused = Limits(server.url)
            await refused.start()
            assert not refused.store.is_available
            await refused.close()
            monkeypatch.setenv("REDIS_PASSWORD", "open sesame")
            limits = Limits(server.url + "/3", password_env="REDIS_PASSWORD")  # noqa: S106 - a name
            await limits.start()
            await limits.store.call("set", "SET", "x", "1", in_background=True)
            keyspace = await limits.store.call("info", "INFO", "keyspace", in_background=True)
            assert b"db3:" in keyspace
            await limits.close()

        with RedisServer(tmp_path, "--requirepass", "open sesame") as server:
            run(test(server))

    def test_a_password_that_is_missing_or_wrong_is_refused_before_the_port_is_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def check(url: str, **settings: Any) -> None:
            store = RedisStore(StoreConfig(url=url, **settings))
            try:
                await store.check_access()
            finally:
                await store.close()

        env = {"password_env": "REDIS_PASSWORD"}
        with RedisServer(tmp_path, "--requirepass", "open sesame") as server:
            with pytest.raises(
                ArgumentError, match="REDIS_PASSWORD must hold the store's password"
            ):
                run(check(server.url, **env))
            with pytest.raises(ArgumentError, match="let this gateway read and write, got: NOAUTH"):
                run(check(server.url))
            monkeypatch.setenv("REDIS_PASSWORD", "close sesame")
            with pytest.raises(ArgumentError, match="got: WRONGPASS") as refused:
                run(check(server.url, **env))
            assert "sesame" not in str(refused.value)
            monkeypatch.setenv("REDIS_PASSWORD", "open sesame\n")
            run(check(server.url, **env))
            with pytest.raises(ArgumentError, match="DB index"):
                run(check(server.url + "/99", **env))
            server.kill()
            run(check(server.url, **env))  # it may come yet

    @pytest.mark.parametrize(
        ("rules", "reason"),
        [
            ("+@all -evalsha -eval", "NOPERM"),
            ("+@all -time", "(?i)acl failure in script|can't run this command"),
            ("+@all -hset", "(?i)acl failure in script|can't run this command"),
        ],
    )
    def test_a_user_that_may_not_do_all_is_refused_at_the_start_and_away_later(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        rules: str,
        reason: str,
    ) -> None:
        caplog.set_level("INFO")
        monkeypatch.setenv("REDIS_PASSWORD", "open sesame")

        async def test(server: RedisServer) -> None:
            url = server.url.replace("//", "//gateway@")
            user = ("ACL", "SETUSER", "gateway", "on", "nopass", "~*", "&*")
            await send(server, *user, "+@all")
            limits = Limits(url, password_env="REDIS_PASSWORD")  # noqa: S106 - a name
            await limits.start()
            assert limits.store.is_available
            client = APIClient("a", dollars_per_day=1.0)
            assert await limits.spend(client, 0.1)
            await send(server, *user, *rules.split())
            await until(lambda: not limits.store.is_available)
            before = len(limits.calls)
            await asyncio.sleep(1.0)
            assert len(limits.calls) - before <= 10  # looks, not a loop
            assert not limits.store.is_available
            # Another gateway does not start.
            with pytest.raises(ArgumentError, match="let this gateway read and write") as refused:
                await RedisStore(limits.store.config).check_access()
            assert re.search(reason, str(refused.value))
            await send(server, *user, "+@all")
            await until(lambda: limits.store.is_available)
            await eventually(lambda: limits.spend(client, 0.1))
            await limits.close()

        with RedisServer(tmp_path) as server:
            run(test(server))
        assert [line.getMessage() for line in caplog.records].count("the store is away") <= 2

    def test_the_probe_has_every_command_of_every_script(self) -> None:
        command = re.compile(r"redis\.call\('(\w+)'")
        folder = Path(store_module.__file__).parent
        files = [*folder.rglob("*.py"), *folder.rglob("*.lua")]
        used = {name for path in files for name in command.findall(path.read_text())}
        assert used
        assert used <= set(re.findall(r"'([A-Z]+)'", store_module._PROBE.source))

    def test_a_store_that_is_always_late_is_looked_for_at_intervals(
        self, redis: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")

        async def test() -> None:
            async with delayed(redis.port, 0.03) as url, gateways(url, 1) as (limits,):
                client = APIClient("a", dollars_per_day=1.0)
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    await limits.spend(client, 0.0001)
                    await asyncio.sleep(0.002)
                looks = [name for name, *_ in limits.calls].count("connect")
                assert looks <= 3 + 3 / 0.25

        run(test())
        told = [line.getMessage() for line in caplog.records]
        assert told.count("the store is away") <= 1
        assert told.count("the store responds again") <= 1

    @pytest.mark.parametrize("reply", [None, 1, b"OK", [], [b"x"], [1, 2], [[b"x"] * 3]])
    def test_replies_of_another_shape_end_no_task(
        self, redis: RedisServer, reply: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                client = APIClient("a", dollars_per_day=1.0)
                assert await limits.spend(client, 0.01)

                async def answer(*_: Any, **__: Any) -> Any:
                    return reply

                with monkeypatch.context() as patch:
                    patch.setattr(limits.store, "run", answer)
                    patch.setattr(limits.store, "call", answer)
                    await limits.spend(client, 0.5)
                    await limits.leases.settle()
                    assert limits.leases.gateways == 1
                    pool = ExpertPool(experts_at(small={"base_url": redis.url}), GatewayConfig())
                    with pytest.raises(StoreError, match="cannot be read"):
                        await CircuitHints(pool, limits.store).read()
                task = limits.leases._task
                assert task is not None
                assert not task.done()
                await eventually(lambda: limits.spend(client, 0.5))

        run(test())

    def test_one_entry_of_another_kind_keeps_no_other_from_being_settled(
        self, redis: RedisServer
    ) -> None:
        async def test() -> None:
            clients = [APIClient(f"c{number}", dollars_per_day=1.0) for number in range(8)]
            async with gateways(redis.url, 1) as (limits,):
                for client in clients:
                    await eventually(lambda client=client: limits.spend(client, 0.1))  # type: ignore[misc]
                await limits.leases.settle()
                bad = limits.day(clients[3]).key
                await limits.store.call("set", "SET", bad, "?", in_background=True)
                for client in clients:
                    limits.limiter._accounts[client.name, False].day.spend(0.1)
                await limits.leases.settle()
                for client in clients:
                    key = limits.day(client).key
                    if key != bad:
                        found = await limits.store.call(
                            "get", "HGET", key, "spent", in_background=True
                        )
                        assert float(found) == pytest.approx(0.2)

        run(test())

    def test_a_rejected_batch_keeps_no_request_waiting(
        self, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only what was asked for is refused: a settlement asks for nothing."""

        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                client = APIClient("a", dollars_per_day=1.0)
                await eventually(lambda: limits.spend(client, 0.1))

                async def reject(*_: Any, **__: Any) -> Any:
                    raise StoreError("ERR one entry has another type")

                with monkeypatch.context() as patch:
                    patch.setattr(limits.store, "run", reject)
                    assert not await limits.leases.exchange([(limits.day(client), 0.0)])
                    assert limits.day(client).refused_until < time.monotonic()
                    assert not await limits.leases.exchange([(limits.day(client), 0.1)])
                    assert limits.day(client).refused_until > time.monotonic()

        run(test())

    def test_a_second_outage_soon_after_the_first_is_logged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "_LOG_INTERVAL", 1.0)
        told = lambda: [line.getMessage() for line in caplog.records].count("the store is away")  # noqa: E731

        async def test(server: RedisServer) -> None:
            async with gateways(server.url, 1) as (limits,):
                for times in (1, 2):
                    server.kill()
                    await until(lambda times=times: told() == times)  # type: ignore[misc]
                    server.start()
                    await until(lambda: limits.store.is_available)

        with RedisServer(tmp_path) as server:
            run(test(server))

    def test_a_cluster_is_refused_at_the_start(self, tmp_path: Path) -> None:
        """Limits of a key and of its team are lent in one call."""

        async def test(server: RedisServer) -> None:
            await send(server, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            store = RedisStore(StoreConfig(url=server.url))

            async def look() -> None:
                end = time.monotonic() + 10
                while time.monotonic() < end:  # it takes a moment to be one
                    await store.check_access()
                    await asyncio.sleep(0.05)

            with pytest.raises(ArgumentError, match=r"read and write, got: .*CROSSSLOT"):
                await look()
            await store.close()

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            bus = str(free.getsockname()[1])
        with RedisServer(tmp_path, "--cluster-enabled", "yes", "--cluster-port", bus) as server:
            run(test(server))

    def test_a_password_that_a_server_repeats_is_not_logged(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("REDIS_PASSWORD", "open sesame")

        async def test() -> None:
            echo = b"-ERR unknown command 'AUTH', with args beginning with: 'open sesame'\r\n"
            async with answering(echo) as url:
                limits = Limits(url, password_env="REDIS_PASSWORD")  # noqa: S106 - a name
                await limits.start()
                await limits.close()

        run(test())
        (line,) = (line for line in caplog.records if line.getMessage() == "the store is away")
        reason = line.fields["reason"]  # type: ignore[attr-defined]
        assert "unknown command 'AUTH'" in reason
        assert "sesame" not in reason

    def test_what_is_no_redis_counts_as_away(self) -> None:
        async def test() -> None:
            async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
                limits = Limits(url)
                await limits.start()
                assert not limits.store.is_available
                await limits.close()

        run(test())


class TestConversations:
    def test_another_gateway_knows_the_expert(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 2) as (one, other):
                here = SessionAffinity(RoutingConfig(), store=one.store)
                there = SessionAffinity(RoutingConfig(), store=other.store)
                here.remember("c", "large")
                later = parsed(conversation="c")
                end = time.monotonic() + 5
                while there.get("c") is None:
                    lookup = there.start_lookup(later)
                    if lookup is not None:
                        await lookup
                    assert time.monotonic() < end
                assert there.get("c") == "large"
                assert there.start_lookup(later) is None  # it is known here now
                assert there.start_lookup(parsed(conversation="d", is_first_turn=True)) is None
                lookup = there.start_lookup(parsed(conversation="d"))
                assert lookup is not None
                await lookup
                assert there.get("d") is None

        run(test())

    def test_what_the_store_knows_is_not_told_again(self, redis: RedisServer) -> None:
        async def test() -> None:
            clock = Clock()
            async with gateways(redis.url, 1) as (limits,):
                memory = SessionAffinity(RoutingConfig(session_ttl=100.0), clock, limits.store)

                async def told() -> int:
                    await limits.store.call("ping", "PING", in_background=True)
                    return [name for name, *_ in limits.calls].count("set_session")

                for _ in range(5):
                    memory.remember("c", "large")
                assert await told() == 1
                memory.remember("c", "small")
                assert await told() == 2
                clock.now += 26
                memory.remember("c", "small")
                assert await told() == 3

        run(test())


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is there, on a machine on which it may take longer than its 10 ms."""
    monkeypatch.setattr("mildroute.serving.store._REQUEST_TIMEOUT", 1.0)


@pytest.mark.usefixtures("unhurried")
class TestSlots:
    """An expert's concurrency over all gateways."""

    def test_calls_at_the_same_time_are_those_of_the_file(self, redis: RedisServer) -> None:
        with HostileServer(lambda _: says("x", delay=0.02)) as expert:

            async def test() -> None:
                async with gateways(redis.url, 3) as fleet:
                    pools = shared_pools(fleet, expert.url, 6)
                    made = await asyncio.gather(*(call(pool) for pool in pools for _ in range(40)))
                    assert made == [200] * 120
                    # Once more: slices are held now, and few calls of the store are made.
                    before = sum(len(limits.calls) for limits in fleet)
                    for _ in range(20):
                        await call(pools[0])
                    assert sum(len(limits.calls) for limits in fleet) - before < 10

            run(test())
        assert expert.most_at_once <= 6
        assert expert.most_at_once >= 4

    def test_one_gateway_may_use_all_and_gives_them_up_when_others_wait(
        self, redis: RedisServer
    ) -> None:
        with HostileServer(lambda _: says("x", delay=0.03)) as expert:

            async def test() -> None:
                async with gateways(redis.url, 2) as fleet:
                    one, other = shared_pools(fleet, expert.url, 4)
                    is_over = False

                    async def busy() -> None:
                        while not is_over:
                            await call(one)

                    tasks = [asyncio.create_task(busy()) for _ in range(12)]
                    await until(lambda: expert.at_once == 4)
                    started = time.monotonic()
                    assert await call(other) == 200
                    assert time.monotonic() - started < 5
                    is_over = True
                    await asyncio.gather(*tasks)

            run(test())
        assert expert.most_at_once == 4

    def test_an_entry_of_another_kind_is_not_asked_for_in_a_loop(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 1) as (limits,):
                slots = limits.leases.slots("small", 8)
                slots.on_change = lambda: slots.want(1)
                await limits.store.call("set", "SET", slots.key, "?", in_background=True)
                slots.want(1)
                await asyncio.sleep(1.0)
                slots.on_change = None
                assert 1 <= [name for name, *_ in limits.calls].count("lend") <= 6

        run(test())

    def test_slots_of_a_killed_gateway_come_back(self, redis: RedisServer) -> None:
        with HostileServer([says("x")]) as expert:

            async def test() -> None:
                async with gateways(redis.url, 2, lease_ttl=1.0) as fleet:
                    pools = shared_pools(fleet, expert.url, 1)
                    assert await call(pools[0]) == 200
                    await fleet[0].vanish()
                    assert await call(pools[1]) == 200

            run(test())

    def test_without_the_store_each_has_its_part(self, tmp_path: Path) -> None:
        with (
            RedisServer(tmp_path) as own,
            HostileServer(lambda _: says("x", delay=0.02)) as expert,
        ):

            async def test() -> None:
                async with gateways(own.url, 2) as fleet:
                    await until(lambda: all(limits.leases.gateways == 2 for limits in fleet))
                    own.kill()
                    await until(lambda: not any(limits.store.is_available for limits in fleet))
                    pools = shared_pools(fleet, expert.url, 4)
                    made = await asyncio.gather(*(call(pool) for pool in pools for _ in range(10)))
                    assert made == [200] * 20

            run(test())
            assert 2 <= expert.most_at_once <= 4

    def test_after_a_flush_what_is_held_is_told_again(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 2) as (one, other):
                slots = [limits.leases.slots("small", 8) for limits in (one, other)]
                slots[0].want(1)
                await until(slots[0].take)
                await until(lambda: slots[0].call is None)
                await one.store.call("flush", "FLUSHALL", in_background=True)
                slots[1].want(8)
                await until(lambda: slots[1].lease > 0)
                assert slots[1].lease <= 4  # its share, until the other has told
                await one.leases.settle()
                end = time.monotonic() + 3
                while slots[1].lease < 7 and time.monotonic() < end:
                    slots[1].want(8)
                    await asyncio.sleep(0.05)
                assert slots[0].lease + slots[1].lease <= 8

        run(test())


def shared_pools(fleet: list[Limits], url: str, concurrency: int) -> list[ExpertPool]:
    """One for each gateway, of an expert that may have so many calls at the same time."""
    file = experts_at(small={"base_url": url, "concurrency": concurrency})
    return [ExpertPool(file, GatewayConfig(), leases=limits.leases) for limits in fleet]


async def call(pool: ExpertPool) -> int:
    """Status of one call of an expert, on a connection of its own."""
    client = pool.experts["small"].client
    assert client is not None
    until_then = asyncio.get_running_loop().time() + 20
    deadlines = Deadlines(until_then, 20.0, until_then, 1 << 20)
    body = b'{"model": "x", "messages": [{"role": "user", "content": "Hi"}]}'
    request = parse_request("chat/completions", body, "a")
    response = await client.send(UpstreamRequest(request, b""), deadlines)
    response.close()
    client._close_idle()
    return response.status


class TestCircuits:
    def test_a_rate_limit_holds_at_other_gateways_for_as_long(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 2) as (one, other):
                here = ExpertPool(experts_at(small="http://127.0.0.1:1"), GatewayConfig())
                there = ExpertPool(experts_at(small="http://127.0.0.1:1"), GatewayConfig())
                own = CircuitHints(here, one.store)
                hints = CircuitHints(there, other.store)
                here.experts["small"].record_rate_limit(time.monotonic(), 2.0)
                await one.store.call("ping", "PING", in_background=True)
                await hints.read()
                await own.read()
                assert not there.experts["small"].status().has_capacity
                assert there.experts["small"].status().is_available
                end = time.monotonic() + 6
                while not there.experts["small"].status().has_capacity:
                    assert time.monotonic() < end
                    await hints.read()
                    await asyncio.sleep(0.05)
                assert here.experts["small"].status().has_capacity

        run(test())

    def test_after_a_hint_one_failure_opens_a_circuit(self, redis: RedisServer) -> None:
        async def test() -> None:
            async with gateways(redis.url, 2) as (one, other):
                here = ExpertPool(experts_at(small="http://127.0.0.1:1"), GatewayConfig())
                there = ExpertPool(experts_at(small="http://127.0.0.1:1"), GatewayConfig())
                own = CircuitHints(here, one.store)
                hints = CircuitHints(there, other.store)
                breakers = [pool.experts["small"].breaker for pool in (here, there)]
                await hints.read()
                breakers[1].record_failure()
                assert breakers[1].state == "closed"
                breakers[1].record_success()
                for _ in range(5):
                    breakers[0].record_failure()
                assert breakers[0].state == "open"
                await one.store.call("ping", "PING", in_background=True)
                await hints.read()
                await own.read()
                assert breakers[1].state == "closed"
                breakers[1].record_failure()
                assert breakers[1].state == "open"
                # One's own hint is none.
                breakers[0].record_success()
                breakers[0].record_failure()
                assert breakers[0].state == "closed"

        run(test())


def parsed(**fields: Any) -> ParsedRequest:
    return ParsedRequest("chat/completions", "mildroute", "Hi", b"", (0, 0), **fields)


class TestGateways:
    def test_two_gateways_share_the_dollars_of_a_key(self, redis: RedisServer) -> None:
        key = new_key()
        client = APIClient("a", dollars_per_day=1.0)
        headers = {"authorization": f"Bearer {key}"}

        def services() -> dict[str, Any]:
            config = StoreConfig(url=redis.url, prefix="whole")
            lender = LeasedBudgets(RedisStore(config, SCRIPTS))
            return {
                "key_store": KeyStore([(hash_key(key), client)]),
                "usage_limiter": UsageLimiter(budgets=lender),
                "leases": lender,
            }

        settings = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0))
        price = {"input": 0.0, "output": 10.0}
        # Each answer costs $0.05.
        with (
            HostileServer(lambda _: says("x", (0, 5000))) as expert,
            running(
                settings, services=services(), small={"base_url": expert.url, "price": price}
            ) as one,
            running(
                settings, services=services(), small={"base_url": expert.url, "price": price}
            ) as other,
        ):
            statuses: list[int] = []
            end = time.monotonic() + 15
            while statuses.count(200) < 20:
                assert time.monotonic() < end
                for gateway in (one, other):
                    found = gateway.chat(headers=headers, max_tokens=5000)
                    statuses.append(found.status_code)
                    if found.status_code != 200:
                        time.sleep(0.05)
            last = [
                gateway.chat(headers=headers, max_tokens=5000).status_code
                for gateway in (one, other) * 5
            ]
        assert set(statuses) <= {200, 429}
        assert last == [429] * 10

    def test_no_request_fails_while_the_store_is_paused(self, tmp_path: Path) -> None:
        key = new_key()
        client = APIClient("a", dollars_per_day=1.0, tokens_per_minute=1e9)
        with (
            RedisServer(tmp_path) as own,
            HostileServer(lambda _: says("x", (0, 100))) as expert,
        ):
            lender = LeasedBudgets(RedisStore(StoreConfig(url=own.url), SCRIPTS))
            services = {
                "key_store": KeyStore([(hash_key(key), client)]),
                "usage_limiter": UsageLimiter(budgets=lender),
                "leases": lender,
            }
            small = {"base_url": expert.url, "price": {"input": 0.0, "output": 10.0}}
            with running(services=services, small=small) as gateway:
                headers = {"authorization": f"Bearer {key}"}

                def chat() -> int:
                    return gateway.chat(headers=headers, max_tokens=100).status_code

                chat()
                account = services["usage_limiter"]._accounts["a", False]  # type: ignore[attr-defined]
                while account.day._spare == 0:  # until the entry is a second old
                    chat()
                    time.sleep(0.05)
                own.pause()
                statuses = [chat() for _ in range(30)]
                own.resume()
                statuses += [chat() for _ in range(10)]
        assert statuses == [200] * len(statuses)


class TestSettings:
    def test_a_store_is_a_url_or_a_mapping(self, tmp_path: Path) -> None:
        file = tmp_path / "gateway.yaml"
        file.write_text("store: redis://cache:6380/2\n")
        assert read_config(file).store == StoreConfig(url="redis://cache:6380/2")
        file.write_text("store: {url: 'rediss://me@cache', on_failure: closed, lease_ttl: 30}\n")
        expected = StoreConfig(url="rediss://me@cache", on_failure="closed", lease_ttl=30)
        assert read_config(file).store == expected

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("store: cache:6379", "redis://host:6379/0"),
            ("store: http://cache", "redis://host:6379/0"),
            ("store: redis://cache/x", "redis://host:6379/0"),
            ("store: redis://cache:port", "redis://host:6379/0"),
            ("store: redis://me:hush-hush@cache", "store.password_env"),
            ("store: {url: 'redis://me:hush-hush@cache'}", "store.password_env"),
            ("store: {url: redis://cache, on_failure: panic}", "one of share, closed, open"),
            ("store: {url: redis://cache, lease_ttl: 0}", "more than 0"),
            ("store: 5", "store"),
        ],
    )
    def test_what_is_wrong_is_said_without_the_password(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        file = tmp_path / "gateway.yaml"
        file.write_text(text + "\n")
        with pytest.raises(ArgumentError) as raised:
            read_config(file)
        assert message in str(raised.value)
        assert "hush" not in str(raised.value)
