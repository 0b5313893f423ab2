"""Limits of keys in one process, and shared by four gateways on a real redis-server.

Several limiters in one process stand for several gateways: they share nothing but the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.gateway import limits as module
from mildroute.gateway.config import StoreConfig
from mildroute.gateway.keys import APIClient
from mildroute.gateway.limits import (
    DAY,
    LimitExceeded,
    LocalLimits,
    RedisLimits,
    Reservation,
)
from tests.support.redis import RedisServer

pytestmark = pytest.mark.anyio

GATEWAYS = 4
RESERVATION = 0.05
CLIENT = APIClient("a", dollars_per_day=0.10)
RATED = APIClient("r", requests_per_minute=60)


VARIABLE = "STORE_PASSWORD"


class Clock:
    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


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


async def pay(limits: RedisLimits | LocalLimits, client: APIClient, dollars: float) -> float:
    """Reserve and settle one request; gives what it has cost."""
    reservation = await limits.reserve(client, RESERVATION)
    if not isinstance(reservation, Reservation):
        return 0.0
    await asyncio.sleep(0.01)
    limits.settle(reservation, dollars)
    return dollars


class TestLocalLimits:
    async def test_a_client_without_limits_is_never_refused_and_not_remembered(self) -> None:
        limits = LocalLimits()
        assert await limits.reserve(APIClient("free"), 1e9) is None
        assert list(limits.budgets()) == []

    async def test_reservations_never_pass_the_limit(self) -> None:
        limits = LocalLimits()
        found = [await limits.reserve(CLIENT, RESERVATION) for _ in range(300)]
        assert len(admitted(found)) == 2
        assert {each.code for each in found if isinstance(each, LimitExceeded)} == {
            "rate_limit_exceeded"
        }
        assert list(limits.budgets()) == [("a", 0.10, 0.10)]

    async def test_a_request_without_a_maximum_passes_the_limit_by_one_reservation(self) -> None:
        limits = LocalLimits()
        found = [await limits.reserve(CLIENT, 0.04, is_bounded=False) for _ in range(300)]
        assert len(admitted(found)) == 3

    async def test_what_a_request_did_not_cost_is_free_again(self) -> None:
        limits = LocalLimits()
        for _ in range(20):
            assert await pay(limits, CLIENT, 0.0) == 0.0
        [first] = admitted([await limits.reserve(CLIENT, 0.10)])
        assert isinstance(await limits.reserve(CLIENT, 0.01), LimitExceeded)
        limits.settle(first, 0.03)
        refusal = await limits.reserve(CLIENT, 0.08)
        assert isinstance(refusal, LimitExceeded)
        assert refusal.code == "insufficient_quota"
        assert "may cost $0.08, and this key has $0.07 of $0.1 left" in refusal.message
        assert admitted([await limits.reserve(CLIENT, 0.07)])

    async def test_a_spent_day_ends_at_midnight(self) -> None:
        now = Clock(20_000 * DAY + DAY - 60)
        limits = LocalLimits({"a": 0.10}, now=now)
        refusal = limits.refusal(CLIENT)
        assert refusal is not None
        assert (refusal.status, refusal.code, refusal.retry_after) == (
            429,
            "insufficient_quota",
            60.0,
        )
        now.seconds += 60
        assert limits.refusal(CLIENT) is None
        assert admitted([await limits.reserve(CLIENT, 0.10)])

    async def test_what_was_spent_before_a_restart_counts_for_that_day_alone(self) -> None:
        now = Clock(20_000 * DAY)
        limits = LocalLimits({"a": 0.10}, now=now)
        now.seconds += DAY
        assert limits.refusal(CLIENT) is None

    async def test_a_rate_admits_ten_seconds_at_once_and_then_its_pace(self) -> None:
        clock = Clock()
        limits = LocalLimits(clock=clock)
        found = [await limits.reserve(RATED) for _ in range(11)]
        assert found[:10] == [None] * 10
        assert isinstance(found[10], LimitExceeded)
        assert limits.refusal(RATED) is not None
        clock.seconds += found[10].seconds
        assert limits.refusal(RATED) is None
        assert await limits.reserve(RATED) is None
        assert isinstance(await limits.reserve(RATED), LimitExceeded)

    async def test_a_slow_rate_admits_one_request(self) -> None:
        limits = LocalLimits(clock=Clock())
        slow = APIClient("s", requests_per_minute=1)
        assert await limits.reserve(slow) is None
        assert isinstance(await limits.reserve(slow), LimitExceeded)

    async def test_inputs_count_as_requests_and_more_than_a_burst_never_pass(self) -> None:
        limits = LocalLimits(clock=Clock())
        refusal = await limits.reserve(RATED, requests=11)
        assert isinstance(refusal, LimitExceeded)
        assert (refusal.status, refusal.code) == (400, "too_many_inputs")
        assert await limits.reserve(RATED, requests=10) is None
        assert isinstance(await limits.reserve(RATED), LimitExceeded)

    async def test_a_request_that_is_refused_for_money_takes_nothing_of_the_rate(self) -> None:
        client = APIClient("b", requests_per_minute=6, dollars_per_day=0.01)
        limits = LocalLimits(clock=Clock())
        assert isinstance(await limits.reserve(client, 1.0), LimitExceeded)
        assert admitted([await limits.reserve(client, 0.01)])

    async def test_new_limits_hold_at_once_and_what_was_spent_stays(self) -> None:
        limits = LocalLimits()
        await pay(limits, CLIENT, 0.05)
        lower = APIClient("a", dollars_per_day=0.05)
        assert isinstance(await limits.reserve(lower, 0.001), LimitExceeded)
        higher = APIClient("a", dollars_per_day=1.0)
        assert admitted([await limits.reserve(higher, 0.9)])

    @pytest.mark.parametrize("bill", [float("nan"), float("inf"), -1.0])
    async def test_a_bill_that_is_no_number_changes_nothing(self, bill: float) -> None:
        limits = LocalLimits()
        await pay(limits, CLIENT, bill)
        assert limits.spent("a") == 0.0


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
