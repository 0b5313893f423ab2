from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from mildroute.evaluation.weighted_means import WeightedEstimate, effective_rows, weighted_interval


def mean_of(costs: np.ndarray) -> WeightedEstimate:
    return WeightedEstimate(float(costs.mean()), costs, np.ones(len(costs)), float(len(costs)))


def test_a_share_of_equal_rows_has_the_interval_of_agresti_and_coull() -> None:
    costs = np.array([1.0] * 15 + [0.0] * 35)
    found = weighted_interval(mean_of(costs), costs)
    z = norm.ppf(0.975)
    center = (15 + z**2 / 2) / (50 + z**2)
    squares = 50 * 0.3 * 0.7 * 50 / 49 + z**2 / 2 * (0.3**2 + 0.7**2)
    half = t.ppf(0.975, 49) * math.sqrt(squares) / (50 + z**2)
    assert (found.value, found.low, found.high) == pytest.approx(
        (0.3, center - half, center + half)
    )


def test_an_expert_without_an_error_still_has_an_interval() -> None:
    costs = np.zeros(60)
    found = weighted_interval(mean_of(costs), np.array([0.0, 1.0] * 100))
    assert found.value == found.low == 0.0
    assert 0.04 < found.high < 0.12  # the exact upper limit of 0 in 60 is 0.060


def test_many_rows_give_the_normal_interval() -> None:
    costs = np.random.default_rng(0).random(100_000)
    found, half = weighted_interval(mean_of(costs), costs), 1.96 * costs.std() / math.sqrt(100_000)
    assert (found.low, found.high) == pytest.approx(
        (found.value - half, found.value + half), abs=1e-5
    )


def test_one_far_cost_does_not_blow_up_the_interval() -> None:
    costs = np.random.default_rng(0).random(200)
    narrow = weighted_interval(mean_of(costs), costs)
    wide = weighted_interval(mean_of(costs), np.append(np.tile(costs, 100), 50.0))
    assert (wide.high - wide.low) / (narrow.high - narrow.low) < 1.5


def test_rows_of_one_group_count_as_one() -> None:
    costs = np.repeat(np.random.default_rng(0).random(50), 10)
    alone, together = (
        weighted_interval(mean_of(costs), costs),
        weighted_interval(mean_of(costs), costs, np.repeat(np.arange(50), 10)),
    )
    assert (together.high - together.low) / (alone.high - alone.low) == pytest.approx(
        math.sqrt(10), rel=0.05
    )


def test_no_row_at_all_is_not_a_number() -> None:
    found = weighted_interval(
        WeightedEstimate(float("nan"), np.zeros(5), np.zeros(5), 0.0), np.array([1.0])
    )
    assert all(math.isnan(part) for part in (found.value, found.low, found.high))


def test_effective_rows_count_weights() -> None:
    assert effective_rows([1.0] * 10) == 10
    assert effective_rows([80.0] + [1.0] * 80) == pytest.approx(160**2 / (6400 + 80))
