from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mildroute.serving.auth.keys import ANYONE, APIClient, ClientTeam
from mildroute.serving.auth.limits import DAY, Charge, LimitExceeded, Reservation, UsageLimiter
from mildroute.serving.observability.decision_log import SpendLedger


def is_held(found: object) -> bool:
    return isinstance(found, Reservation)


def settle(gate: UsageLimiter, client: APIClient, charge: Charge, reserved: Charge) -> None:
    accounts = gate._admitted_accounts(client)
    held = Reservation(reserved, [entry for account in accounts for entry in account.budgets])
    gate.settle(client, charge, held)


def spent(
    day: dict[str, float], month: dict[str, float] | None = None
) -> Callable[[float], tuple[dict[str, float], dict[str, float]]]:
    return lambda _now: (day, month or {})


class Clock:
    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def refused(found: LimitExceeded | None) -> LimitExceeded:
    assert found is not None
    return found


def test_a_client_without_limits_is_never_refused_nor_remembered() -> None:
    gate = UsageLimiter()
    for _ in range(1000):
        assert gate.admit(ANYONE) is None
        gate.settle(ANYONE, Charge(100.0))
    assert gate._accounts == {}


def test_a_rate_lets_ten_seconds_worth_through_at_once_and_then_its_pace() -> None:
    clock, client = Clock(), APIClient("a", requests_per_minute=60)
    gate = UsageLimiter(clock=clock)
    assert [gate.admit(client) is None for _ in range(11)] == [True] * 10 + [False]
    refusal = refused(gate.admit(client))
    assert (refusal.status, refusal.code, refusal.retry_after) == (429, "rate_limit_exceeded", "1")
    clock.seconds += refusal.seconds
    assert gate.admit(client) is None
    assert gate.admit(client) is not None


def test_a_slow_rate_still_lets_one_request_through() -> None:
    clock, client = Clock(), APIClient("a", requests_per_minute=1)
    gate = UsageLimiter(clock=clock)
    assert gate.admit(client) is None
    assert refused(gate.admit(client)).retry_after == "60"


def test_rates_of_two_clients_do_not_touch() -> None:
    gate, one, other = (
        UsageLimiter(clock=Clock()),
        APIClient("a", requests_per_minute=6),
        APIClient("b", requests_per_minute=6),
    )
    assert [gate.admit(client) is None for client in (one, one, other, other)] == [
        True,
        False,
        True,
        False,
    ]


def test_who_has_spent_the_day_waits_for_midnight() -> None:
    now, client = Clock(DAY * 20_000 + 80_000), APIClient("a", dollars_per_day=1.0)
    gate = UsageLimiter(now=now)
    assert gate.admit(client) is None
    gate.settle(client, Charge(1.0))
    refusal = refused(gate.admit(client))
    assert (refusal.status, refusal.code, refusal.seconds) == (429, "insufficient_quota", 6400.0)
    now.seconds += 6399.9
    assert gate.admit(client) is not None
    now.seconds += 0.1
    assert gate.admit(client) is None
    assert gate.spent(client) == 0.0


def test_reservations_of_requests_under_way_never_pass_the_limit() -> None:
    """Before, 9 guesses of $0.1 were held after one request of $0.1, and 50 before the first."""
    client = APIClient("a", dollars_per_day=1.0)
    gate = UsageLimiter(now=Clock())
    assert sum(is_held(gate.reserve(client, Charge(0.1))) for _ in range(200)) == 10
    refusal = refused(gate.reserve(client, Charge(0.1)))
    assert (refusal.code, refusal.seconds) == ("rate_limit_exceeded", 1.0)
    for _ in range(10):
        settle(gate, client, Charge(0.1), Charge(0.1))
    assert abs(gate.spent(client) - 1.0) < 1e-9
    assert refused(gate.admit(client)).code == "insufficient_quota"


def test_a_large_key_is_never_refused_for_want_of_money() -> None:
    """150 of 200 were refused at once in a fresh process."""
    client, gate = APIClient("a", dollars_per_day=100_000.0), UsageLimiter(now=Clock())
    assert all(is_held(gate.reserve(client, Charge(0.05))) for _ in range(200))


def test_a_request_that_failed_gives_back_what_was_held() -> None:
    client, gate = APIClient("a", dollars_per_day=1.0), UsageLimiter(now=Clock())
    for _ in range(500):
        assert is_held(gate.reserve(client, Charge(0.7)))
        settle(gate, client, Charge(0.0), Charge(0.7))
    assert gate.spent(client) == 0.0


def test_a_request_that_costs_more_than_is_left_may_come_with_fewer_tokens() -> None:
    client, gate = APIClient("a", dollars_per_day=1.0), UsageLimiter(now=Clock())
    gate.settle(client, Charge(0.5))
    refusal = refused(gate.reserve(client, Charge(0.6)))
    assert refusal.code == "insufficient_quota"
    assert "may take 0.6 dollars of the day, and this key has 0.5" in refusal.message
    assert is_held(gate.reserve(client, Charge(0.5)))


def test_requests_without_a_most_pass_the_limit_by_one_reservation_at_most() -> None:
    client, gate = APIClient("a", dollars_per_day=1.0), UsageLimiter(now=Clock())
    admitted = [is_held(gate.reserve(client, Charge(0.4), is_bounded=False)) for _ in range(200)]
    assert sum(admitted) == 3  # 1.2 is one reservation more than fits
    small = APIClient("b", dollars_per_day=0.1)
    assert [is_held(gate.reserve(small, Charge(0.4), is_bounded=False)) for _ in range(2)] == [
        True,
        False,
    ]


def test_what_was_spent_before_a_restart_counts_for_that_day_alone(tmp_path: Path) -> None:
    now, client = Clock(DAY * 3 + 10), APIClient("a", dollars_per_day=1.0)
    ledger = SpendLedger(tmp_path, now())
    ledger.add("a", 1.5, now(), "file", 100)
    gate = UsageLimiter(ledger.spent, now=now)
    assert gate.spent(client) == 1.5
    assert refused(gate.admit(client)).code == "insufficient_quota"
    later = UsageLimiter(ledger.spent, now=now)
    now.seconds += DAY
    assert gate.admit(client) is None
    assert later.admit(client) is None


def test_a_request_that_is_refused_for_money_takes_nothing_of_the_rate() -> None:
    clock, client = Clock(), APIClient("a", requests_per_minute=6, dollars_per_day=1.0)
    gate = UsageLimiter(spent({"a": 2.0}), clock=clock, now=clock)
    assert gate.admit(client) is not None
    clock.seconds = DAY
    assert gate.admit(client) is None


def test_new_limits_hold_at_once_and_what_was_spent_stays() -> None:
    gate = UsageLimiter(now=Clock())
    gate.admit(APIClient("a", dollars_per_day=1.0))
    gate.settle(APIClient("a", dollars_per_day=1.0), Charge(0.9))
    assert gate.admit(APIClient("a", dollars_per_day=0.5)) is not None
    assert gate.admit(APIClient("a", dollars_per_day=5.0)) is None


def test_dollars_that_are_no_number_change_nothing() -> None:
    client, gate = APIClient("a", dollars_per_day=1.0), UsageLimiter(now=Clock())
    gate.admit(client)
    gate.settle(client, Charge(float("nan")))
    gate.settle(client, Charge(-5.0))
    assert gate.spent(client) == 0.0


def test_who_has_spent_the_day_may_still_send_what_costs_nothing_at_its_rate() -> None:
    clock, client = Clock(), APIClient("a", requests_per_minute=6, dollars_per_day=1.0)
    gate = UsageLimiter(clock=clock)
    assert gate.admit(client) is None
    gate.settle(client, Charge(2.0))
    clock.seconds += 10
    assert refused(gate.admit(client)).code == "insufficient_quota"
    assert gate.admit_free(client) is None
    assert refused(gate.admit_free(client)).code == "rate_limit_exceeded"
    assert gate.admit_free(ANYONE) is None


def test_limits_that_change_while_a_request_is_under_way_stay_changed_and_its_cost_is_counted() -> (
    None
):
    before, after = (
        APIClient("a", requests_per_minute=600, dollars_per_day=9.0),
        APIClient("a", requests_per_minute=6, dollars_per_day=9.0),
    )
    gate = UsageLimiter(clock=Clock())
    assert gate.admit(before) is None
    assert gate.admit(after) is None
    gate.settle(before, Charge(4.0))
    assert refused(gate.admit(after)).code == "rate_limit_exceeded"
    assert gate.spent(after) == 4.0


def test_a_rate_that_stays_goes_on_from_where_it_is_when_other_limits_change() -> None:
    gate = UsageLimiter(clock=Clock())
    assert gate.admit(APIClient("a", requests_per_minute=6)) is None
    assert (
        refused(gate.admit(APIClient("a", requests_per_minute=6, dollars_per_day=1.0))).code
        == "rate_limit_exceeded"
    )


# Midnight of 2026-11-16, 15 days before the month's end.
NOVEMBER = 1_794_787_200.0


def test_a_month_has_a_budget_of_its_own_that_outlasts_days() -> None:
    now, client = Clock(NOVEMBER), APIClient("a", dollars_per_day=4.0, dollars_per_month=6.0)
    gate = UsageLimiter(spent({"a": 1.0}, {"a": 1.0}), now=now)
    gate.settle(client, Charge(3.0))
    assert "4 dollars of the day; wait for midnight" in refused(gate.admit(client)).message
    now.seconds += DAY
    assert refused(gate.reserve(client, Charge(2.5))).message.startswith(
        "This request may take 2.5 dollars of the month, and this key has 2 of 6 left"
    )
    gate.settle(client, Charge(2.0))
    refusal = refused(gate.admit(client))
    assert (refusal.code, refusal.seconds) == ("insufficient_quota", 14 * DAY)
    now.seconds += 14 * DAY
    assert gate.admit(client) is None


def test_tokens_are_reserved_settled_and_flow_in() -> None:
    clock, client = Clock(), APIClient("a", tokens_per_minute=6000)
    gate = UsageLimiter(clock=clock)
    assert sum(is_held(gate.reserve(client, Charge(0.0, 1000))) for _ in range(9)) == 6
    assert refused(gate.reserve(client, Charge(0.0, 1000))).code == "rate_limit_exceeded"
    for _ in range(6):
        settle(gate, client, Charge(0.0, 500), Charge(0.0, 1000))  # half of what was held
    refusal = refused(gate.reserve(client, Charge(0.0, 4000)))
    assert (refusal.status, refusal.retry_after) == (429, "10")
    clock.seconds += 10
    assert is_held(gate.reserve(client, Charge(0.0, 4000)))
    settle(gate, client, Charge(0.0, 9000), Charge(0.0, 4000))
    assert "used up its 6000 tokens a minute" in refused(gate.admit(client)).message


def test_a_teams_limits_hold_for_the_sum_of_its_keys() -> None:
    team = ClientTeam("x", dollars_per_day=1.0, requests_per_minute=18, members=("a", "b"))
    one, other = (APIClient(name, team=team) for name in ("a", "b"))
    gate = UsageLimiter(spent({"a": 0.2, "b": 0.3, "c": 5.0}), clock=Clock(), now=Clock())
    assert gate.spent(team) == 0.5
    assert is_held(gate.reserve(one, Charge(0.25)))
    assert is_held(gate.reserve(other, Charge(0.25)))
    assert "that this key's team has; wait" in refused(gate.reserve(one, Charge(0.1))).message
    settle(gate, one, Charge(0.25), Charge(0.25))
    settle(gate, other, Charge(0.25), Charge(0.25))
    assert gate.spent(team) == 1.0
    assert refused(gate.admit(other)).code == "insufficient_quota"
    assert [gate.admit_free(client) is None for client in (one, other, one, other)] == [
        True,
        True,
        True,
        False,
    ]


def test_a_request_that_a_team_refuses_takes_nothing_of_its_keys_rate() -> None:
    team = ClientTeam("x", requests_per_minute=6)
    client, gate = APIClient("a", requests_per_minute=60, team=team), UsageLimiter(clock=Clock())
    assert [gate.admit(client) is None for _ in range(20)] == [True] + [False] * 19
    alone = APIClient("a", requests_per_minute=60)
    assert [gate.admit(alone) is None for _ in range(10)] == [True] * 9 + [False]


def test_inputs_count_as_requests_and_more_than_a_burst_can_never_pass() -> None:
    clock, client = Clock(), APIClient("a", requests_per_minute=60)
    gate = UsageLimiter(clock=clock)
    assert gate.admit(client) is None
    assert gate.admit_free(client, 10, admitted=1) is None
    assert gate.admit(client) is not None
    clock.seconds += 1
    assert gate.admit(client) is None
    refusal = refused(gate.admit_free(client, 10, admitted=1))
    assert (refusal.status, refusal.retry_after) == (429, "10")
    never = refused(gate.admit_free(client, 11, admitted=1))
    assert (never.status, never.code) == (400, "too_many_inputs")
    assert "60 requests a minute, 10 of them at once, and each input counts" in never.message


def test_a_request_settles_where_it_was_reserved_though_its_client_has_another_team() -> None:
    first, second = (
        ClientTeam(name, dollars_per_day=1.0, members=("a", "b")) for name in ("first", "second")
    )
    before, after = APIClient("a", team=first), APIClient("a", team=second)
    gate = UsageLimiter(clock=Clock(), now=Clock())
    assert gate.admit(before) is None
    held = gate.reserve(before, Charge(0.9))
    assert gate.admit(after) is None
    other = gate.reserve(after, Charge(0.9))
    assert isinstance(held, Reservation)
    gate.settle(before, Charge(0.1), held)
    assert is_held(gate.reserve(APIClient("b", team=first), Charge(0.9)))
    assert not is_held(gate.reserve(APIClient("b", team=second), Charge(0.9)))
    assert is_held(other)


def test_old_limits_do_not_come_back_with_a_request_that_was_admitted_under_them() -> None:
    before = APIClient("a", dollars_per_day=1.0)
    after = APIClient("a", dollars_per_day=0.1)
    gate = UsageLimiter(now=Clock())
    assert gate.admit(before) is None
    assert gate.admit(after) is None
    assert not is_held(gate.reserve(before, Charge(0.5)))


def test_a_limit_that_is_added_counts_what_was_spent_before() -> None:
    day: dict[str, float] = {}
    gate = UsageLimiter(spent(day), now=Clock())
    assert gate.admit(APIClient("a")) is None
    day["a"] = 0.8
    assert refused(gate.admit(APIClient("a", dollars_per_day=0.1))).code == "insufficient_quota"
