"""Cross-validation along a path of penalties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mildroute.exceptions import ArgumentError
from mildroute.routers._cross_validation import ALPHAS, held_out_scores, prepare_folds
from mildroute.routers._deferral_loss import deferral_row_loss
from mildroute.routers._folds import assign_folds, count_folds
from mildroute.routers._linear_model import RowLoss, minimize_linear
from mildroute.routers._whitening import whiten
from tests.support.routers import Array, problem


def losses(costs: Array) -> Callable[[Any], RowLoss]:
    rewards = costs.max(axis=1, keepdims=True) - costs
    return lambda rows: deferral_row_loss(rewards[rows], np.ones(costs.shape[1]))


def test_penalties_go_from_strong_to_weak() -> None:
    assert list(ALPHAS) == sorted(ALPHAS, reverse=True)


def test_folds_are_balanced_shuffled_and_decided_by_the_seed() -> None:
    fold = assign_folds(103, 5, seed=3)
    assert sorted(np.bincount(fold)) == [20, 20, 21, 21, 21]
    assert (np.diff(fold) < 0).sum() > 20
    np.testing.assert_array_equal(fold, assign_folds(103, 5, seed=3))
    assert (fold != assign_folds(103, 5, seed=4)).any()
    np.testing.assert_array_equal(assign_folds(103, 5, seed=None), assign_folds(103, 5, seed=0))


def test_there_are_no_more_folds_than_rows() -> None:
    np.testing.assert_array_equal(np.sort(assign_folds(3, 5, seed=0)), [0, 1, 2])


def test_every_row_is_held_out_once_and_seen_by_all_other_folds() -> None:
    X, _ = problem(3)
    weights = np.arange(80.0)
    folds = prepare_folds(X, assign_folds(80, 4, seed=0), weights)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([part.held_out for part in folds])), np.arange(80)
    )
    for part in folds:
        np.testing.assert_array_equal(
            np.sort(np.concatenate([part.seen, part.held_out])), np.arange(80)
        )
        np.testing.assert_array_equal(part.weight, weights[part.seen])
        assert part.design.columns.shape == (60, 5)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_row_has_no_say_in_its_own_scores(kind: Any) -> None:
    X, costs = problem(3)
    fold = assign_folds(80, 4, seed=0)
    changed = costs.copy()
    changed[fold == 2] = changed[fold == 2][:, ::-1]
    before, after = (
        held_out_scores(kind(X), losses(each), 3, fold, alphas=[0.01]) for each in (costs, changed)
    )
    np.testing.assert_array_equal(before[:, fold == 2], after[:, fold == 2])
    assert (before[:, fold != 2] != after[:, fold != 2]).any()


def test_scores_are_those_of_solutions_of_the_other_folds() -> None:
    X, costs = problem(3)
    fold = assign_folds(80, 2, seed=0)
    found = held_out_scores(X, losses(costs), 3, fold, alphas=[0.03, 0.01])
    for step, alpha in enumerate([0.03, 0.01]):
        for held_out in (fold == 0, fold == 1):
            seen = np.flatnonzero(~held_out)
            exact = minimize_linear(whiten(X[seen]), losses(costs)(seen), 3, alpha=alpha).scores(
                X[held_out]
            )
            centered = [
                scores - scores.mean(axis=1, keepdims=True)
                for scores in (found[step, held_out], exact)
            ]
            np.testing.assert_allclose(*centered, atol=0.02)


def test_scores_have_a_layer_for_each_penalty() -> None:
    X, costs = problem(11)
    found = held_out_scores(
        X, losses(costs), 11, assign_folds(80, 2, seed=0), alphas=[0.1, 0.03, 0.01]
    )
    assert found.shape == (3, 80, 11)
    assert found.dtype == np.float32


def test_prepared_folds_give_the_same_scores() -> None:
    X, costs = problem(3)
    fold = assign_folds(80, 2, seed=0)
    prepared = prepare_folds(X, fold)
    one, other = (
        held_out_scores(X, losses(costs), 3, fold, alphas=[0.01], prepared=folds)
        for folds in (None, prepared)
    )
    np.testing.assert_array_equal(one, other)


def test_weights_reach_the_solver() -> None:
    X, costs = problem(3)
    fold = np.repeat([0, 1], 40)
    times = np.arange(80) % 3
    weighted = held_out_scores(
        X, losses(costs), 3, fold, alphas=[0.01], sample_weight=times.astype(float)
    )[0]
    repeated = held_out_scores(
        np.repeat(X, times, axis=0),
        losses(np.repeat(costs, times, axis=0)),
        3,
        np.repeat(fold, times),
        alphas=[0.01],
    )[0]
    np.testing.assert_allclose(np.repeat(weighted, times, axis=0), repeated, atol=0.01)


@pytest.mark.parametrize(
    ("costs_of_steps", "kept"),
    [([3, 2, 1, 1], 4), ([1, 1.5, 0.5, 0.4], 4), ([1, 2.5, 0, 0], 2), ([1, 2, 2.1, 0], 3)],
)
def test_the_path_ends_where_the_cost_has_risen_by_more_than_its_error(
    costs_of_steps: list[float], kept: int
) -> None:
    X, costs = problem(3)
    steps = iter(costs_of_steps)
    found = held_out_scores(
        X,
        losses(costs),
        3,
        np.arange(80) % 2,
        alphas=[0.3, 0.1, 0.03, 0.01],
        paid_by=lambda _: (next(steps), 1.0),
    )
    assert len(found) == kept


def test_folds_may_be_given_as_pairs_of_rows() -> None:
    pairs = [([2, 3], [0, 1]), ([0, 1], [2, 3])]
    np.testing.assert_array_equal(assign_folds(4, pairs, seed=0), [0, 0, 1, 1])
    kept = np.array([True, False, True, True])
    np.testing.assert_array_equal(assign_folds(3, pairs, seed=0, kept=kept), [0, 1, 1])
    with pytest.raises(ArgumentError, match="cv must test each of 4 rows once, got 2 test rows"):
        assign_folds(4, [([2], [0]), ([0], [1])], seed=0)


@pytest.mark.parametrize("cv", [1, True, "5", None, [([0], [1])], [(1, 2, 3)]])
def test_folds_that_mean_nothing_are_rejected(cv: Any) -> None:
    with pytest.raises(ArgumentError, match="cv must be a number of folds, at least 2, or a list"):
        count_folds(cv)
