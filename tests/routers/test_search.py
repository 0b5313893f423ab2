"""What the search tries, and how it measures it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mildroute.routers._rewards import (
    THEORY,
    WINNER_COUNTS,
    MarginRule,
    margins_by,
    scaled_rewards,
)
from mildroute.routers._search import (
    REGRESSION,
    SearchSpace,
    best_single,
    constant_scores,
    margin_specs,
    search,
)
from mildroute.routers._search_result import SearchResult
from tests.support.routers import problem

X, COSTS = problem(3)
PATH = (0.1, 0.03, 0.01, 0.003)


def small_problem(**settings: Any) -> SearchSpace:
    defaults = {
        "views": {"raw": X},
        "costs": COSTS,
        "fold": np.arange(80) % 2,
        "decision": "consistent",
        "rewards": ("gap", "complement", "sum"),
        "margins": {"uniform": None, "theory": THEORY},
        "alphas": PATH,
    }
    return SearchSpace(**{**defaults, **settings})  # type: ignore[arg-type]


def tried(candidates: list[SearchResult], **what: Any) -> list[float]:
    return [
        one.alpha
        for one in candidates
        if all(getattr(one, name) == value for name, value in what.items())
    ]


@pytest.mark.parametrize("reward", ["gap", "complement", "sum"])
@pytest.mark.parametrize("shift", [0.0, -5.0])
def test_the_mean_reward_of_a_row_is_one(reward: str, shift: float) -> None:
    rewards = scaled_rewards(COSTS + shift, reward, None)
    assert rewards.sum(axis=1).mean() == pytest.approx(1)
    assert rewards.min() >= 0
    for row, costs in zip(rewards, COSTS, strict=True):
        np.testing.assert_array_equal(np.argsort(-row), np.argsort(costs))


def test_the_unit_of_the_costs_does_not_move_the_rewards() -> None:
    for reward in ("gap", "sum"):
        np.testing.assert_allclose(
            scaled_rewards(7 * COSTS, reward, None), scaled_rewards(COSTS, reward, None)
        )


def test_the_mean_reward_is_weighted() -> None:
    weights = np.arange(80.0)
    assert np.average(
        scaled_rewards(COSTS, "gap", weights).sum(axis=1), weights=weights
    ) == pytest.approx(1)


def test_experts_that_cost_the_same_everywhere_have_equal_rewards() -> None:
    np.testing.assert_allclose(scaled_rewards(np.ones((4, 2)), "gap", None), 0.5)


@pytest.mark.parametrize("counts", ["reward_mass", "decided_wins"])
def test_margins_are_roots_of_the_counts(counts: Any) -> None:
    """27, 8 and 1 rows have one right expert: roots 3, 2, 1.

    Rows on which all experts are equal have no gap reward, so they count for nobody.
    """
    rewards = scaled_rewards(
        1 - np.vstack([np.repeat(np.eye(3), [27, 8, 1], axis=0), np.ones((5, 3))]), "gap", None
    )
    np.testing.assert_allclose(
        margins_by(MarginRule(counts, 1 / 3), rewards), np.array([3, 2, 1]) / 6
    )


def test_the_search_divides_margins_by_their_mean() -> None:
    assert small_problem().rho("theory", "gap").mean() == pytest.approx(1)


def test_a_row_of_weight_two_wins_twice() -> None:
    times = np.arange(80) % 3
    weighted = small_problem(sample_weight=times.astype(float)).rho("theory", "gap")
    repeated = small_problem(costs=np.repeat(COSTS, times, axis=0)).rho("theory", "gap")
    np.testing.assert_allclose(weighted, repeated)


def test_given_margins_are_taken_as_they_are() -> None:
    given = np.array([5.0, 1, 2])
    assert small_problem(fixed_margins=given, margins={"given": None}).rho("given", "gap") is given
    np.testing.assert_array_equal(small_problem().rho("uniform", "gap"), np.ones(3))


def test_equal_margins_are_tried_before_the_theory() -> None:
    names = list(margin_specs("cv", (100, 3)))
    assert names[0] == "uniform"
    assert len(names) > 1
    assert list(margin_specs("uniform", (100, 3))) == ["uniform"]
    assert margin_specs("theory", (100, 3)) == {"theory": THEORY}
    assert margin_specs("winner_counts", (100, 3)) == {"winner_counts": WINNER_COUNTS}


def test_the_default_search_tries_powers_of_decided_wins() -> None:
    rules = margin_specs("cv", (100, 3))
    assert list(rules) == [
        "uniform",
        "wins^0.17+0",
        "wins^-0.17+0",
        "wins^0.33+0",
        "wins^0.33+0.3",
        "wins^0.33+1",
    ]
    assert {rule.counts for rule in rules.values() if rule is not None} == {"decided_wins"}


def test_differing_margins_are_not_tried_where_that_would_take_long() -> None:
    assert list(margin_specs("cv", (50_000_000 // 9 + 1, 3))) == ["uniform"]
    assert len(margin_specs("cv", (50_000_000 // 9, 3))) > 1


@pytest.mark.parametrize("reward", ["gap", "complement", "sum"])
def test_a_router_that_sees_nothing_prefers_the_lowest_mean_cost(reward: str) -> None:
    seen = np.arange(80) < 50
    scores = constant_scores(small_problem(rewards=(reward,)), reward, seen)
    np.testing.assert_array_equal(np.argsort(-scores), np.argsort(COSTS[seen].mean(axis=0)))


def test_a_router_that_sees_nothing_minds_the_weights() -> None:
    weights = (COSTS[:, 2] > 0.6).astype(float)
    scores = constant_scores(small_problem(sample_weight=weights), "gap", np.ones(80, dtype=bool))
    np.testing.assert_array_equal(np.argsort(-scores), np.argsort(COSTS[weights > 0].mean(axis=0)))


def test_one_expert_leaves_no_choice() -> None:
    np.testing.assert_array_equal(
        constant_scores(small_problem(costs=COSTS[:, :1]), "gap", np.ones(80, dtype=bool)), [0]
    )


def test_the_best_single_expert_is_found_on_the_other_folds() -> None:
    costs = np.array([[0.0, 1], [0, 1], [1, 0], [5, 0]])
    fold = np.array([0, 0, 1, 1])
    found = best_single(small_problem(costs=costs, fold=fold))
    np.testing.assert_array_equal(
        found.paid, [1, 1, 1, 5]
    )  # each fold trusts the expert of the other, and errs
    assert (found.view, found.alpha, found.rank) == ("none", np.inf, 0)


def test_without_views_the_best_single_expert_is_found_on_all_rows() -> None:
    found = best_single(small_problem(views={}, fold=np.zeros(80, dtype=int)))
    np.testing.assert_array_equal(found.paid, COSTS[:, COSTS.mean(axis=0).argmin()])


def test_the_best_single_expert_and_tdef_are_always_tried() -> None:
    found = search(small_problem())
    assert found[0].view == "none"
    assert set(tried(found, view="raw", reward="complement", margins="uniform")) == set(
        tried(found, view="raw", reward="gap", margins="uniform")
    )


def test_without_a_choice_of_rewards_every_view_is_tried_along_the_path() -> None:
    found = search(small_problem(views={"raw": X, "topics": X[:, :2]}, rewards=("gap",)))
    for view in ("raw", "topics"):
        alphas = tried(found, view=view, reward="gap", margins="uniform")
        assert alphas == list(PATH[: len(alphas)])
        assert len(alphas) > 1


def test_cost_regression_tells_which_view_is_worth_the_surrogate_losses() -> None:
    found = search(
        small_problem(views={"raw": X, "topics": np.random.default_rng(5).normal(size=(80, 2))})
    )
    regressions = {one.view: one.paid.mean() for one in found if one.reward == REGRESSION}
    assert set(regressions) == {"raw", "topics", "average"}
    assert regressions["raw"] < regressions["topics"]
    assert len(tried(found, view="raw", reward="gap", margins="uniform")) > 1
    assert tried(found, view="topics", reward="gap") == []


def test_other_rewards_and_margins_are_tried_on_the_best_view_near_its_best_penalty() -> None:
    found = search(
        small_problem(views={"raw": X, "topics": np.random.default_rng(5).normal(size=(80, 2))})
    )
    first = [
        one for one in found[1:] if one.reward in ("gap", "complement") and one.margins == "uniform"
    ]
    best = min(first, key=lambda one: one.paid.mean())
    place = PATH.index(best.alpha)
    assert best.view == "raw"
    assert tried(found, reward="sum", view="raw") == list(PATH[max(0, place - 1) : place + 2])
    assert tried(found, margins="theory") == [best.alpha]
    assert tried(found, view="topics", reward="sum") == []


def test_a_single_reward_and_equal_margins_leave_the_views_and_the_path() -> None:
    found = search(small_problem(rewards=("sum",), margins={"uniform": None}))
    assert {(one.view, one.reward, one.margins) for one in found} == {
        ("none", "sum", "uniform"),
        ("raw", "sum", "uniform"),
    }


@pytest.mark.parametrize("experts", [3, 11])
def test_where_there_is_no_rule_no_candidate_seems_better_than_chance(experts: int) -> None:
    """Costs are uniform noise, so whatever does not know the costs of a row pays one half on it."""
    paid = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        noise = {
            "views": {"raw": random.normal(size=(80, 5))},
            "costs": random.uniform(size=(80, experts)),
            "fold": np.arange(80) % 5,
        }
        found = search(
            small_problem(
                **noise, rewards=("gap",), margins={"uniform": None}, alphas=(0.03, 0.003)
            )
        )
        paid.append(np.mean([one.paid.mean() for one in found[1:]]))
    assert np.mean(paid) == pytest.approx(0.5, abs=0.025)


def test_what_a_candidate_pays_is_the_cost_of_its_scores() -> None:
    for one in search(small_problem(rewards=("gap",))):
        if one.rank < 2:
            np.testing.assert_array_equal(one.paid, COSTS[np.arange(80), one.scores.argmax(axis=1)])


def test_rows_of_weight_zero_do_not_choose_the_view() -> None:
    """The second view is right about the rows that count and wrong about all others.

    The first is the other way round.
    """
    counts, side = np.arange(80) % 4 == 0, X[:, :1]
    costs = np.hstack([side > 0, side <= 0]).astype(float)
    vague = np.where(
        counts[:, None], side + np.random.default_rng(0).normal(scale=3, size=(80, 1)), side
    )
    settings: dict[str, Any] = {
        "costs": costs,
        "fold": np.arange(80) // 8 % 2,
        "rewards": ("gap", "sum"),
        "margins": {"uniform": None},
    }
    views = {"raw": vague, "topics": np.where(counts[:, None], side, -side)}
    found = search(
        small_problem(views=views, sample_weight=np.where(counts, 1.0, 1e-9), **settings)
    )
    assert {one.view for one in found if one.reward == "sum"} == {"topics"}
