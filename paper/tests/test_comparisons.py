"""Differences are paired by row and seed; intervals are those of a textbook."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from mildroute.exceptions import ArgumentError
from paper.config import Data, ExperimentConfig, Experts
from paper.summaries import Gap, gap_between
from paper.tests.toys import made_up, toy_cell

TABLE = ExperimentConfig(Data("mmlu57"), Experts("table", names=("a", "b")))


def rows(seed: int, count: int = 30) -> tuple[float, ...]:
    return tuple(np.random.default_rng(seed).normal(size=count).tolist())


def test_folds_of_a_table_are_one_sample_of_rows() -> None:
    ours, other = (
        {seed: made_up(TABLE, rows(seed + shift)) for seed in range(3)} for shift in (0, 100)
    )
    gap = gap_between(ours, other)
    pooled = np.concatenate([np.subtract(ours[seed].paid, other[seed].paid) for seed in range(3)])
    low, high = ttest_1samp(pooled, 0).confidence_interval(0.95)
    assert (gap.value, gap.low, gap.high) == pytest.approx((pooled.mean(), low, high))


def test_with_one_seed_the_rows_are_the_sample() -> None:
    ours, other = {0: made_up(toy_cell(), rows(0))}, {0: made_up(toy_cell(), rows(1))}
    low, high = ttest_1samp(np.subtract(rows(0), rows(1)), 0).confidence_interval(0.95)
    gap = gap_between(ours, other)
    assert (gap.low, gap.high) == pytest.approx((low, high))


def test_seeds_that_disagree_widen_the_interval_of_shared_rows() -> None:
    base = {seed: made_up(toy_cell(), (0.5,) * 30) for seed in range(5)}
    steady = {seed: made_up(toy_cell(), tuple(np.add(rows(0), 0.0))) for seed in range(5)}
    shaky = {seed: made_up(toy_cell(), tuple(np.add(rows(0), (-1) ** seed))) for seed in range(5)}
    narrow, wide = gap_between(steady, base), gap_between(shaky, base)
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_only_shared_seeds_are_compared_and_one_is_needed() -> None:
    ours, other = (
        {0: made_up(toy_cell(), (0.0, 0.0)), 1: made_up(toy_cell(), (9.0, 9.0))},
        {0: made_up(toy_cell(), (1.0, 1.0))},
    )
    assert gap_between(ours, other) == Gap(-1.0, -1.0, -1.0)
    with pytest.raises(ArgumentError, match="share a seed"):
        gap_between({1: ours[1]}, other)


def test_equal_routers_differ_by_nothing() -> None:
    gap = gap_between({0: made_up(toy_cell())}, {0: made_up(toy_cell())})
    assert (gap, gap.verdict) == (Gap(0.0, 0.0, 0.0), "open")
