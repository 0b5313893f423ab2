"""One router for every price of quality."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mildroute.exceptions import ArgumentError, MildrouteError, ShapeError, UnreachableTargetError
from mildroute.persistence import load_router, save_router
from mildroute.routers._folds import assign_folds
from mildroute.routers._order import argmax_last
from mildroute.routers.features import TopicFeatures
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.surrogate import CustomLossRouter
from mildroute.routers.training_rows import FoldVectors
from tests.support.routers import Array, problem

GRID = (0, 5, 20, 100, 1000)
LINEAR = MildRouter(features="raw", reward="gap", margins="uniform", cv=2)


def market(rows: int = 400, seed: int = 0) -> tuple[Array, Array, Array]:
    """A cheap expert for easy queries, a better one, and one that is nearly always right and dear.

    Vectors, errors, dollars.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 3))
    easy = 1 / (1 + np.exp(-3 * X[:, 0]))
    right = np.stack([easy, 0.4 + 0.5 * easy, np.full(rows, 0.92)], axis=1)
    errors = (random.uniform(size=(rows, 3)) > right).astype(float)
    return X, errors, np.array([0.0005, 0.002, 0.01]) * random.uniform(0.5, 1.5, size=(rows, 3))


@functools.cache
def fitted() -> FrontierRouter:
    X, errors, dollars = market()
    return FrontierRouter(router=LINEAR, price_weights=GRID).fit(X, errors, prices=dollars)


def on_new_rows(
    at: float | OperatingPoint, router: FrontierRouter | None = None
) -> tuple[float, float, Array]:
    """Error, dollars for 1,000 queries and shares of experts on rows that no router has seen."""
    X, errors, dollars = market(20_000, seed=1)
    given: dict[str, Any] = (
        {"point": at} if isinstance(at, OperatingPoint) else {"price_weight": at}
    )
    choice = (router or fitted()).predict(X, **given)
    rows = np.arange(len(X))
    return (
        float(errors[rows, choice].mean()),
        float(1000 * dollars[rows, choice].mean()),
        np.bincount(choice, minlength=3) / len(X),
    )


def test_where_money_does_not_matter_the_router_is_as_good_as_the_best_expert() -> None:
    error, _, _ = on_new_rows(0)
    assert error < market(20_000, seed=1)[1].mean(axis=0).min() + 0.01


def test_where_only_money_matters_the_cheapest_expert_answers() -> None:
    assert on_new_rows(1000)[2][0] > 0.99


def test_more_expensive_quality_is_bought_less() -> None:
    errors, dollars, _ = zip(*[on_new_rows(weight) for weight in GRID], strict=True)
    assert dollars[0] > dollars[2] > dollars[3] > dollars[4]
    assert errors[0] < errors[2] < errors[3] < errors[4]


def test_at_a_grid_point_the_posterior_is_that_of_its_router() -> None:
    X, _, _ = market(50, seed=1)
    for weight, router in zip(GRID, fitted().routers_, strict=True):
        np.testing.assert_allclose(
            fitted().predict_proba(X, weight), router.predict_proba(X), atol=1e-12
        )


def test_between_grid_points_posteriors_are_mixed_without_a_jump() -> None:
    X, _, _ = market(50, seed=1)
    weights = np.concatenate([[0], np.geomspace(0.01, 2000, 2000)])
    posteriors = np.stack([fitted().predict_proba(X, weight) for weight in weights])
    assert np.abs(np.diff(posteriors, axis=0)).max() < 0.02
    np.testing.assert_allclose(posteriors.sum(axis=2), 1)


def test_beyond_the_grid_its_last_router_answers() -> None:
    X, _, _ = market(50, seed=1)
    np.testing.assert_array_equal(
        fitted().predict_proba(X, 1e9), fitted().predict_proba(X, GRID[-1])
    )


def test_a_weight_for_each_row_gives_what_a_call_for_each_row_gives() -> None:
    X, _, _ = market(60, seed=1)
    weights = np.tile([0.0, 3, 20, 77, 1000, 5000], 10)
    for ask in (
        fitted().predict,
        fitted().predict_proba,
        fitted().rank,
        fitted().decision_function,
    ):
        alone = np.concatenate([ask(X[[row]], weight) for row, weight in enumerate(weights)])
        np.testing.assert_allclose(ask(X, weights), alone, atol=1e-12)


def test_the_weight_of_the_constructor_is_used_where_none_is_given() -> None:
    X, errors, dollars = market(100)
    router = FrontierRouter(router=LINEAR, price_weights=(0, 1000), price_weight=1000).fit(
        X, errors, prices=dollars
    )
    np.testing.assert_array_equal(router.predict(X), router.predict(X, 1000))
    assert (router.predict(X) != router.predict(X, 0)).any()
    router.set_params(price_weight=0)
    np.testing.assert_array_equal(router.predict(X), router.predict(X, 0))


def test_without_prices_it_is_one_router() -> None:
    X, errors, _ = market(100)
    one = MildRouter(**LINEAR.get_params(deep=False)).fit(X, errors)
    for prices in (None, np.zeros(3)):
        router = FrontierRouter(router=LINEAR).fit(X, errors, prices=prices)
        assert len(router.routers_) == 1
        np.testing.assert_array_equal(router.predict_proba(X), one.predict_proba(X))
        np.testing.assert_array_equal(router.predict(X, 500), one.predict(X))


def test_without_prices_a_search_gives_nearly_one_router() -> None:
    X, costs = problem(3)
    template = MildRouter(cv=2, topics=TopicFeatures(clusters=(4,), random_state=0))
    one, other = (
        MildRouter(**template.get_params(deep=False)).fit(X, costs),
        FrontierRouter(router=template).fit(X, costs),
    )
    assert np.mean(one.predict(X) == other.predict(X)) > 0.9


def test_prices_of_experts_are_prices_of_every_row() -> None:
    X, errors, _ = market(100)
    prices = np.array([0.0005, 0.002, 0.01])
    one, other = (
        FrontierRouter(router=LINEAR, price_weights=(0, 50)).fit(X, errors, prices=each)
        for each in (prices, np.tile(prices, (100, 1)))
    )
    np.testing.assert_array_equal(one.predict_proba(X, 20), other.predict_proba(X, 20))


def test_a_budget_is_kept_on_new_rows() -> None:
    for budget in (1.0, 3.0, 7.0, 20.0):
        point = fitted().for_budget(budget)
        assert on_new_rows(point)[1] <= budget
        assert point.dollars_interval[1] <= budget * 1.05
    assert (
        fitted().for_budget(20.0).score
        > fitted().for_budget(3.0).score
        > fitted().for_budget(1.0).score
    )


def test_a_quality_is_reached_on_new_rows() -> None:
    best = 1 - market(20_000, seed=1)[1].mean(axis=0).min()
    for fraction in (0.6, 0.8, 0.95):
        assert 1 - on_new_rows(fitted().for_quality(fraction))[0] >= fraction * best
    assert fitted().for_quality(0.6).dollars_per_1000 < fitted().for_quality(0.95).dollars_per_1000


def test_a_share_is_kept_on_new_rows() -> None:
    for share in (0.1, 0.3, 0.6):
        point = fitted().for_share("expert_2", share)
        assert on_new_rows(point)[2][2] <= share
        assert point.shares[2] <= share


def test_a_point_tells_the_truth_about_new_rows() -> None:
    point = fitted().for_budget(7.0)
    error, dollars, shares = on_new_rows(point)
    assert 1 - error == pytest.approx(point.score, abs=0.05)
    assert dollars == pytest.approx(point.dollars_per_1000, rel=0.15)
    np.testing.assert_allclose(shares, point.shares, atol=0.08)
    assert sum(point.shares) == pytest.approx(1)


def test_the_curve_is_measured_at_the_grid_and_between() -> None:
    weights = fitted().curve_["weights"]
    assert set(GRID) <= set(weights)
    assert (np.diff(weights) > 0).all()
    assert len(weights) > 2 * len(GRID)


def test_targets_out_of_reach_are_refused_with_the_nearest_that_can_be_had() -> None:
    with pytest.raises(UnreachableTargetError, match=r"below 0.01 dollars.*may need 0\.\d"):
        fitted().for_budget(0.01)
    with pytest.raises(
        UnreachableTargetError, match=r"1.5 of the best single expert's.*sure of 0\.\d"
    ):
        fitted().for_quality(1.5)


def test_what_cannot_be_meant_is_refused_in_words() -> None:
    unpriced = FrontierRouter().fit(np.eye(20), np.tile([0.1, 0.3], (20, 1)))
    with pytest.raises(ArgumentError, match="a budget of 2 needs prices"):
        unpriced.for_budget(2.0)
    with pytest.raises(ArgumentError, match="an OperatingPoint or None, got 'x'"):
        unpriced.operate_at("x")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"groups must be \(20,\), one per row, got 3"):
        FrontierRouter().fit(np.eye(20), np.tile([0.1, 0.3], (20, 1)), groups=["a", "b", "c"])


def test_an_unknown_expert_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ArgumentError, match="one of expert_0, expert_1, expert_2, got 'gpt'"):
        fitted().for_share("gpt", 0.5)


@pytest.mark.parametrize("wrong", [{"confidence": 95}, {"confidence": 0.0}, {"queries": 0}])
def test_a_promise_without_a_meaning_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        fitted().for_budget(5.0, **wrong)


@pytest.mark.parametrize("shape", [(2,), (100, 2), (50, 3), (1, 3), ()])
def test_prices_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    X, errors, _ = market(100)
    with pytest.raises(ShapeError, match=r"prices must be \(100, 3\) or \(3,\)"):
        FrontierRouter().fit(X, errors, prices=np.ones(shape))


@pytest.mark.parametrize("price", [-0.01, np.nan, np.inf])
def test_prices_that_are_no_prices_are_refused(price: float) -> None:
    X, errors, _ = market(100)
    with pytest.raises(ArgumentError, match="prices must be finite and not negative"):
        FrontierRouter().fit(X, errors, prices=[0.1, price, 0.2])


@pytest.mark.parametrize("grid", [(1, 2), (0,), (0, 2, 1), (0, 0, 1), ((0, 1),), (0, np.nan)])
def test_a_grid_that_does_not_ascend_from_zero_is_refused(grid: Any) -> None:
    X, errors, dollars = market(100)
    with pytest.raises(ArgumentError, match="ascend from 0"):
        FrontierRouter(router=LINEAR, price_weights=grid).fit(X, errors, prices=dollars)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf])
def test_a_price_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ArgumentError, match="price_weight must be from 0 to"):
        fitted().predict(market(5)[0], weight)


@pytest.mark.parametrize("weights", [[1.0, 2.0], [[1.0]], np.ones((5, 3))])
def test_price_weights_of_another_shape_are_refused(weights: Any) -> None:
    with pytest.raises(ShapeError, match=r"price_weight must be a number or \(5,\)"):
        fitted().predict(market(5)[0], weights)


def test_a_router_that_was_not_fitted_promises_nothing() -> None:
    with pytest.raises(NotFittedError):
        FrontierRouter().for_budget(5.0)


def test_a_router_with_nothing_to_search_for_is_measured_on_held_out_rows_too() -> None:
    X, errors, dollars = market()
    settled = MildRouter(features="raw", reward="gap", margins="uniform", alpha=0.001, cv=2)
    router = FrontierRouter(router=settled, price_weights=GRID).fit(X, errors, prices=dollars)
    for weight in GRID:
        error, dollars_per_1000, _ = on_new_rows(weight, router)
        place = router.curve_["weights"].tolist().index(weight)
        assert router.curve_["errors"][place] == pytest.approx(error, abs=0.06)
        assert 1000 * router.curve_["dollars"][place] == pytest.approx(dollars_per_1000, abs=1)


def test_rows_of_weight_zero_are_on_nobodys_bill() -> None:
    X, errors, dollars = market(200)
    counts = np.arange(200) % 2 == 0
    router = FrontierRouter(router=LINEAR, price_weights=(0, 1)).fit(
        X,
        errors,
        prices=np.where(counts[:, None], 0.01, 5.0) + 0 * dollars,
        sample_weight=counts.astype(float),
    )
    assert router.for_budget(1e6).dollars_per_1000 == pytest.approx(10)


def test_a_network_is_fitted_along_the_grid_or_refused_by_its_name() -> None:
    X, errors, dollars = market(100)
    try:
        router = FrontierRouter(
            router=MildRouter(hidden_layer_sizes=(4,)), price_weights=(0, 1000)
        ).fit(X, errors, prices=dollars)
    except MildrouteError as refusal:
        assert "hidden_layer_sizes" in str(refusal)  # noqa: PT017  (a refusal is one of two right answers)
    else:
        assert router.predict(X).shape == (100,)


def mixed() -> OperatingPoint:
    point = fitted().for_budget(6.0)
    assert point.is_mixed
    return point


def test_a_coin_decides_between_two_vertices_with_their_probabilities() -> None:
    X, _, _ = market(20_000, seed=1)
    (first, low), (second, high) = (
        (chance, argmax_last(posterior))
        for chance, posterior in fitted().vertex_posteriors(X, mixed())
    )
    choice = fitted().predict(X, point=mixed())
    assert ((choice == low) | (choice == high)).all()
    differ = low != high
    share = (choice == low)[differ].mean()
    assert abs(share - first) < 4 * np.sqrt(first * second / differ.sum())


def test_equal_rows_are_split_in_the_stated_proportion() -> None:
    X, _, _ = market(2_000, seed=1)
    (first, low), (second, high) = (
        (chance, argmax_last(posterior))
        for chance, posterior in fitted().vertex_posteriors(X, mixed())
    )
    row = np.flatnonzero(low != high)[0]
    equal = np.tile(X[row], (1_000, 1))
    choice = fitted().predict(equal, point=mixed())
    assert abs((choice == low[row]).mean() - first) < 4 * np.sqrt(first * second / 1_000)
    np.testing.assert_array_equal(fitted().rank(equal, point=mixed())[:, 0], choice)
    # Alone, a row always falls on the same side.
    assert fitted().predict(equal[:1], point=mixed()) == choice[0]


def test_the_same_request_id_falls_the_same_way_in_any_batch() -> None:
    X, _, _ = market(400, seed=1)
    ids = [f"request-{number}" for number in range(400)]
    choice = fitted().predict(X, point=mixed(), request_ids=ids)
    order = np.random.default_rng(0).permutation(400)
    np.testing.assert_array_equal(
        fitted().predict(X[order], point=mixed(), request_ids=[ids[row] for row in order]),
        choice[order],
    )
    np.testing.assert_array_equal(fitted().rank(X, point=mixed(), request_ids=ids)[:, 0], choice)
    assert (
        fitted().predict(X, point=mixed(), request_ids=[f"other-{number}" for number in range(400)])
        != choice
    ).any()


def test_an_operating_point_is_kept_stored_and_used_by_default(tmp_path: Path) -> None:
    X, errors, dollars = market(300)
    router = FrontierRouter(price_weights=GRID, random_state=3).fit(X, errors, prices=dollars)
    point = router.for_budget(6.0)
    assert router.operating_point is None
    router.operate_at(point)
    np.testing.assert_array_equal(router.predict(X), router.predict(X, point=point))
    np.testing.assert_allclose(router.predict_proba(X), router.predict_proba(X, point=point))
    np.testing.assert_allclose(router.predict_proba(X).sum(axis=1), 1)
    loaded: Any = load_router(save_router(router, tmp_path / "router"))
    assert loaded.operating_point == point
    np.testing.assert_array_equal(loaded.predict(X), router.predict(X))
    assert router.cross_val_posterior().shape == errors.shape
    with pytest.raises(ArgumentError, match="a price_weight or a point"):
        router.predict(X, 3.0, point=point)
    with pytest.raises(ShapeError, match="request_ids must be 300"):
        router.predict(X, request_ids=["one"])


def test_one_expert_for_everything_is_an_operating_point() -> None:
    X, _, _ = market(100, seed=1)
    point = fitted().alone("expert_1")
    assert (fitted().predict(X, point=point) == 1).all()
    assert point.shares == pytest.approx((0.0, 1.0, 0.0))
    assert not point.uses_router
    assert point.dollars_per_1000 == pytest.approx(2.0, rel=0.1)
    assert sorted(fitted().rank(X, point=point)[0].tolist()) == [0, 1, 2]


def test_folds_of_vectors_are_what_is_measured() -> None:
    """Vectors of held-out rows that say nothing leave a router that is worth nothing on the
    frontier, however good it is on its rows.
    """
    X, errors, dollars = market()
    fold = assign_folds(len(X), 5, None)
    blind = [
        FoldVectors(np.flatnonzero(fold == k), np.where((fold == k)[:, None], 0.0, X))
        for k in range(5)
    ]
    router = FrontierRouter(price_weights=GRID)
    rows = router.training_rows(X, errors, prices=dollars)
    good = clone(router).fit_rows(rows)
    bad = clone(router).fit_rows(replace(rows, folds=blind))
    assert good.curve.gain[0] > 0.02 > bad.curve.gain[0]
    with pytest.raises(ArgumentError, match="folds cannot be combined with sample_weight"):
        clone(router).fit_rows(replace(rows, folds=blind, sample_weight=np.ones(len(X))))


def test_a_thorough_fit_tries_the_surrogate_losses_and_says_what_it_took() -> None:
    X, errors, dollars = market(200)
    router = FrontierRouter(price_weights=(0, 20, 1000), thorough=True, random_state=0).fit(
        X, errors, prices=dollars
    )
    assert "best of 2 methods" in router.selection_
    assert "points of score above the best random mix" in router.selection_


def test_where_inputs_say_nothing_the_coin_is_served_and_it_is_said() -> None:
    random = np.random.default_rng(0)
    X, errors = (
        random.normal(size=(300, 3)),
        (random.uniform(size=(300, 2)) < [0.2, 0.5]).astype(float),
    )
    router = FrontierRouter(price_weights=(0, 20, 1000), random_state=0).fit(
        X, errors, prices=[0.01, 0.001]
    )
    assert "no method is better than a random mix" in router.selection_
    assert router.for_budget(5.0).dollars_per_1000 > 4.0


@pytest.mark.slow
def test_jobs_change_nothing() -> None:
    X, errors, dollars = market(120)
    one, two = (
        FrontierRouter(price_weights=(0, 20, 1000), n_jobs=jobs).fit(X, errors, prices=dollars)
        for jobs in (None, 2)
    )
    np.testing.assert_array_equal(one.curve.dollars, two.curve.dollars)
    np.testing.assert_array_equal(one.predict_proba(X, 20), two.predict_proba(X, 20))


def test_groups_reach_every_router() -> None:
    X, errors, dollars = market(100)
    template = MildRouter(features="groups", reward="gap", margins="uniform", cv=2)
    router = FrontierRouter(router=template, price_weights=(0, 20)).fit(
        X, errors, prices=dollars, groups=X[:, 0] > 0
    )
    assert {one.features_ for one in router.routers_} <= {"groups", "none"}
    assert "groups" in router.routers_[0].cv_results_["view"]


def test_names_of_experts_are_kept_and_the_template_stays_as_it_is() -> None:
    assert fitted().experts_.tolist() == ["expert_0", "expert_1", "expert_2"]
    assert not hasattr(LINEAR, "weights_")


def test_a_stored_router_keeps_its_promises(tmp_path: Path) -> None:
    X, _, _ = market(50, seed=1)
    loaded: Any = load_router(save_router(fitted(), tmp_path / "router"))
    np.testing.assert_array_equal(loaded.predict_proba(X, 33.0), fitted().predict_proba(X, 33.0))
    assert loaded.for_budget(5.0) == fitted().for_budget(5.0)


def test_progress_is_told_from_nothing_to_all() -> None:
    X, costs = problem(2)
    told: list[tuple[int, int]] = []
    router = FrontierRouter(price_weights=(0, 1, 10))
    router.fit(
        X,
        costs,
        prices=np.array([0.1, 1.0]),
        progress=lambda done, steps, _word: told.append((done, steps)),
    )
    assert told == [(done, 7) for done in range(8)]


def test_the_point_of_a_weight_is_measured_at_the_nearest_of_the_curve() -> None:
    X, costs = problem(2)
    router = FrontierRouter(price_weights=(0, 1, 10)).fit(X, costs, prices=np.array([0.1, 1.0]))
    assert (
        router.at(10.0).dollars_per_1000
        == router.at(9.9).dollars_per_1000
        <= router.at(0.0).dollars_per_1000
    )
    assert router.at(9.9).price_weight == 9.9
    with pytest.raises(ArgumentError, match="price_weight must be from 0 to"):
        router.at(-1.0)


@pytest.mark.parametrize(
    "router",
    [RegressionRouter(), CustomLossRouter("tdef", alpha=0.001)],
    ids=["regression", "own loss"],
)
def test_any_router_keeps_its_budget_along_the_grid_and_comes_back(
    router: Any, tmp_path: Path
) -> None:
    X, errors, dollars = market()
    frontier = FrontierRouter(router=router, price_weights=GRID).fit(X, errors, prices=dollars)
    point = frontier.for_budget(4.0)
    error, bill, _ = on_new_rows(point, frontier)
    assert bill < 4.2
    assert abs(error - (1 - point.score)) < 0.05
    # One regression serves every price weight; a router that knows no prices is fitted at each.
    assert [type(each) for each in frontier.routers_] == [type(router)] * (
        1 if isinstance(router, RegressionRouter) else len(GRID)
    )
    again: Any = load_router(save_router(frontier, tmp_path / "router"))
    np.testing.assert_array_equal(again.predict(X, 7.0), frontier.predict(X, 7.0))
    assert frontier.cross_val_posterior(7.0).shape == errors.shape
    with pytest.raises(ArgumentError, match="fitted in this process"):
        again.cross_val_posterior()


@pytest.mark.parametrize("weights", [[], [0.0], "x", None, [0, 1e16], [[0, 1]]])
def test_a_grid_is_checked_without_prices_too(weights: Any) -> None:
    X, errors = np.zeros((4, 1)), np.zeros((4, 2))
    with pytest.raises(ArgumentError, match="price_weight"):
        FrontierRouter(price_weights=weights).fit(X, errors)
