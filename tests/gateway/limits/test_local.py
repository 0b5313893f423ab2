"""Limits of keys in one process."""

from __future__ import annotations

import pytest

from mildroute.decision.days import DAY
from mildroute.gateway.keys import APIClient
from mildroute.gateway.limits.base import Reservation
from mildroute.gateway.limits.local import LocalLimits
from mildroute.gateway.limits.refusals import LimitExceeded

pytestmark = pytest.mark.anyio

RESERVATION = 0.05
CLIENT = APIClient("a", dollars_per_day=0.10)
RATED = APIClient("r", requests_per_minute=60)


class Clock:
    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def admitted(results: list[Reservation | LimitExceeded | None]) -> list[Reservation]:
    return [result for result in results if isinstance(result, Reservation)]


async def pay(limits: LocalLimits, client: APIClient, dollars: float) -> float:
    """Reserve and settle one request; return its cost."""
    reservation = await limits.reserve(client, RESERVATION)
    if not isinstance(reservation, Reservation):
        return 0.0
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
