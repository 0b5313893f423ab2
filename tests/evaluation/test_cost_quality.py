"""The convex hull of money and quality, mixing, and AIQ checked against RouterBench's definition
worked out slowly.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mildroute.evaluation.cost_quality import Point, aiq, convex_hull, interpolate
from mildroute.exceptions import ArgumentError

POINTS = [
    Point("a", 1.0, 0.4),
    Point("b", 2.0, 0.5),
    Point("c", 3.0, 0.8),
    Point("d", 5.0, 0.7),
    Point("e", 6.0, 0.9),
]
CLOUDS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=8)


def best_mix(points: list[Point], dollars: float) -> float:
    """Highest score of a mix of two points that costs at most this much, tried one by one."""
    best = max(
        (point.score for point in points if point.dollars_per_1000 <= dollars), default=float("nan")
    )
    for one, other in itertools.permutations(points, 2):
        if one.dollars_per_1000 <= dollars < other.dollars_per_1000:
            share = (dollars - one.dollars_per_1000) / (
                other.dollars_per_1000 - one.dollars_per_1000
            )
            best = max(best, one.score + share * (other.score - one.score))
    return best


def test_the_hull_by_hand() -> None:
    assert [point.name for point in convex_hull(POINTS)] == ["a", "c", "e"]
    assert interpolate(convex_hull(POINTS), [0.5, 1, 2, 4.5, 7]) == pytest.approx(
        [np.nan, 0.4, 0.6, 0.85, 0.9], nan_ok=True
    )


def test_of_points_at_one_price_the_best_is_kept_and_of_equals_the_first() -> None:
    assert [
        p.name
        for p in convex_hull(
            [Point("x", 1, 0.2), Point("y", 1, 0.6), Point("z", 1, 0.6), Point("w", 2, 0.6)]
        )
    ] == ["y"]


def test_aiq_is_the_area_below_the_hull_over_the_range() -> None:
    # trapezia: (1 to 3) .4 to .8 is 1.2, (3 to 6) .8 to .9 is 2.55
    assert aiq(POINTS) == pytest.approx(3.75 / 5)
    assert aiq(POINTS, normalize="maximum") == pytest.approx(3.75 / 6)


def test_aiq_over_a_common_range_goes_on_with_the_best_score() -> None:
    assert aiq(POINTS, highest=10) == pytest.approx((3.75 + 4 * 0.9) / 9)
    assert aiq(POINTS, highest=10, normalize="maximum") == pytest.approx((3.75 + 4 * 0.9) / 10)
    assert aiq(POINTS, lowest=2, highest=3) == pytest.approx(0.7)


def test_aiq_of_one_bill_is_the_score_there() -> None:
    assert aiq([Point("a", 2, 0.7)]) == 0.7


@given(CLOUDS)
def test_the_hull_is_what_the_best_mix_of_two_gives(cloud: list[tuple[int, int]]) -> None:
    points = [Point(str(index), float(x), y / 8) for index, (x, y) in enumerate(cloud)]
    hull = convex_hull(points)
    bills = np.linspace(-1, 9, 41)
    assert interpolate(hull, bills) == pytest.approx(
        [best_mix(points, bill) for bill in bills], nan_ok=True
    )


@given(CLOUDS)
def test_aiq_agrees_with_the_mean_of_best_mixes(cloud: list[tuple[int, int]]) -> None:
    points = [Point(str(index), float(x), y / 8) for index, (x, y) in enumerate(cloud)]
    low, high = min(x for x, _ in cloud), max(x for x, _ in cloud)
    if high > low:
        middles = low + (high - low) * (np.arange(400) + 0.5) / 400
        assert aiq(points) == pytest.approx(
            np.mean([best_mix(points, bill) for bill in middles]), abs=5e-3
        )


@given(CLOUDS)
def test_scores_of_a_hull_rise_ever_more_slowly(cloud: list[tuple[int, int]]) -> None:
    hull = convex_hull([Point("", float(x), float(y)) for x, y in cloud])
    slopes = [
        (b.score - a.score) / (b.dollars_per_1000 - a.dollars_per_1000)
        for a, b in itertools.pairwise(hull)
    ]
    assert all(slope > 0 for slope in slopes)
    assert slopes == sorted(slopes, reverse=True)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at least one"):
        convex_hull([])
    with pytest.raises(ArgumentError, match="range"):
        aiq(POINTS, lowest=0.5)
    with pytest.raises(ArgumentError, match="normalize"):
        aiq(POINTS, normalize="none")  # type: ignore[arg-type]
