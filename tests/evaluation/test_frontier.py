"""Money against quality along price weights, with single experts, mixes, the oracle and a band."""

from __future__ import annotations

import numpy as np
import pytest

from mildroute.evaluation.cost_quality import (
    Point,
    mix_shares,
    oracle_point,
    random_mixture,
    single_points,
)
from mildroute.evaluation.frontier import Frontier, measure_frontier
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.frontier.router import FrontierRouter

SINGLES = [Point("small", 1, 0.5), Point("middle", 2, 0.4), Point("large", 3, 0.9)]


def simulated(rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Choices at three weights, scores and dollars.

    The large expert is better on hard rows, of which the router finds most.
    """
    rng = np.random.default_rng(seed)
    hard = rng.random(rows)
    scores = np.stack([rng.random(rows) > hard, rng.random(rows) > hard / 3], axis=1).astype(float)
    dollars = np.stack([np.full(rows, 0.001), rng.uniform(0.005, 0.015, rows)], axis=1)
    return np.stack([hard > cut for cut in (0.0, 0.5, 1.0)]).astype(int), scores, dollars


def measured(rows: int = 400, **settings: object) -> Frontier:
    return measure_frontier(*simulated(rows), price_weights=[0, 10, 100], resamples=300, **settings)  # type: ignore[arg-type]


def test_points_are_means_with_intervals_around_them() -> None:
    choices, scores, dollars = simulated()
    middle = measured().points[1]
    chosen = choices[1]
    assert middle.score == pytest.approx(scores[np.arange(400), chosen].mean())
    assert middle.dollars_per_1000 == pytest.approx(1000 * dollars[np.arange(400), chosen].mean())
    assert middle.price_weight == 10
    assert middle.score_interval is not None
    assert middle.score_interval.low < middle.score < middle.score_interval.high


def test_the_ends_are_the_single_experts_and_the_oracle_is_above_all() -> None:
    frontier = measured(experts=["small", "large"])
    assert frontier.points[0].score == pytest.approx(frontier.singles[1].score)
    assert frontier.points[2].dollars_per_1000 == pytest.approx(
        frontier.singles[0].dollars_per_1000
    )
    assert [single.name for single in frontier.singles] == ["small", "large"]
    assert frontier.oracle.score >= max(point.score for point in frontier.points)
    assert frontier.oracle.dollars_per_1000 < frontier.singles[1].dollars_per_1000


def test_a_router_that_finds_hard_rows_beats_random_mixes_of_the_same_bill() -> None:
    frontier = measured()
    middle = frontier.points[1]
    assert middle.score > frontier.random_mixture(middle.dollars_per_1000).score
    ours, mixes = frontier.aiq()
    assert ours > mixes


def test_the_band_holds_the_hull_and_narrows_with_more_rows() -> None:
    few, many = measured(200).band, measured(3200).band
    for band in (few, many):
        assert all(
            low <= middle <= high
            for low, middle, high in zip(band.low, band.score, band.high, strict=True)
        )
        assert list(band.score) == sorted(band.score)
    widths = [np.mean(np.subtract(band.high, band.low)) for band in (few, many)]
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.3)


def test_the_band_holds_the_true_score_at_a_bill_about_as_often_as_it_says() -> None:
    truth = measure_frontier(*simulated(100_000, seed=99), resamples=20).band
    hits = 0
    for seed in range(100):
        band = measure_frontier(*simulated(300, seed=seed), resamples=200).band
        place = len(band.score) // 2
        true = np.interp(band.dollars_per_1000[place], truth.dollars_per_1000, truth.score)
        hits += band.low[place] <= true <= band.high[place]
    assert 88 <= hits <= 100


def test_a_single_point_has_a_band_of_one_bill() -> None:
    choices, scores, dollars = simulated()
    assert len(measure_frontier(choices[:1], scores, dollars, resamples=50).band.score) == 1


def test_the_best_mix_leaves_a_dominated_expert_out() -> None:
    assert mix_shares(SINGLES, 2.5).tolist() == [0.25, 0.0, 0.75]
    assert random_mixture(SINGLES, 2.5).score == pytest.approx(0.8)
    assert mix_shares(SINGLES, 99).tolist() == [0, 0, 1]
    with pytest.raises(ArgumentError, match="cheapest"):
        mix_shares(SINGLES, 0.5)


def test_the_oracle_takes_the_cheapest_of_equally_good_experts() -> None:
    found = oracle_point(
        [[1, 1], [0, 0.5], [0, 0]], [[0.003, 0.001], [0.001, 0.004], [0.001, 0.002]]
    )
    assert (found.dollars_per_1000, found.score) == pytest.approx((2.0, 0.5))


def test_single_points_are_the_means_of_the_columns() -> None:
    found = single_points([[1, 0], [1, 1]], [[0.001, 0.002], [0.003, 0.002]])
    assert [point.dollars_per_1000 for point in found] == pytest.approx([2.0, 2.0])
    assert [point.score for point in found] == [1.0, 0.5]


def test_a_frontier_router_is_measured_at_many_weights_on_held_out_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    scores = np.stack([X[:, 0] < 0, np.ones(600)], axis=1).astype(float)
    dollars = np.tile([0.001, 0.01], (600, 1))
    router = FrontierRouter(price_weights=(0, 10, 1000)).fit(
        X[:300], 1 - scores[:300], prices=dollars[:300]
    )
    weights = [0, 5, 10, 50, 100, 1000]
    choices = np.stack([router.predict(X[300:], price_weight=weight) for weight in weights])
    frontier = measure_frontier(
        choices, scores[300:], dollars[300:], price_weights=weights, resamples=100
    )
    bills = [point.dollars_per_1000 for point in frontier.points]
    assert bills == sorted(bills, reverse=True)
    assert frontier.aiq()[0] > frontier.aiq()[1] + 0.1


def test_a_path_that_is_operated_keeps_its_vertices_whatever_these_rows_say() -> None:
    """On these rows a mix of the single experts would beat the router's point.

    The path goes through it all the same.
    """
    scores = np.array([[0.0, 1.0]] * 50 + [[1.0, 1.0]] * 50)
    dollars = np.tile([0.001, 0.01], (100, 1))
    wrong_way = np.where(np.arange(100) < 50, 0, 1)  # the cheap one for what it cannot do
    frontier = measure_frontier(
        [wrong_way], scores, dollars, experts=["small", "large"], path=[0, 2, 1], resamples=100
    )
    assert [
        (point.name, round(point.dollars_per_1000, 1), point.score) for point in frontier.path
    ] == [("small", 1.0, 0.5), ("point 0", 5.5, 0.5), ("large", 10.0, 1.0)]
    at = dict(zip(frontier.band.dollars_per_1000, frontier.band.score, strict=True))
    assert at[frontier.path[1].dollars_per_1000] == pytest.approx(0.5)
    assert all(
        low <= middle <= high
        for low, middle, high in zip(
            frontier.band.low, frontier.band.score, frontier.band.high, strict=True
        )
    )


def test_what_does_not_fit_is_refused() -> None:
    choices, scores, dollars = simulated()
    with pytest.raises(ShapeError, match="W, n"):
        measure_frontier(choices[0], scores, dollars)
    with pytest.raises(ShapeError, match="price_weights"):
        measure_frontier(choices, scores, dollars, price_weights=[1])
    with pytest.raises(ShapeError, match="dollars"):
        measure_frontier(choices, scores, dollars[:, :1])
    with pytest.raises(ShapeError, match="experts"):
        measure_frontier(choices, scores, dollars, experts=["one"])
