"""Comparisons that may be looked at at every decision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mildroute.evaluation.expert_changes import find_change
from mildroute.evaluation.rollout import LearningPlan, judge_candidate, judge_promoted
from mildroute.evaluation.sequential import (
    canary_gains,
    compare_sequentially,
    restarted_evidence,
    share_of_alpha,
)
from mildroute.exceptions import ArgumentError, ShapeError

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
    """Gains of a canary that is exactly as good as the router in use."""
    chance = {"plain": 0.35, "rare": 0.01, "skewed": 0.2}[kind]
    costs = (rng.random((rows, 2)) < chance).astype(float)
    if kind == "skewed":
        costs = np.minimum(costs + 0.05 * np.exp(2 * rng.standard_normal((rows, 2))), 1.0)
    is_canary = rng.random(rows) < share
    seen = np.where(is_canary, costs[:, 1], costs[:, 0])
    gains = canary_gains(seen, is_canary, share, np.full((rows, 2), 0.3), 1.0)
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


def test_gains_of_a_canary_have_the_true_mean_and_keep_within_their_bound() -> None:
    """All four outcomes of one request, weighted with their chances, worked out by hand."""
    costs, forecasts = (0.9, 0.2), [[0.5, 0.4]]
    for share in (0.1, 0.5):
        on, off = (
            canary_gains([costs[place]], [place == 1], share, forecasts, 1.0)[0] for place in (1, 0)
        )
        assert share * on + (1 - share) * off == pytest.approx(0.7)
        worst = canary_gains([1.0], [True], share, [[0.0, 0.0]], 1.0)[0]
        assert worst == pytest.approx(-1 / share)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"forecasts must be \(1, 2\)"):
        canary_gains([0.1], [True], 0.5, [0.1], 1.0)
    with pytest.raises(ArgumentError, match="a share must lie between 0 and 1"):
        canary_gains([0.1], [True], 1.0, [[0.1, 0.1]], 1.0)
    with pytest.raises(ArgumentError, match="gains must keep within their bounds"):
        compare_sequentially([3.0], 2.0)
    with pytest.raises(ArgumentError, match="alpha must lie between 0 and 1"):
        LearningPlan(alpha=0.0)


def test_nothing_is_known_of_no_decisions() -> None:
    found = compare_sequentially([], 1.0)
    assert (found.rows, found.differing, found.evidence) == (0, 0, 0.0)
    assert (found.gain.low, found.gain.high) == (-1.0, 1.0)


def test_candidates_of_a_month_share_its_error() -> None:
    assert sum(share_of_alpha(0.05, number) for number in range(1, 10_000)) < 0.05


def test_a_candidate_goes_through_shadow_and_canary() -> None:
    plan = LearningPlan()
    good, flat = np.full(400, 0.5), np.zeros(400)
    bad = np.full(400, -0.5)
    cases = [
        (0.0, 499, 499, flat, "wait"),
        (0.0, 500, 500, flat, "advance"),
        (0.0, 499, 499, good, "wait"),  # however good, it serves a share first
        (0.1, 199, 700, good, "wait"),
        (0.1, 200, 700, good, "promote"),
        (0.1, 1000, 1500, flat, "advance"),
        (0.5, 5000, 6000, flat, "wait"),
        (0.5, 9000, 10_000, flat, "drop"),
        (0.0, 10, 10, bad, "drop"),
    ]
    for share, in_stage, requests, gains, action in cases:
        found = compare_sequentially(gains, 2.0)
        decision = judge_candidate(plan, share, in_stage, requests, found, 0.03)
        assert decision.action == action, (share, in_stage, decision)


def test_a_promoted_router_is_accepted_unless_it_turns_bad() -> None:
    plan = LearningPlan()
    good, bounds = np.full(8000, -0.02), np.full(8600, 10.0)
    assert judge_promoted(plan, 8000, good, bounds[:8000]).action == "wait"
    assert judge_promoted(plan, 10_000, good, bounds[:8000]).action == "accept"
    turned = np.concatenate([good, np.full(600, 0.5)])
    assert judge_promoted(plan, 8600, turned, bounds).action == "roll back"
    # without starts in between, the good time before would hide it
    assert (
        compare_sequentially(turned, bounds).evidence < restarted_evidence(turned, bounds, 1000)[0]
    )
    assert judge_promoted(plan, 0, np.zeros(0), np.zeros(0)).action == "wait"


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
