"""Bootstrap intervals, paired differences and Holm's correction."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import ttest_rel

from mildroute.evaluation.intervals import bootstrap, holm, paired_difference
from mildroute.evaluation.resampling import Interval, bootstrap_means
from mildroute.exceptions import ArgumentError, ShapeError

VALUES = st.lists(st.floats(-5, 5, width=16), min_size=1, max_size=15)


@given(VALUES, st.integers(0, 5))
@settings(max_examples=50)
def test_an_interval_holds_its_value(values: list[float], seed: int) -> None:
    found = bootstrap(values, resamples=50, seed=seed)
    assert found.value == pytest.approx(np.mean(values))
    assert found.low <= found.value <= found.high
    assert min(values) - 1e-9 <= found.low
    assert found.high <= max(values) + 1e-9


@given(VALUES)
@settings(max_examples=50)
def test_groups_of_one_row_are_no_groups(values: list[float]) -> None:
    groups = [f"q{index}" for index in range(len(values))]
    assert bootstrap(values, groups=groups, resamples=50) == bootstrap(values, resamples=50)
    assert paired_difference(values, [0.0] * len(values), groups) == paired_difference(
        values, [0.0] * len(values)
    )


def test_a_single_group_is_resampled_by_rows() -> None:
    assert bootstrap([0.0, 1.0, 2.0], groups=["a"] * 3) == bootstrap([0.0, 1.0, 2.0])


def test_whole_groups_are_drawn() -> None:
    # two groups of means 0 and 1 and of sizes 3 and 1: a resample holds both, or one of them twice
    found = bootstrap_means({"x": [0.0, 0.0, 0.0, 1.0]}, ["a", "a", "a", "b"], resamples=400)
    assert found.units == 2
    assert np.unique(found.replicates.round(9)).tolist() == [0.0, 0.25, 1.0]
    assert (found.replicates.round(9) == 0.25).mean() == pytest.approx(0.5, abs=0.1)


def test_rows_that_repeat_within_groups_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    values = np.repeat(rng.normal(size=40), 25)
    groups = np.repeat(np.arange(40), 25)
    clustered, plain = bootstrap(values, groups=groups), bootstrap(values)
    ratio = (clustered.high - clustered.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(5, rel=0.2)  # the root of 25 copies


def test_the_interval_of_a_mean_has_the_width_of_students() -> None:
    values = np.random.default_rng(1).normal(size=20)
    found = bootstrap(values, resamples=20_000)
    half = 2.093 * values.std(ddof=1) / np.sqrt(20)
    assert (found.low, found.high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.15 * half
    )


@pytest.mark.parametrize("kind", ["rows", "groups", "ratio"])
def test_95_of_100_intervals_hold_the_truth(kind: str) -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(300):
        if kind == "groups":
            values = (rng.normal(size=(30, 1)) + rng.normal(size=(30, 4))).ravel()
            found = bootstrap(values, groups=np.repeat(np.arange(30), 4), resamples=500, seed=trial)
            hits += not found.excludes(0)
        elif kind == "rows":
            hits += not bootstrap(rng.random(40) < 0.3, resamples=500, seed=trial).excludes(0.3)
        else:
            above, below = rng.random(60), 1 + rng.random(60)
            found = bootstrap(
                {"a": above, "b": below},
                lambda mean: mean["a"] / mean["b"],
                resamples=500,
                seed=trial,
            )
            hits += not found.excludes(1 / 3)
    assert 0.92 <= hits / 300 <= 0.98


def test_two_thousand_resamples_of_ten_thousand_rows_take_less_than_two_seconds() -> None:
    rng = np.random.default_rng(0)
    columns = {str(index): rng.random(10_000) for index in range(6)}
    before = time.process_time()
    bootstrap_means(columns, resamples=2000)
    assert time.process_time() - before < 2


def test_any_function_of_several_means_gets_an_interval() -> None:
    rng = np.random.default_rng(2)
    cost = rng.random(300)
    found = bootstrap_means({"cost": cost, "half": cost / 2, "none": np.zeros(300)})
    assert found.interval("half") == Interval(
        *(side / 2 for side in _sides(found.interval("cost"))), 0.95
    )
    assert found.interval(lambda mean: 1 - mean["half"] / mean["cost"]).low == pytest.approx(0.5)
    assert np.isnan(found.interval(lambda mean: mean["none"] / mean["none"]).value)


def _sides(found: Interval) -> tuple[float, float, float]:
    return found.value, found.low, found.high


def test_the_same_seed_gives_the_same_interval_and_more_confidence_a_wider_one() -> None:
    values = np.random.default_rng(3).normal(size=50)
    assert bootstrap(values, seed=4) == bootstrap(values, seed=4) != bootstrap(values, seed=5)
    wide, narrow = bootstrap(values, confidence=0.99), bootstrap(values, confidence=0.8)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_paired_difference_has_the_p_value_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=30), rng.normal(0.5, size=30)
    found = paired_difference(ours, theirs)
    assert found.value == pytest.approx(ours.mean() - theirs.mean())
    assert found.p_value == pytest.approx(ttest_rel(ours, theirs).pvalue)


def test_the_p_value_of_equal_groups_is_that_of_the_group_means() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(0.3, size=60), rng.normal(size=60)
    found = paired_difference(ours, theirs, np.repeat(np.arange(12), 5))
    means = [side.reshape(12, 5).mean(axis=1) for side in (ours, theirs)]
    assert found.p_value == pytest.approx(ttest_rel(*means).pvalue)


def test_equal_sides_differ_by_nothing_and_a_constant_gap_has_the_p_value_of_flipped_signs() -> (
    None
):
    assert paired_difference([1.0, 2.0], [1.0, 2.0]).p_value == 1
    # all signs up or all down: 2 of 2 ** n
    assert paired_difference([1.0, 2.0], [0.5, 1.5]).p_value == 0.5
    assert paired_difference([0.0] * 4, [1.0] * 4).p_value == 0.125
    assert paired_difference([0.3] * 4, [0.1] * 4, ["a", "a", "b", "b"]).p_value == 0.5
    assert (
        paired_difference([0.1 * k for k in range(10)], [0.1 * k - 0.7 for k in range(10)]).p_value
        == 2**-9
    )  # but for rounding


def test_holm_by_hand_and_never_in_another_order() -> None:
    assert holm({"c": 0.03, "a": 0.01, "b": 0.02, "d": 0.9}) == pytest.approx(
        {"c": 0.06, "a": 0.04, "b": 0.06, "d": 0.9}
    )
    assert holm({}) == {}


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"a": []}, ShapeError),
        ({"a": [1.0], "b": [1.0, 2.0]}, ShapeError),
        ({"a": [[1.0]]}, ShapeError),
        ({"a": [np.nan]}, ArgumentError),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    columns: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        bootstrap_means(columns)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="confidence"):
        bootstrap([1.0, 2.0], confidence=95)
    with pytest.raises(ArgumentError, match="resamples"):
        bootstrap([1.0, 2.0], resamples=0)
    with pytest.raises(ArgumentError, match="statistic"):
        bootstrap({"a": [1.0], "b": [1.0]})
    with pytest.raises(ShapeError, match="groups"):
        bootstrap([1.0, 2.0], groups=["a"])
    with pytest.raises(ShapeError, match="same rows"):
        paired_difference([1.0], [1.0, 2.0])
