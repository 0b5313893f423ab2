"""Operating points of curves that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mildroute.exceptions import ArgumentError, UnreachableTargetError
from mildroute.routers.frontier.curve import CostQualityCurve
from mildroute.routers.frontier.measurement import measure_curve

ROWS = 200


def steady() -> CostQualityCurve:
    """Three points without any noise.

    All queries to expert 0, 1, 2, of errors 0.1, 0.3, 0.6 and 10, 3, 1 dollars for 1,000.
    """
    errors, dollars = (
        np.tile(values, (ROWS, 1)) for values in ([0.1, 0.3, 0.6], [0.010, 0.003, 0.001])
    )
    return measure_curve(
        np.array([0.0, 10.0, 100.0]), np.repeat([[0], [1], [2]], ROWS, axis=1), errors, dollars
    )


def test_means_are_those_of_what_was_chosen() -> None:
    errors, dollars = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 5.0], [2.0, 7.0]])
    curve = measure_curve(np.array([0.0, 1.0]), np.array([[0, 1], [0, 0]]), errors, dollars)
    np.testing.assert_array_equal(curve.errors, [0, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(curve.dollars, [4, 1.5, 1.5, 6])
    np.testing.assert_array_equal(curve.shares, [[0.5, 0.5], [1, 0], [1, 0], [0, 1]])
    np.testing.assert_array_equal(curve.dollars_spread, [3, 0.5, 0.5, 1])
    np.testing.assert_array_equal(curve.singles, [2, 3])
    assert (curve.best, curve.best_error) == (0, 0.5)


def test_replicates_are_means_of_resampled_rows() -> None:
    random = np.random.default_rng(0)
    errors, dollars = random.uniform(size=(ROWS, 2)), random.uniform(size=(ROWS, 2))
    curve = measure_curve(np.array([0.0]), random.integers(2, size=(1, ROWS)), errors, dollars)
    assert curve.error_replicates.shape == curve.dollars_replicates.shape == (1000, 3)
    assert curve.dollars_replicates[:, 0].mean() == pytest.approx(curve.dollars[0], abs=0.005)
    assert curve.dollars_replicates[:, 0].std() == pytest.approx(
        curve.dollars_spread[0] / np.sqrt(ROWS), rel=0.1
    )
    np.testing.assert_allclose(curve.share_replicates.sum(axis=2), 1)


# Queries of a batch without luck.
ENDLESS = 10**12


@pytest.mark.parametrize("budget", [10.0, 9.9, 6.5, 3.0, 2.0, 1.5, 1e6])
def test_a_budget_is_used_up_between_the_points(budget: float) -> None:
    """Points at 10, 3 and 1 dollars with scores 0.9, 0.7 and 0.4.

    A coin may stand at every 64th between two of them.
    """
    point = steady().for_budget(budget, 0.95, ENDLESS)
    spent = min(budget, 10.0)
    assert spent - 7 / 64 <= point.dollars_per_1000 <= spent + 1e-9
    assert point.score == pytest.approx(
        np.interp(point.dollars_per_1000, [1, 3, 10], [0.4, 0.7, 0.9])
    )
    assert sum(vertex.probability for vertex in point.vertices) == pytest.approx(1)


@pytest.mark.parametrize("fraction", [1.0, 0.9, 0.78, 0.77, 0.5, 0.45, 0.44, 0.0])
def test_a_quality_is_not_overpaid(fraction: float) -> None:
    """The best single expert scores 0.9; the cheapest point scores 0.4."""
    point = steady().for_quality(fraction, 0.95, ENDLESS)
    wanted = max(0.9 * fraction, 0.4)
    assert wanted - 1e-9 <= point.score <= wanted + 0.3 / 64 + 1e-9
    assert point.dollars_per_1000 == pytest.approx(
        np.interp(point.score, [0.4, 0.7, 0.9], [1, 3, 10])
    )
    assert point.saved == pytest.approx(1 - point.dollars_per_1000 / 10)


def test_single_experts_are_points_of_the_frontier() -> None:
    """A router that always takes the worse of two equally expensive choices has no part in the
    frontier.
    """
    errors, dollars = np.tile([0.0, 0.5, 1.0], (ROWS, 1)), np.tile([0.009, 0.001, 0.005], (ROWS, 1))
    curve = measure_curve(np.array([0.0]), np.full((1, ROWS), 2), errors, dollars)
    assert curve.hull.tolist() == curve.hull_of_singles.tolist() == [2, 1]
    point = curve.for_budget(5.0 + 1e-4, 0.95, ENDLESS)
    assert [vertex.expert for vertex in point.vertices] == [1, 0]
    assert not point.uses_router
    assert point.score == pytest.approx(0.75)
    assert point.shares == pytest.approx((0.5, 0.5, 0.0))


def test_the_coin_has_its_part_in_the_luck_of_a_batch() -> None:
    """Of 1,000 queries at 10 or 3 dollars per 1,000 with even chances, the mean deviates by 3.5 /
    sqrt(1,000).
    """
    point = steady().for_budget(6.5, 0.5, ENDLESS)
    assert point.shares == pytest.approx((0.5, 0.5, 0.0))
    tight = steady().for_budget(6.5, 0.95, 1000)
    assert tight.dollars_per_1000 == pytest.approx(
        6.5 - 1.645 * 3.5 / np.sqrt(1000), abs=7 / 64 + 0.02
    )


def test_a_hull_chosen_by_luck_is_corrected() -> None:
    """Forty routers that toss coins are no better than single experts, whatever the rows say."""
    random = np.random.default_rng(0)
    errors, dollars = (
        (random.uniform(size=(300, 2)) < 0.3).astype(float),
        np.tile([0.01, 0.001], (300, 1)),
    )
    choices = random.integers(2, size=(40, 300))
    curve = measure_curve(np.arange(40.0), choices, errors, dollars)
    raw = np.interp(5.0e-3, curve.dollars[curve.hull], 1 - curve.errors[curve.hull])
    coin = np.interp(
        5.0e-3, curve.dollars[curve.hull_of_singles], 1 - curve.errors[curve.hull_of_singles]
    )
    assert raw > coin + 0.02
    bills, optimism = curve.optimism
    assert raw - np.interp(5.0e-3, bills, optimism) < raw - 0.02
    assert curve.gain[0] < 2 * curve.gain[1]


@pytest.mark.parametrize(("rows", "is_promised"), [(29, False), (40, True)])
def test_a_few_rows_promise_nothing_but_the_best_expert_itself(
    rows: int, is_promised: bool
) -> None:
    errors, dollars = np.tile([0.0, 0.5], (rows, 1)), np.tile([0.01, 0.001], (rows, 1))
    point = measure_curve(
        np.array([0.0]), np.zeros((1, rows), dtype=int), errors, dollars
    ).for_quality(0.8, 0.95, 1000)
    assert (point.dollars_per_1000 < 9) == is_promised
    assert is_promised or [vertex.expert for vertex in point.vertices] == [0]


def test_a_router_that_picks_one_expert_everywhere_is_that_expert() -> None:
    errors, dollars = np.tile([0.0, 0.5], (40, 1)), np.tile([0.01, 0.001], (40, 1))
    curve = measure_curve(np.array([0.0, 1.0]), np.repeat([[0], [1]], 40, axis=1), errors, dollars)
    assert not curve.for_quality(1.0, 0.95, 1000).uses_router
    assert not curve.for_budget(5.0, 0.95, 1000).uses_router


@given(st.integers(0, 10_000), st.floats(0.5, 1.0))
@settings(max_examples=40, deadline=None)
def test_no_target_is_worse_than_the_coin(seed: int, fraction: float) -> None:
    random = np.random.default_rng(seed)
    experts, rows = int(random.integers(2, 5)), int(random.integers(30, 200))
    errors = (
        random.uniform(size=(rows, experts)) < random.uniform(0.05, 0.9, size=experts)
    ).astype(float)
    dollars = np.tile(random.uniform(0.0005, 0.02, size=experts), (rows, 1))
    choices = random.integers(experts, size=(6, rows))
    curve, coin = (
        measure_curve(np.arange(len(c), dtype=float), c, errors, dollars)
        for c in (choices, np.empty((0, rows), dtype=int))
    )
    assert (
        curve.for_quality(fraction, 0.9, 1000).dollars_per_1000
        <= coin.for_quality(fraction, 0.9, 1000).dollars_per_1000 + 1e-9
    )
    budget = float(1000 * random.uniform(dollars.min() * 1.2, dollars.max() * 1.2))
    assert (
        curve.for_budget(budget, 0.9, 1000).score >= coin.for_budget(budget, 0.9, 1000).score - 1e-9
    )


def noisy(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Errors of a dear and a cheap expert that are right on the same two of three rows, and their
    dollars.
    """
    wrong = np.arange(rows) % 3 == 0
    return np.stack([wrong, wrong], axis=1).astype(float), np.tile([0.01, 0.001], (rows, 1))


def test_experts_right_on_the_same_rows_are_equals_however_few_the_rows() -> None:
    errors, dollars = noisy()
    curve = measure_curve(
        np.array([0.0, 10.0]), np.repeat([[0], [1]], 300, axis=1), errors, dollars
    )
    assert curve.for_quality(1.0, 0.95, 1000).price_weight == 10
    assert curve.for_quality(1.0, 0.95, 1000).score == pytest.approx(2 / 3)


def test_a_quality_is_compared_on_the_same_rows() -> None:
    """One of 300 rows is lost beside the best expert, .5% of its score of two thirds.

    Each score alone is sure to 5% only.
    """
    errors, dollars = noisy()
    errors[1, 1] = 1.0
    curve = measure_curve(
        np.array([0.0, 10.0]), np.repeat([[0], [1]], 300, axis=1), errors, dollars
    )
    assert curve.best_error == pytest.approx(1 / 3)
    assert curve.for_quality(0.98, 0.95, 1000).price_weight == 10
    assert curve.for_quality(0.999, 0.95, 1000).price_weight == 0


def test_the_best_single_expert_is_found_again_in_each_resample_with_the_points() -> None:
    errors, dollars = noisy()
    errors[:, 0] = np.roll(errors[:, 0], 1)  # as many errors on other rows
    for order in ([0, 1], [1, 0]):
        curve = measure_curve(
            np.array([0.0, 1.0]),
            np.repeat([[0], [1]], 300, axis=1),
            errors[:, order],
            dollars[:, order],
        )
        np.testing.assert_allclose(curve.best_error_replicates, curve.error_replicates.min(axis=1))


def test_of_points_of_equal_error_a_budget_takes_the_cheaper() -> None:
    errors, dollars = noisy()
    for choices in ([[0], [1]], [[1], [0]]):
        curve = measure_curve(
            np.array([0.0, 10.0]), np.repeat(choices, 300, axis=1), errors, dollars
        )
        assert curve.for_budget(100, 0.95, 1000).dollars_per_1000 == pytest.approx(1)
        assert curve.for_share(0, 1.0, 0.95, 1000).dollars_per_1000 == pytest.approx(1)


def test_the_cheapest_point_not_distinguished_from_the_best_is_found() -> None:
    """Beside the best point the next loses 1 of 300 rows and the last one 60.

    Only the first loss may be luck.
    """
    errors = np.zeros((300, 3))
    errors[0, 1], errors[:60, 2] = 1, 1
    curve = measure_curve(
        np.array([0.0, 1.0, 2.0]),
        np.repeat([[0], [1], [2]], 300, axis=1),
        errors,
        np.tile([0.01, 0.003, 0.001], (300, 1)),
    )
    assert curve.for_best(0.95, 1000).price_weight == 1
    assert steady().for_best(0.95, 1000).price_weight == 0


def test_a_share_is_kept_at_the_lowest_error() -> None:
    assert steady().for_share(0, 0.5, 0.95, 1000).price_weight == 10
    assert steady().for_share(1, 0.5, 0.95, 1000).price_weight == 0
    assert steady().for_share(0, 1.0, 0.95, 1000).price_weight == 0


def test_a_point_tells_what_it_does() -> None:
    point = steady().point(1, 0.9, 1000)
    assert (point.price_weight, point.confidence) == (10, 0.9)
    assert point.shares == pytest.approx((0, 1, 0))
    assert point.dollars_per_1000 == pytest.approx(3)
    assert point.dollars_interval == pytest.approx((3, 3))
    assert point.score == pytest.approx(0.7)
    assert point.score_interval == pytest.approx((0.7, 0.7))


def test_intervals_hold_what_they_are_about() -> None:
    random = np.random.default_rng(0)
    errors, dollars = random.uniform(size=(ROWS, 2)), random.uniform(size=(ROWS, 2))
    curve = measure_curve(np.array([0.0]), random.integers(2, size=(1, ROWS)), errors, dollars)
    point, small_batch, certain = (
        curve.point(0, 0.9, 1000),
        curve.point(0, 0.9, 10),
        curve.point(0, 0.99, 1000),
    )
    for one in (point, small_batch, certain):
        assert one.dollars_interval[0] < one.dollars_per_1000 < one.dollars_interval[1]
        assert one.score_interval[0] < one.score < one.score_interval[1]
    assert np.ptp(small_batch.dollars_interval) > 2 * np.ptp(point.dollars_interval)
    assert np.ptp(certain.dollars_interval) > np.ptp(point.dollars_interval)
    assert np.ptp(certain.score_interval) > np.ptp(point.score_interval)


def test_a_batch_of_few_queries_needs_a_larger_budget() -> None:
    """One query costs 0 or 2 cents.

    A thousand of them cost close to 10 dollars, four of them may cost up to 20 a thousand.
    """
    dollars = np.tile([[0.0], [0.02]], (100, 1))
    curve = measure_curve(
        np.array([0.0]), np.zeros((1, 200), dtype=int), np.zeros((200, 1)), dollars
    )
    assert curve.for_budget(12, 0.95, 1000).price_weight == 0
    with pytest.raises(UnreachableTargetError):
        curve.for_budget(12, 0.95, 4)


def test_a_budget_below_the_cheapest_point_is_refused_with_what_it_needs() -> None:
    with pytest.raises(
        UnreachableTargetError,
        match=r"below 0.5 dollars with confidence 0.95.*cheapest one may need 1;",
    ):
        steady().for_budget(0.5, 0.95, 1000)


def test_a_quality_above_the_best_point_is_refused_with_what_can_be_had() -> None:
    with pytest.raises(
        UnreachableTargetError,
        match=r"a score of 0.99, 1.1 of the best single expert's, .* sure of 0.9;",
    ):
        steady().for_quality(1.1, 0.95, 1000)


def test_a_share_below_the_lowest_is_refused_with_the_lowest() -> None:
    random = np.random.default_rng(0)
    curve = measure_curve(
        np.array([0.0]),
        (random.uniform(size=(1, ROWS)) < 0.5).astype(int),
        np.zeros((ROWS, 2)),
        np.zeros((ROWS, 2)),
    )
    assert curve.for_share(1, 0.1, 0.95, 1000).shares[1] <= 0.1  # the other expert alone
    alone = measure_curve(
        np.array([0.0]), np.zeros((1, ROWS), dtype=int), np.zeros((ROWS, 1)), np.zeros((ROWS, 1))
    )
    with pytest.raises(
        UnreachableTargetError,
        match=r"at most 0.1 of the queries .* with confidence 0.95: the lowest share is 1;",
    ):
        alone.for_share(0, 0.1, 0.95, 1000)
    for asked in (curve.for_budget, curve.for_quality, lambda *given: curve.for_share(1, *given)):
        for wrong in (float("nan"), -0.1, float("inf")):
            with pytest.raises(ArgumentError, match="must be finite and not negative"):
                asked(wrong, 0.95, 1000)


def test_what_is_saved_is_measured_on_the_same_rows_for_both_bills() -> None:
    random = np.random.default_rng(0)
    # Bills that vary tenfold from row to row, always in the ratio 1 to 4.
    dollars = random.uniform(0.001, 0.01, size=(ROWS, 1)) * np.array([1.0, 4.0])
    errors = np.tile([0.5, 0.0], (ROWS, 1))
    point = measure_curve(np.zeros(0), np.empty((0, ROWS), dtype=int), errors, dollars).for_quality(
        0.75, 0.95, 1000
    )
    low, high = point.saved_interval
    # Half the queries at a quarter of the price, whatever the rows; only the draws vary.
    assert point.saved == pytest.approx(0.375)
    assert low < point.saved < high
    wide = point.dollars_interval[1] / point.dollars_interval[0]
    assert 1.05 < (1 - low) / (1 - high) < wide
