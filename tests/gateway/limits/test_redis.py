"""Limits that four gateways share through a real redis-server.

Several limiters in one process stand for several gateways: they share nothing but the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mildroute.decision.days import DAY
from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import StoreConfig
from mildroute.gateway.keys import APIClient
from mildroute.gateway.limits import redis as module
from mildroute.gateway.limits.base import Reservation
from mildroute.gateway.limits.redis import RedisLimits
from mildroute.gateway.limits.refusals import LimitExceeded
from tests.support.redis import RedisServer

pytestmark = pytest.mark.anyio

GATEWAYS = 4
RESERVATION = 0.05
CLIENT = APIClient("a", dollars_per_day=0.10)
RATED = APIClient("r", requests_per_minute=60)


VARIABLE = "STORE_PASSWORD"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEARTBEAT", 0.1)
    monkeypatch.setattr(module, "_RECOVERY", 1.0)


@pytest.fixture
def redis(tmp_path: object) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:  # type: ignore[arg-type]
        yield server


@asynccontextmanager
async def gateways(
    server: RedisServer, count: int = GATEWAYS, on_failure: str = "closed"
) -> AsyncIterator[list[RedisLimits]]:
    found = [RedisLimits(StoreConfig(url=server.url), on_failure) for _ in range(count)]
    await asyncio.gather(*(limits.start() for limits in found))
    try:
        yield found
    finally:
        await asyncio.gather(*(limits.close() for limits in found))


async def until_available(found: list[RedisLimits], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not all(limits.is_available for limits in found):
        assert time.monotonic() < end, "the store did not come back"
        await asyncio.sleep(0.02)


def admitted(results: list[Reservation | LimitExceeded | None]) -> list[Reservation]:
    return [result for result in results if isinstance(result, Reservation)]


async def pay(limits: RedisLimits, client: APIClient, dollars: float) -> float:
    """Reserve and settle one request; gives what it has cost."""
    reservation = await limits.reserve(client, RESERVATION)
    if not isinstance(reservation, Reservation):
        return 0.0
    await asyncio.sleep(0.01)
    limits.settle(reservation, dollars)
    return dollars


class TestRedisLimits:
    async def test_four_gateways_spend_one_limit(self, redis: RedisServer) -> None:
        async with gateways(redis) as found:
            results = await asyncio.gather(
                *(found[n % GATEWAYS].reserve(CLIENT, RESERVATION) for n in range(300))
            )
            assert len(admitted(list(results))) == 2
            open_ended = APIClient("b", dollars_per_day=0.10)
            results = await asyncio.gather(
                *(
                    found[n % GATEWAYS].reserve(open_ended, 0.04, is_bounded=False)
                    for n in range(300)
                )
            )
            assert len(admitted(list(results))) == 3

    async def test_a_request_waits_for_one_round_trip(self, redis: RedisServer) -> None:
        async with gateways(redis, 1) as [limits]:
            calls: list[str] = []
            run_script = limits._count

            async def count(keys: list[str], arguments: list[Any]) -> Any:
                # Only a reservation has arguments beyond the report.
                calls.append("reserve" if len(arguments) > 3 else "settle")
                return await run_script(keys, arguments)

            limits._count = count
            reservation = await limits.reserve(CLIENT, RESERVATION)
            assert calls == ["reserve"]
            assert isinstance(reservation, Reservation)
            limits.settle(reservation, 0.01)
            while len(calls) < 2:
                await asyncio.sleep(0.01)
            assert calls == ["reserve", "settle"]

    async def test_one_request_after_the_other_never_meets_what_the_last_one_held(
        self, redis: RedisServer
    ) -> None:
        async with gateways(redis, 1) as [limits]:
            for _ in range(50):
                reservation = await limits.reserve(CLIENT, 0.09)
                assert isinstance(reservation, Reservation)
                limits.settle(reservation, 0.0001)
            [(_, left, _)] = limits.budgets()
            assert left == pytest.approx(0.10 - 49 * 0.0001)

    async def test_a_rate_holds_over_all_gateways(self, redis: RedisServer) -> None:
        async with gateways(redis) as found:
            results = await asyncio.gather(*(found[n % GATEWAYS].reserve(RATED) for n in range(60)))
            assert 10 <= results.count(None) <= 12
            refusal = next(each for each in results if isinstance(each, LimitExceeded))
            assert refusal.code == "rate_limit_exceeded"
            assert any(limits.refusal(RATED) is not None for limits in found)

    async def test_a_gateway_that_is_killed_leaves_what_it_held_as_spent(
        self, redis: RedisServer
    ) -> None:
        async with gateways(redis, 2) as [dead, alive]:
            assert admitted([await dead.reserve(CLIENT, 0.08)])
            dead._accounts.clear()
            assert isinstance(await alive.reserve(CLIENT, 0.03), LimitExceeded)
            assert admitted([await alive.reserve(CLIENT, 0.02)])

    async def test_flushed_data_is_told_again_before_anything_is_admitted(
        self, redis: RedisServer
    ) -> None:
        limit = APIClient("a", dollars_per_day=1.0)
        async with gateways(redis) as found:
            spent = 0.0
            for n in range(19):
                spent += await pay(found[n % GATEWAYS], limit, RESERVATION)
            held = admitted([await found[0].reserve(limit, 0.04)])
            assert spent == pytest.approx(0.95)
            for _ in range(2):
                redis.cli("FLUSHALL")
                results = await asyncio.gather(
                    *(found[n % GATEWAYS].reserve(limit, RESERVATION) for n in range(100))
                )
                assert admitted(list(results)) == []
                await asyncio.sleep(0.3)
                await until_available(found)
                results = await asyncio.gather(
                    *(found[n % GATEWAYS].reserve(limit, RESERVATION) for n in range(100))
                )
                assert admitted(list(results)) == []
            found[0].settle(held[0], 0.0)
            await asyncio.sleep(0.1)
            assert await pay(found[1], limit, RESERVATION) == RESERVATION

    @pytest.mark.parametrize("fault", ["pause", "kill", "restart", "flush"])
    async def test_the_limit_holds_through_faults(self, redis: RedisServer, fault: str) -> None:
        limit = APIClient("a", dollars_per_day=1.0)
        async with gateways(redis) as found:
            spent: list[float] = []
            is_over = asyncio.Event()

            async def ask(limits: RedisLimits) -> None:
                while not is_over.is_set():
                    spent.append(await pay(limits, limit, RESERVATION))
                    await asyncio.sleep(0.002)

            tasks = [asyncio.create_task(ask(limits)) for limits in found for _ in range(5)]
            await asyncio.sleep(0.05)
            if fault == "pause":
                redis.cli("CLIENT", "PAUSE", "1500", "ALL")
            elif fault == "flush":
                redis.cli("FLUSHALL")
            else:
                redis.kill()
            if fault in ("kill", "restart"):
                await asyncio.sleep(0.3)
                redis.start()
            await asyncio.sleep(0.3)
            await until_available(found)
            end = time.monotonic() + 8
            while sum(spent) < 1.0 - 1e-6 and time.monotonic() < end:
                await asyncio.sleep(0.05)
            is_over.set()
            await asyncio.gather(*tasks)
        assert sum(spent) <= 1.0 + 1e-6
        # A reply that was lost may hold dollars for a while, but not for good.
        assert sum(spent) >= 1.0 - 2 * RESERVATION

    async def test_without_a_server_closed_refuses_and_open_admits(
        self, redis: RedisServer
    ) -> None:
        async with (
            gateways(redis, 1) as [closed],
            gateways(redis, 1, "open") as [is_open],
        ):
            redis.kill()
            refusal = await closed.reserve(CLIENT, RESERVATION)
            assert isinstance(refusal, LimitExceeded)
            assert (refusal.status, refusal.code) == (503, "limits_unavailable")
            assert closed.refusal(CLIENT) is not None
            assert await closed.reserve(APIClient("free"), 1.0) is None
            for _ in range(3):
                reservation = await is_open.reserve(CLIENT, RESERVATION)
                assert isinstance(reservation, Reservation)
                is_open.settle(reservation, RESERVATION)
            redis.start()
            await until_available([closed, is_open])
            # What was spent meanwhile counts.
            assert isinstance(await closed.reserve(CLIENT, 0.01), LimitExceeded)

    async def test_a_new_day_frees_the_budget_without_another_request(
        self, redis: RedisServer
    ) -> None:
        async with gateways(redis, 1) as [limits]:
            settled = await limits.reserve(CLIENT, 0.04)
            assert isinstance(settled, Reservation)
            limits.settle(settled, 0.04)
            held = await limits.reserve(CLIENT, 0.05)
            assert isinstance(held, Reservation)
            assert list(limits.budgets()) == [("a", pytest.approx(0.06), pytest.approx(0.05))]
            # The server's clock cannot be set, but the gateway follows what it knows of it.
            limits._ahead += DAY
            assert list(limits.budgets()) == [("a", pytest.approx(0.10), pytest.approx(0.05))]

    async def test_a_cluster_is_refused(self, tmp_path: Path) -> None:
        with RedisServer(tmp_path, "--cluster-enabled", "yes") as server:
            limits = RedisLimits(StoreConfig(url=server.url), "open")
            with pytest.raises(ArgumentError, match="single Redis or Valkey server"):
                await limits.check_access()
            await limits.close()

    async def test_a_wrong_password_is_refused_at_the_start(
        self, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        redis.cli("CONFIG", "SET", "requirepass", "right")
        monkeypatch.setenv("STORE_PASSWORD", "wrong\n")
        limits = RedisLimits(StoreConfig(url=redis.url, password_env=VARIABLE), "closed")
        with pytest.raises(ArgumentError, match="must let this gateway read and write"):
            await limits.check_access()
        await limits.close()
        monkeypatch.setenv("STORE_PASSWORD", "right\n")
        limits = RedisLimits(StoreConfig(url=redis.url, password_env=VARIABLE), "closed")
        assert await limits.check_access()
        await limits.close()


def test_a_missing_password_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORE_PASSWORD", raising=False)
    config = StoreConfig(url="redis://127.0.0.1:1", password_env=VARIABLE)
    with pytest.raises(ArgumentError, match="STORE_PASSWORD must hold the store's password"):
        RedisLimits(config, "closed")
