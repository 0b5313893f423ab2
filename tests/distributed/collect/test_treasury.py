"""Many workers, one cap.

Never passed, used up to the last call that fits, and not lost with the dead.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mildroute.distributed import budget as treasuries
from mildroute.distributed.budget import BudgetServer, LeasedBudget


class Teller:
    """Calls a budget_server in the same process, and counts."""

    def __init__(self, budget_server: BudgetServer) -> None:
        self.budget_server, self.calls, self.under_way = (
            budget_server,
            0,
            set[asyncio.Future[Any]](),
        )

    def __call__(self, method: str, *given: Any) -> Awaitable[Any]:
        self.calls += 1
        call = asyncio.ensure_future(getattr(self.budget_server, method)(*given))
        self.under_way.add(call)
        call.add_done_callback(self.under_way.discard)
        return call


def nobody_died(_block: str) -> float | None:
    return None


async def work(money: LeasedBudget, calls: int, price: Callable[[], tuple[float, float]]) -> int:
    """Calls one after the other, as one lane of a block makes them."""
    for done in range(calls):
        worst, dollars = price()
        if not await money.reserve(worst):
            return done
        await asyncio.sleep(0)
        money.settle(worst, dollars)
    return calls


async def block(
    remote_call: Teller,
    name: str,
    calls: int,
    price: Callable[[], tuple[float, float]],
    lanes: int = 4,
) -> int:
    money = LeasedBudget(remote_call, name)
    await money.begin(0.0)
    done = await asyncio.gather(*(work(money, calls, price) for _ in range(lanes)))
    await money.end()
    return sum(done)


def test_many_blocks_spend_up_to_the_last_call_that_fits() -> None:
    async def day() -> tuple[list[int], float]:
        remote_call = Teller(BudgetServer(5.0, 0.0, nobody_died))
        done = await asyncio.gather(
            *(block(remote_call, str(place), 10, lambda: (1.0, 0.9)) for place in range(6))
        )
        return done, await remote_call.budget_server.spent()

    done, spent = asyncio.run(day())
    assert sum(done) == 5
    assert spent == pytest.approx(4.5)


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_events_passes_the_cap_nor_leaves_room_for_a_call(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311

    def price() -> tuple[float, float]:
        worst = chance.uniform(0.1, 1.0)
        return worst, worst * chance.random()

    async def day() -> tuple[int, float]:
        remote_call = Teller(BudgetServer(20.0, 3.0, nobody_died))
        done = await asyncio.gather(
            *(block(remote_call, str(place), 30, price, lanes=3) for place in range(4))
        )
        return sum(done), await remote_call.budget_server.spent()

    done, spent = asyncio.run(asyncio.wait_for(day(), 20))
    assert spent <= 20.0
    # All lanes stopped, each for want of money for a call of at most a dollar.
    assert done == 360 or spent > 19.0


def test_a_lease_lasts_for_many_calls() -> None:
    async def day() -> int:
        remote_call = Teller(BudgetServer(1e6, 0.0, nobody_died))
        assert await block(remote_call, "b", 240, lambda: (1.0, 1.0), lanes=1) == 240
        return remote_call.calls

    assert asyncio.run(day()) == 2 + 240 / 24


def test_the_lease_of_a_dead_attempt_is_worth_what_its_journals_say() -> None:
    async def day() -> tuple[bool, bool, float]:
        remote_call = Teller(BudgetServer(10.0, 0.0, nobody_died))
        dead = LeasedBudget(remote_call, "b")
        await dead.begin(0.0)
        assert await dead.reserve(1.0)
        dead.settle(1.0, 1.0)
        again = LeasedBudget(remote_call, "b")
        # One dollar was spent, and two calls of a dollar may have been charged.
        await again.begin(3.0)
        return (
            await again.reserve(7.0),
            await dead.reserve(7.0),
            await remote_call.budget_server.spent(),
        )

    assert asyncio.run(day()) == (True, False, 3.0)


def test_a_wait_ends_when_those_who_hold_the_money_turn_out_to_be_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(treasuries, "_LOOK", 0.01)

    async def day() -> tuple[bool, float]:
        remote_call = Teller(BudgetServer(10.0, 0.0, {"dead": 2.5, "alive": None}.get))
        dead, alive = LeasedBudget(remote_call, "dead"), LeasedBudget(remote_call, "alive")
        await dead.begin(0.0)
        assert await dead.reserve(9.0)
        await alive.begin(0.0)
        return await alive.reserve(7.0), await remote_call.budget_server.spent()

    assert asyncio.run(asyncio.wait_for(day(), 5)) == (True, 2.5)


def test_an_attempt_that_died_while_it_waited_gets_nothing() -> None:
    async def day() -> bool:
        remote_call = Teller(BudgetServer(10.0, 0.0, nobody_died))
        holder, dead, again = (
            LeasedBudget(remote_call, "holder"),
            LeasedBudget(remote_call, "b"),
            LeasedBudget(remote_call, "b"),
        )
        await holder.begin(0.0)
        assert await holder.reserve(8.0)
        await dead.begin(0.0)
        ghost = asyncio.ensure_future(dead.reserve(9.0))
        await asyncio.sleep(0.01)
        await again.begin(0.0)
        holder.settle(8.0, 0.0)
        await holder.end()
        return await again.reserve(10.0) and not await ghost

    assert asyncio.run(asyncio.wait_for(day(), 5))


def test_what_was_told_counts_even_if_a_lost_machine_took_its_journal_along() -> None:
    async def day() -> float:
        remote_call = Teller(BudgetServer(100.0, 0.0, nobody_died))
        lost = LeasedBudget(remote_call, "b")
        await lost.begin(0.0)
        for _ in range(30):
            assert await lost.reserve(1.0)
            lost.settle(1.0, 1.0)
        await LeasedBudget(remote_call, "b").begin(0.0)
        return await remote_call.budget_server.spent()

    assert asyncio.run(day()) >= 20
