from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.evaluation.logged_data import LoggedDecisions
from mildroute.evaluation.off_policy import (
    Method,
    estimate_cost_difference,
    estimate_expert_costs,
    estimate_policy_cost,
)
from mildroute.evaluation.outcome_forecasts import fit_outcome_model
from mildroute.exceptions import ArgumentError, ShapeError

METHODS: tuple[Method, ...] = ("ips", "snips", "dr")


def by_hand() -> LoggedDecisions:
    return LoggedDecisions(
        ("a", "b"),
        [0, 0, 1, 1],
        [0.2, 0.4, 0.6, 1.0],
        [[0.5, 0.5], [0.8, 0.2], [0.5, 0.5], [0.8, 0.2]],
    )


def world(
    seed: int = 0, rows: int = 4000, explore: float = 0.2
) -> tuple[LoggedDecisions, np.ndarray]:
    """Two kinds of requests.

    Each is sent to the expert that is good at it, but for a share of lots. Returns all costs, too.
    """
    random = np.random.default_rng(seed)
    kind = random.integers(0, 2, rows)
    costs = (random.random((rows, 3)) < np.array([[0.1, 0.6, 0.3], [0.7, 0.2, 0.3]])[kind]).astype(
        float
    )
    chances = np.full((rows, 3), explore / 3)
    chances[np.arange(rows), kind] += 1 - explore
    chosen = (random.random(rows)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    features = np.column_stack([kind, random.normal(size=rows)])
    return (
        LoggedDecisions(
            ("a", "b", "c"), chosen, costs[np.arange(rows), chosen], chances, features=features
        ),
        costs,
    )


def test_the_plain_estimate_is_the_mean_of_weight_times_cost() -> None:
    found = estimate_expert_costs(by_hand(), method="ips")
    assert found["a"].value == pytest.approx((0.2 / 0.5 + 0.4 / 0.8) / 4)
    assert found["b"].value == pytest.approx((0.6 / 0.5 + 1.0 / 0.2) / 4)


def test_the_normalised_estimate_is_divided_by_the_weights() -> None:
    found = estimate_expert_costs(by_hand())
    assert found["a"].value == pytest.approx((0.2 * 2 + 0.4 * 1.25) / 3.25)
    assert found["b"].value == pytest.approx((0.6 * 2 + 1.0 * 5) / 7)
    assert (found["b"].rows, found["b"].effective_rows) == (2, pytest.approx(49 / 29))


def test_the_doubly_robust_estimate_corrects_its_forecast() -> None:
    forecasts = np.array([[0.3, 0.7]] * 4)
    found = estimate_expert_costs(by_hand(), method="dr", forecasts=forecasts)
    assert found["a"].value == pytest.approx(0.3 + ((0.2 - 0.3) / 0.5 + (0.4 - 0.3) / 0.8) / 4)
    assert found["b"].value == pytest.approx(0.7 + ((0.6 - 0.7) / 0.5 + (1.0 - 0.7) / 0.2) / 4)


@pytest.mark.parametrize("method", METHODS)
def test_estimates_find_the_truth_where_plain_means_do_not(method: Method) -> None:
    logged, costs = world()
    found = estimate_expert_costs(logged, method=method)
    for place, truth in enumerate((0.4, 0.4, 0.3)):
        assert not list(found.values())[place].excludes(truth)
    assert (
        costs[logged.chosen == 0, 0].mean() < 0.2
    )  # the plain mean of "a", whose mean cost is 0.4


@pytest.mark.parametrize("method", METHODS)
def test_a_router_is_judged_by_the_log_of_another(method: Method) -> None:
    logged, _ = world()
    assert logged.features is not None
    wrong_way = 1 - logged.features[:, 0].astype(int)
    found = estimate_policy_cost(logged, wrong_way, method=method)
    assert found.value == pytest.approx(
        0.65, abs=0.18
    )  # four standard deviations: 0.046 by the plain estimate, over 300 seeds
    assert found.excludes(0.15)  # what the gateway's own way costs
    names = [logged.experts[place] for place in wrong_way]
    assert estimate_policy_cost(logged, names, method=method) == found


@pytest.mark.parametrize("method", METHODS)
def test_the_gateway_itself_is_its_own_plain_mean(method: Method) -> None:
    logged, _ = world()
    assert estimate_policy_cost(logged, logged.chances, method=method).value == pytest.approx(
        logged.costs.mean(), abs=0.01
    )


def test_a_good_forecast_makes_the_interval_narrower() -> None:
    logged, _ = world()
    plain, sharp = (estimate_expert_costs(logged, method=method)["a"] for method in ("ips", "dr"))
    assert sharp.high - sharp.low < 0.8 * (plain.high - plain.low)


def test_a_wrong_forecast_does_not_bias() -> None:
    logged, _ = world()
    found = estimate_expert_costs(logged, method="dr", forecasts=np.full((logged.rows, 3), 0.9))
    assert not found["a"].excludes(0.4)


def test_a_difference_is_narrower_than_two_intervals() -> None:
    logged, _ = world()
    assert logged.features is not None
    right_way = logged.features[:, 0].astype(int)
    nearly = np.where(np.arange(logged.rows) % 20 == 0, 2, right_way)
    found, one = (
        estimate_cost_difference(logged, nearly, right_way),
        estimate_policy_cost(logged, nearly),
    )
    assert not found.excludes(0.05 * 0.15)
    assert found.high - found.low < one.high - one.low
    same = estimate_cost_difference(logged, right_way, right_way)
    assert (same.value, same.low, same.high, same.warnings) == (0.0, 0.0, 0.0, ())


def test_few_effective_answers_are_warned_of() -> None:
    logged, _ = world(rows=300, explore=0.03)
    found = estimate_expert_costs(logged)
    assert "effective answers: with fewer than 30" in found["c"].warnings[0]


def test_an_expert_without_an_answer_is_not_a_number_and_warned_of() -> None:
    logged = LoggedDecisions(("a", "b"), [0] * 50, [0.5] * 50, [[0.99, 0.01]] * 50)
    found = estimate_expert_costs(logged, method="ips")["b"]
    assert np.isnan(found.value)
    assert found.warnings


def test_feedback_that_depends_on_who_answered_is_noticed_and_normalised_away() -> None:
    logged, _ = world(rows=8000)
    has_score = (logged.chosen != 0) | (np.arange(logged.rows) % 3 == 0)
    some = logged.take(has_score)
    found = estimate_expert_costs(some)
    assert any("where 1 is expected" in warning for warning in found["a"].warnings)
    assert not any(
        "where 1 is expected" in warning for warning in estimate_expert_costs(logged)["a"].warnings
    )


@pytest.mark.parametrize("method", METHODS)
def test_an_experts_failures_leave_its_estimate_where_it_was(method: Method) -> None:
    logged, _ = world(rows=8000)
    costs = np.where((logged.chosen == 0) & (np.arange(logged.rows) % 3 == 0), np.nan, logged.costs)
    found = estimate_expert_costs(
        LoggedDecisions(
            logged.experts, logged.chosen, costs, logged.chances, features=logged.features
        ),
        method=method,
    )
    assert not found["a"].excludes(0.4)
    assert not found["b"].excludes(0.4)


@pytest.mark.parametrize("method", METHODS)
def test_leaving_out_other_experts_changes_no_estimate(method: Method) -> None:
    logged, _ = world()
    two = LoggedDecisions(
        ("a", "b"),
        np.where(logged.chosen == 2, -1, logged.chosen),
        logged.costs,
        logged.chances[:, :2],
        features=logged.features,
    )
    whole, part = (
        estimate_expert_costs(logged, method=method),
        estimate_expert_costs(two, method=method),
    )
    assert part["a"].value == pytest.approx(whole["a"].value)


def test_forecasts_have_not_seen_their_own_row() -> None:
    random = np.random.default_rng(0)
    costs = random.random(200)
    logged = LoggedDecisions(
        ("a", "b"),
        random.integers(0, 2, 200),
        costs,
        np.full((200, 2), 0.5),
        features=random.normal(size=(200, 30)),
    )
    own = fit_outcome_model(logged)[np.arange(200), logged.chosen]
    assert (
        abs(np.corrcoef(own, costs)[0, 1]) < 0.25
    )  # a regression that had seen them would reach 0.5


@pytest.mark.parametrize("method", METHODS)
def test_intervals_cover_at_small_counts(method: Method) -> None:
    """Sixty simulated logs.

    Fewer than 51 hits would be a chance of one in a thousand for a sound interval.
    """
    truths = np.array([0.4, 0.4, 0.3])
    hits = np.zeros(3)
    for seed in range(60):
        logged, _ = world(seed, rows=1500, explore=0.06)
        hits += [
            not found.excludes(truth)
            for found, truth in zip(
                estimate_expert_costs(logged, method=method).values(), truths, strict=True
            )
        ]
    assert hits.min() >= 51


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (["a", "z", "a", "a"], "choice must name one of a, b, got 'z'"),
        ([0, 1], r"choice must be \(4,\)"),
        ([[0.5, 0.6]] * 4, "sum to 1"),
        ([0, 1, 2, 0], "between 0 and 1"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(choice: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        estimate_policy_cost(by_hand(), choice)


def test_unknown_methods_and_logs_without_a_cost_are_refused() -> None:
    with pytest.raises(ArgumentError, match="method must be 'ips', 'snips' or 'dr'"):
        estimate_expert_costs(by_hand(), method="best")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="at least one chosen expert must have answered"):
        estimate_expert_costs(LoggedDecisions(("a", "b"), [0], [np.nan], [[0.5, 0.5]]))
