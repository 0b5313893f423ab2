"""APGR and CPT of a weak and a strong expert, checked against RouteLLM's definitions worked out
slowly.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mildroute.evaluation.pair_curve import PairCurve, pgr_curve
from mildroute.exceptions import ArgumentError, ShapeError

WIN_RATES = np.array([0.95, 0.15, 0.35, 0.85, 0.55, 0.25, 0.65, 0.05, 0.75, 0.45])
WEAK = np.array([0, 1, 1, 0, 1, 1, 0, 1, 0, 0])
STRONG = np.array([1, 1, 1, 1, 1, 0, 1, 1, 1, 1])


def routellm_table() -> list[tuple[float, float]]:
    """Share of strong calls and score at thresholds that split the win rates into ten parts of
    equal size.
    """
    ordered = sorted(WIN_RATES)
    table = []
    for part in range(11):
        place = 0.9 * part
        low = int(place)
        threshold = ordered[low] + (place - low) * (ordered[min(low + 1, 9)] - ordered[low])
        calls = [
            rate > threshold if part == 10 else rate >= threshold - 1e-12 for rate in WIN_RATES
        ]
        answers = [
            strong if call else weak for call, strong, weak in zip(calls, STRONG, WEAK, strict=True)
        ]
        table.append((sum(calls) / 10, sum(answers) / 10))
    return sorted(table)


def test_the_curve_is_the_one_that_thresholds_draw() -> None:
    curve = pgr_curve(WIN_RATES, np.stack([WEAK, STRONG], axis=1))
    assert np.stack([curve.shares, curve.scores], axis=1) == pytest.approx(
        np.array(routellm_table())
    )


def test_apgr_is_the_area_above_the_weak_over_that_of_the_strong() -> None:
    table = routellm_table()
    area = sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in itertools.pairwise(table))
    weak, strong = WEAK.mean(), STRONG.mean()
    curve = pgr_curve(WIN_RATES, np.stack([WEAK, STRONG], axis=1))
    assert curve.average_recovered() == pytest.approx((area - weak) / (strong - weak))


def test_apgr_on_a_grid_is_the_mean_of_ten_gaps_recovered() -> None:
    recovered = [(score - 0.5) / 0.4 for share, score in routellm_table() if share > 0]
    curve = pgr_curve(WIN_RATES, np.stack([WEAK, STRONG], axis=1))
    assert curve.average_recovered(rule="grid") == pytest.approx(sum(recovered) / 10)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(0.2, 0.08), (0.5, 0.2), (0.8, 0.32), (1.0, 0.4), (0.0, 0.0), (1.25, 0.6), (1.3, None)],
)
def test_cpt_by_hand(wanted: float, expected: float | None) -> None:
    # scores along the shares: .5 .6 .7 .8 .9 .9 1. 1. .9 .9 .9, the gap is .4
    curve = pgr_curve(WIN_RATES, np.stack([WEAK, STRONG], axis=1))
    found = curve.calls_for(wanted - 1e-12)
    assert np.isnan(found) if expected is None else found == pytest.approx(expected)


def test_random_choice_recovers_half() -> None:
    curve = pgr_curve(np.zeros(4), [[0, 1], [0, 1], [0, 1], [1, 1]])
    assert curve.shares.tolist() == [0.0, 1.0]  # equal preferences switch together
    assert curve.average_recovered() == pytest.approx(0.5)
    assert curve.calls_for(0.5) == pytest.approx(0.5)


def test_experts_of_equal_score_have_no_gap_to_recover() -> None:
    curve = pgr_curve([0.1, 0.2], [[1, 0], [0, 1]])
    assert np.isnan(curve.average_recovered())
    assert np.isnan(curve.calls_for(0.5))


def test_any_two_of_several_experts_make_a_pair() -> None:
    scores = np.stack([STRONG, np.zeros(10), WEAK], axis=1)
    ours = pgr_curve(WIN_RATES, scores, weak=2, strong=0)
    assert ours.scores == pytest.approx(
        pgr_curve(WIN_RATES, np.stack([WEAK, STRONG], axis=1)).scores
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="preference"):
        pgr_curve([0.1], [[0, 1], [1, 1]])
    with pytest.raises(ArgumentError, match="NaN"):
        pgr_curve([np.nan], [[0, 1]])
    with pytest.raises(ArgumentError, match="rule"):
        PairCurve(np.array([0.0, 1.0]), np.array([0.0, 1.0])).average_recovered(rule="simpson")  # type: ignore[arg-type]
