"""Comparisons that may be looked at at every decision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mildroute.evaluation.expert_changes import find_change
from mildroute.evaluation.sequential import (
    compare_sequentially,
    explored_gain,
    share_of_alpha,
)
from mildroute.exceptions import ArgumentError

FRACTIONS = (0.05, 0.1, 0.2, 0.4, 0.8)
PRIOR = (1 / 9, 2 / 9, 3 / 9, 2 / 9, 1 / 9)


def wealth(gains: list[float], bound: float) -> list[float]:
    """The slow reference: five gamblers with a dollar between them, one bet after another."""
    purses = list(PRIOR)
    found = []
    for gain in gains:
        purses = [
            purse * (1 + part * gain / bound) for purse, part in zip(purses, FRACTIONS, strict=True)
        ]
        found.append(math.fsum(purses))
    return found


def test_evidence_is_the_wealth_of_gamblers_at_every_look() -> None:
    rng = np.random.default_rng(0)
    gains = np.where(rng.random(300) < 0.5, 0.0, rng.uniform(-2.0, 2.0, 300))
    reference = wealth(gains.tolist(), 2.0)
    for look in (1, 10, 299, 300):
        found = compare_sequentially(gains[:look], 2.0)
        assert math.exp(found.evidence) == pytest.approx(reference[look - 1], rel=1e-9)
    against = wealth((-gains).tolist(), 2.0)
    assert math.exp(compare_sequentially(gains, 2.0).harm) == pytest.approx(against[-1], rel=1e-9)


def test_the_order_in_which_scores_come_does_not_matter() -> None:
    gains = np.random.default_rng(1).uniform(-1, 1, 500)
    one, other = (compare_sequentially(each, 1.0) for each in (gains, np.sort(gains)))
    assert one.evidence == pytest.approx(other.evidence)
    assert one.gain.low == pytest.approx(other.gain.low)


def gains_of(rng: np.random.Generator, rows: int, share: float, kind: str) -> np.ndarray:
    """Gains of a candidate that is exactly as good as the router in use, whose draws it shares."""
    chance = {"plain": 0.35, "rare": 0.01, "skewed": 0.2}[kind]
    costs = (rng.random((rows, 2)) < chance).astype(float)
    if kind == "skewed":
        costs = np.minimum(costs + 0.05 * np.exp(2 * rng.standard_normal((rows, 2))), 1.0)
    is_drawn = rng.random(rows) < share
    seen = np.where(is_drawn, costs[:, 1], costs[:, 0])
    gains = [
        explored_gain(cost, [not drawn, drawn], [1 - share, share], [0.3, 0.3])
        for cost, drawn in zip(seen.tolist(), is_drawn.tolist(), strict=True)
    ]
    return np.where(rng.random(rows) < 0.3, gains, 0.0)


@pytest.mark.parametrize("kind", ["plain", "rare", "skewed"])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_looking_at_every_decision_is_wrong_no_more_often_than_promised(
    kind: str, share: float
) -> None:
    """Of 400 streams without a gain, each looked at 2,000 times, at most 5% show one."""
    rng = np.random.default_rng([len(kind), int(10 * share)])
    wrong = 0
    for _ in range(400):
        relative = gains_of(rng, 2000, share, kind) * min(share, 1 - share)
        paths = np.cumsum(np.log1p(np.outer(relative, FRACTIONS)), axis=0)
        wrong += bool((np.exp(paths) @ PRIOR >= 20).any())
    assert wrong / 400 <= 0.05


def test_intervals_hold_the_mean_at_all_looks_together() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(60):
        gains = np.where(rng.random(1500) < 0.3, rng.normal(0.1, 0.5, 1500).clip(-2, 2), 0.0)
        looks = [compare_sequentially(gains[:look], 2.0, alpha=0.05) for look in (20, 200, 1500)]
        missed += any(not each.gain.low <= 0.03 <= each.gain.high for each in looks)
    assert missed <= 6
    assert looks[-1].gain.high - looks[-1].gain.low < 0.15


def test_gains_of_explored_requests_have_the_true_mean_and_keep_within_their_bound() -> None:
    """All outcomes of one request, weighted with their chances, worked out by hand."""
    costs, forecasts = (0.9, 0.2, 0.5), [0.5, 0.4]
    for chances in ((0.9, 0.05, 0.05), (0.4, 0.5, 0.1)):
        gains = [
            explored_gain(cost, [drawn == 0, drawn == 1], chances[:2], forecasts)
            for drawn, cost in enumerate(costs)
        ]
        assert np.dot(chances, gains) == pytest.approx(0.9 - 0.2)
    worst = explored_gain(1.0, [False, True], [0.9, 0.1], [0.0, 0.0])
    assert worst == pytest.approx(-1 / 0.1)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="propensities must lie between 0 and 1"):
        explored_gain(0.1, [True, False], [1.0, 0.0], [0.1, 0.1])
    with pytest.raises(ArgumentError, match="must be the choice of one router"):
        explored_gain(0.1, [True, True], [0.5, 0.5], [0.1, 0.1])
    with pytest.raises(ArgumentError, match="gains must keep within their bounds"):
        compare_sequentially([3.0], 2.0)


def test_nothing_is_known_of_no_decisions() -> None:
    found = compare_sequentially([], 1.0)
    assert (found.rows, found.differing, found.evidence) == (0, 0, 0.0)
    assert (found.gain.low, found.gain.high) == (-1.0, 1.0)


def test_candidates_of_a_month_share_its_error() -> None:
    assert sum(share_of_alpha(0.05, number) for number in range(1, 10_000)) < 0.05


def test_a_change_is_found_where_it_is_and_not_before() -> None:
    rng = np.random.default_rng(5)
    scores = (rng.random(1200) < np.repeat([0.9, 0.6], [900, 300])).astype(float)
    assert find_change(scores[:900]) is None
    change = find_change(scores)
    assert change is not None
    assert abs(change.row - 900) < 30
    assert change.size == pytest.approx(-0.3, abs=0.06)
    assert change.deviations > 5
    assert find_change(scores, threshold=50) is None


def test_a_change_needs_rows_on_both_sides() -> None:
    assert find_change(np.repeat([0.0, 1.0], 39)) is None
    change = find_change(np.repeat([0.0, 1.0], 40))
    assert change is not None
    assert (change.row, change.before, change.after) == (40, 0.0, 1.0)
    assert find_change([]) is None
