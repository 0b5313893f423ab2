"""The default router: what it learns, what it refuses, and what it says about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute.exceptions import ArgumentError, MarginError, ShapeError
from mildroute.persistence import load_router, save_router
from mildroute.routers import mild as mild_module
from mildroute.routers._decision import log_posterior
from mildroute.routers._linear_model import minimize_linear
from mildroute.routers._rewards import scaled_rewards
from mildroute.routers._search import _regressions, best_single, deferral_loss_of
from mildroute.routers._whitening import whiten
from mildroute.routers.baselines import BestSingleRouter
from mildroute.routers.feature_sets import build_feature_sets
from mildroute.routers.features import TopicFeatures
from mildroute.routers.mild import MildRouter
from mildroute.routers.surrogate import TDEFRouter
from tests.support.routers import Array, problem

TOPICS = TopicFeatures(clusters=(4,), random_state=0)
FIXED: dict[str, Any] = {"features": "raw", "reward": "gap", "margins": "uniform", "alpha": 0.01}
X, COSTS = problem(3)


def mild(**settings: Any) -> MildRouter:
    """A router whose search is short."""
    return MildRouter(**{"cv": 2, "alpha": 0.01, "topics": TOPICS, "random_state": 0, **settings})


def fixed(**settings: Any) -> MildRouter:
    """A router that has nothing to search for."""
    return MildRouter(**{**FIXED, "topics": TOPICS, **settings})


def noise(rows: int = 80) -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    return random.normal(size=(rows, 5)), random.uniform(size=(rows, 3)) + np.array([0.2, 0.0, 0.1])


def test_the_default_finds_the_rule() -> None:
    router = MildRouter(cv=3).fit(X, COSTS)
    X_new, costs_new = problem(3, rows=500, seed=1)
    assert (
        router.score(X_new, costs_new)
        > BestSingleRouter().fit(X, COSTS).score(X_new, costs_new) + 0.1
    )
    assert (
        router.score(X_new, costs_new)
        > TDEFRouter(alpha=0.01).fit(X, COSTS).score(X_new, costs_new) - 0.02
    )


def test_where_there_is_no_rule_it_is_the_best_single_expert() -> None:
    X, costs = noise()
    router = mild(alpha="cv").fit(X, costs)
    assert (router.features_, router.alpha_, router.gradient_norm_) == ("none", np.inf, 0)
    assert router.selection_.startswith("the best single expert")
    assert set(router.predict(X)) == {costs.mean(axis=0).argmin()}
    np.testing.assert_array_equal(router.rank(X[:1])[0], np.argsort(costs.mean(axis=0)))


def test_what_was_tried_is_told() -> None:
    router = mild().fit(X, COSTS, groups=X[:, 0] > 0)
    tried = router.cv_results_
    assert set(tried["view"]) == {"none", "groups", "topics", "raw", "average"}
    assert set(tried["reward"]) == {"gap", "complement", "sum", "regression"}
    assert len(set(tried["margins"])) > 1
    assert len({len(column) for column in tried.values()}) == 1
    place = [router.features_, router.reward_, router.alpha_]
    assert place in [
        list(row) for row in zip(tried["view"], tried["reward"], tried["alpha"], strict=True)
    ]
    assert router.features_ in router.selection_


@pytest.mark.parametrize("unit", [1.0, 1000.0, 1e-3])
def test_cost_regression_is_served_as_it_was_measured_in_any_unit(
    unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs that are linear in the vector, with noise, where the surrogate losses are left out."""
    monkeypatch.setattr(
        mild_module, "search", lambda problem: [best_single(problem), *_regressions(problem)]
    )
    random = np.random.default_rng(0)
    vectors = random.normal(size=(400, 5))
    costs = unit * (vectors @ random.normal(size=(5, 3)) + 0.1 * random.normal(size=(400, 3)))
    router = MildRouter(random_state=0).fit(vectors[:300], costs[:300])
    assert router.reward_ == "regression"
    assert "cost regression" in router.selection_
    regret = costs[300:][np.arange(100), router.predict(vectors[300:])] - costs[300:].min(axis=1)
    assert regret.mean() < 0.05 * unit
    held_out = router.cross_val_posterior().argmax(axis=1)
    assert (held_out == router.predict(vectors[:300])).mean() > 0.9
    np.testing.assert_allclose(router.predict_proba(vectors).sum(axis=1), 1)


def test_a_router_with_nothing_to_search_for_is_the_optimum_of_its_problem() -> None:
    router = fixed().fit(X, COSTS)
    loss = deferral_loss_of(scaled_rewards(COSTS, "gap", None), np.ones(3))(np.arange(80))
    expected = minimize_linear(whiten(X), loss, 3, alpha=0.01)
    np.testing.assert_array_equal(router.decision_function(X), expected.scores(X))
    assert router.gradient_norm_ == expected.gradient_norm < 1e-6


def test_the_penalty_is_searched_for_between_strong_and_weak() -> None:
    router = fixed(alpha="cv", cv=2).fit(X, COSTS)
    assert router.alpha_ in router.cv_results_["alpha"]
    assert np.inf in router.cv_results_["alpha"]
    lowest = int(np.argmin(router.cv_results_["mean_cost"]))
    assert router.alpha_ == router.cv_results_["alpha"][lowest]


@pytest.mark.parametrize(
    ("features", "vector", "topics"),
    [
        ("raw", (5, 3), None),
        ("topics", None, (6, 3)),
        ("groups", None, (2, 3)),
        ("both", (5, 3), (4, 3)),
    ],
)
def test_each_kind_of_features_has_its_weights(features: str, vector: Any, topics: Any) -> None:
    router = fixed(features=features).fit(X, COSTS, groups=X[:, 0] > 0)
    assert router.features_ == features
    assert (None if router.weights_ is None else router.weights_.shape) == vector
    assert (None if router.topic_weights_ is None else router.topic_weights_.shape) == topics
    assert router.score(X, COSTS) > BestSingleRouter().fit(X, COSTS).score(X, COSTS)


def test_the_vector_beside_topics_is_weighted_in_its_own_unit() -> None:
    router = fixed(features="both").fit(X, COSTS)
    features = build_feature_sets(X, None, {"both"}, TOPICS).features["both"]
    loss = deferral_loss_of(scaled_rewards(COSTS, "gap", None), np.ones(3))(np.arange(80))
    expected = minimize_linear(whiten(features), loss, 3, alpha=0.01).scores(features)
    np.testing.assert_allclose(router.decision_function(X), expected, atol=1e-9)


def test_groups_help_where_they_decide_and_are_not_needed_afterwards() -> None:
    random = np.random.default_rng(0)
    groups = random.integers(4, size=200)
    vectors = random.normal(size=(200, 8)) + 4 * np.eye(8)[groups]
    costs = np.where(np.eye(4)[groups] == 1, 0.2, 0.6) + 0.2 * random.uniform(size=(200, 4))
    router = mild(features="groups").fit(
        vectors, costs, groups=np.array(["a", "b", "c", "d"])[groups]
    )
    assert np.mean(router.predict(vectors) == groups) > 0.95


@pytest.mark.parametrize("margins", ["theory", [3.0, 1.0, 0.5]])
def test_with_differing_margins_the_posterior_is_decoded(margins: Any) -> None:
    router = fixed(margins=margins).fit(X, COSTS)
    posterior = np.exp(log_posterior(router.decision_function(X), router.margins_))
    np.testing.assert_array_equal(router.predict_proba(X), posterior)
    np.testing.assert_array_equal(router.predict(X), posterior.argmax(axis=1))
    assert np.ptp(router.margins_) > 0


def test_the_papers_decision_is_the_largest_score() -> None:
    consistent, largest = (
        fixed(margins=[5.0, 1.0, 0.2], decision=decision).fit(X, COSTS)
        for decision in ("consistent", "argmax")
    )
    np.testing.assert_array_equal(largest.decision_function(X), consistent.decision_function(X))
    np.testing.assert_array_equal(largest.predict(X), largest.decision_function(X).argmax(axis=1))
    np.testing.assert_array_equal(largest.rank(X)[:, 0], largest.predict(X))
    assert (largest.predict(X) != consistent.predict(X)).any()


def test_with_equal_margins_the_decisions_agree() -> None:
    one, other = (
        fixed(decision=decision).fit(X, COSTS).predict(X) for decision in ("consistent", "argmax")
    )
    np.testing.assert_array_equal(one, other)


def test_margins_by_name_sum_to_one_and_given_ones_stay_as_they_are() -> None:
    rewards = {
        "gap": COSTS.max(axis=1, keepdims=True) - COSTS,
        "sum": COSTS.sum(axis=1, keepdims=True) - COSTS,
    }
    for reward, values in rewards.items():
        total = values.sum(axis=1, keepdims=True)
        shares = np.divide(values, total, out=np.zeros_like(values), where=total > 0)
        expected = shares.sum(axis=0) ** (1 / 3)
        np.testing.assert_allclose(
            fixed(margins="theory", reward=reward).fit(X, COSTS).margins_,
            expected / expected.sum(),
        )
    best = COSTS.min(axis=1, keepdims=True) == COSTS
    wins = (best / best.sum(axis=1, keepdims=True)).sum(axis=0) ** (1 / 3)
    found = fixed(margins="winner_counts").fit(X, COSTS).margins_
    np.testing.assert_allclose(found, wins / wins.sum())
    np.testing.assert_array_equal(
        fixed(margins=np.array([3, 1, 2])).fit(X, COSTS).margins_, [3, 1, 2]
    )
    np.testing.assert_array_equal(fixed().fit(X, COSTS).margins_, np.ones(3))


def test_margins_by_name_are_those_of_an_array_up_to_the_unit_of_scores() -> None:
    by_name = fixed(margins="theory").fit(X, COSTS)
    by_value = fixed(margins=by_name.margins_ * len(by_name.margins_)).fit(X, COSTS)
    np.testing.assert_allclose(
        by_name.decision_function(X) * len(by_name.margins_), by_value.decision_function(X)
    )
    np.testing.assert_allclose(by_name.predict_proba(X), by_value.predict_proba(X))


@pytest.mark.parametrize("margins", ["uniform", "theory"])
@pytest.mark.parametrize("reward", ["gap", "complement", "sum"])
def test_a_row_of_weight_two_is_a_row_twice(reward: str, margins: str) -> None:
    times = 1 + np.arange(80) % 2
    weighted = fixed(reward=reward, margins=margins).fit(X, COSTS, sample_weight=times)
    repeated = fixed(reward=reward, margins=margins).fit(
        np.repeat(X, times, axis=0), np.repeat(COSTS, times, axis=0)
    )
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), atol=1e-5
    )


def test_weights_that_leave_nothing_in_a_fold_are_no_obstacle() -> None:
    weights = np.zeros(80)
    weights[3] = 1
    router = mild().fit(X, COSTS, sample_weight=weights)
    assert np.isfinite(router.decision_function(X)).all()


def test_costs_may_be_negative() -> None:
    for reward in ("gap", "sum", "complement"):
        assert fixed(reward=reward).fit(X, COSTS - 5).score(X, COSTS) > -0.4


def test_the_seed_decides_and_none_is_zero() -> None:
    fits = [
        mild(random_state=seed, topics=None, features="topics").fit(X, COSTS).decision_function(X)
        for seed in (0, 0, None, 1)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[0], fits[2])
    assert (fits[0] != fits[3]).any()


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_few_rows_give_the_best_single_expert(rows: int) -> None:
    router = MildRouter().fit(X[:rows], COSTS[:rows])
    assert router.features_ == "none"
    assert set(router.predict(X)) == {COSTS[:rows].mean(axis=0).argmin()}


def test_one_expert_is_always_chosen() -> None:
    router = MildRouter().fit(X, COSTS[:, :1])
    np.testing.assert_array_equal(router.predict(X), np.zeros(80))
    np.testing.assert_array_equal(router.predict_proba(X), np.ones((80, 1)))


def test_the_topics_given_stay_as_they_are() -> None:
    topics = TopicFeatures(clusters=(3,), random_state=0)
    assert fixed(features="topics", topics=topics).fit(X, COSTS).topics_.blocks_ == [3]
    assert not hasattr(topics, "weights_")


def test_held_out_posteriors_resemble_those_of_the_router() -> None:
    router = mild(features="raw", margins="uniform").fit(X, COSTS)
    held_out, own = router.cross_val_posterior(), router.predict_proba(X)
    np.testing.assert_allclose(held_out.sum(axis=1), 1)
    assert np.mean(held_out.argmax(axis=1) == own.argmax(axis=1)) > 0.6
    assert np.abs(held_out - own).max() > 0.01


def test_a_router_with_nothing_to_search_for_does_not_make_up_posteriors() -> None:
    router = fixed(cv=2).fit(X, COSTS)
    try:
        posterior = router.cross_val_posterior()
    except ArgumentError:
        return
    assert np.mean(posterior.argmax(axis=1) == router.predict(X)) > 0.6


def test_a_stored_router_does_not_make_up_posteriors(tmp_path: Path) -> None:
    loaded: Any = load_router(save_router(mild().fit(X, COSTS), tmp_path / "router"))
    with pytest.raises(ArgumentError, match="fit it again"):
        loaded.cross_val_posterior()


def test_a_network_finds_a_rule_that_no_line_draws() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(400, 2))
    costs = np.stack([np.abs(vectors[:, 0]) > 0.7, np.abs(vectors[:, 0]) <= 0.7], axis=1).astype(
        float
    )
    router = MildRouter(hidden_layer_sizes=(16,)).fit(vectors, costs)
    assert router.score(vectors, costs) > -0.15
    assert fixed().fit(vectors, costs).score(vectors, costs) < -0.25
    assert "network" in router.selection_


def test_a_network_leaves_no_posteriors_of_an_earlier_fit() -> None:
    router = mild().fit(X, COSTS).set_params(hidden_layer_sizes=(4,)).fit(X, COSTS)
    with pytest.raises(ArgumentError):
        router.cross_val_posterior()


@pytest.mark.parametrize("name", ["reward", "margins", "decision", "features"])
def test_an_unknown_word_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} must be one of .*, got 'best'"):
        mild(**{name: "best"}).fit(X, COSTS)


@pytest.mark.parametrize("alpha", [0, -1.0, "strong", None, np.nan])
def test_a_penalty_that_is_not_positive_is_refused(alpha: Any) -> None:
    with pytest.raises(ArgumentError, match="alpha must be positive or 'cv'"):
        mild(alpha=alpha).fit(X, COSTS)


@pytest.mark.parametrize("cv", [1, 0, -3])
def test_fewer_than_two_folds_are_refused(cv: int) -> None:
    with pytest.raises(ArgumentError, match="cv must be a number of folds, at least 2"):
        mild(cv=cv).fit(X, COSTS)


@pytest.mark.parametrize("margins", [[1.0, 2.0], [[1.0, 2.0, 3.0]], 1.0])
def test_margins_of_another_shape_are_refused(margins: Any) -> None:
    with pytest.raises(ShapeError, match=r"margins must be \(3,\)"):
        mild(margins=margins).fit(X, COSTS)


@pytest.mark.parametrize("margin", [0.0, -1.0, np.nan, np.inf])
def test_margins_that_are_not_positive_are_refused(margin: float) -> None:
    with pytest.raises(MarginError, match="positive and finite"):
        mild(margins=[1.0, margin, 1.0]).fit(X, COSTS)


def test_features_of_groups_need_groups() -> None:
    with pytest.raises(ArgumentError, match="needs groups"):
        mild(features="groups").fit(X, COSTS)
