"""Tests of out-of-fold posteriors."""

from __future__ import annotations

import numpy as np

from mildroute.routers._cross_validation import cross_val_posterior
from mildroute.routers._folds import assign_folds
from mildroute.routers.knn import KNNRouter
from mildroute.routers.training_rows import TrainingRows
from tests.support.routers import SMALL_MILD, problem

X, COSTS = problem(2)
ROWS = TrainingRows(X, COSTS)


def test_no_row_is_judged_by_a_router_that_has_seen_it() -> None:
    """The nearest neighbor of a row that was seen is the row itself, which then costs what it
    costs; unseen rows have others.
    """
    router = KNNRouter(n_neighbors=1, weights="uniform").fit(X, COSTS)
    held_out = cross_val_posterior(router, ROWS)
    fold = assign_folds(len(X), 5, seed=0)
    for row in range(0, len(X), 9):
        others = np.flatnonzero(fold != fold[row])
        near = others[np.linalg.norm(X[others] - X[row], axis=1).argmin()]
        assert held_out[row].argmax() == COSTS[near].argmin()


def test_what_was_searched_for_is_kept_and_a_router_that_knows_is_asked() -> None:
    router = KNNRouter().fit(X, COSTS)
    fixed = KNNRouter(n_neighbors=router.n_neighbors_, weights=router.weights_).fit(X, COSTS)
    np.testing.assert_array_equal(
        cross_val_posterior(router, ROWS), cross_val_posterior(fixed, ROWS)
    )
    mild = SMALL_MILD.fit(X, COSTS)
    np.testing.assert_array_equal(cross_val_posterior(mild, ROWS), mild.cross_val_posterior())


def test_one_row_is_enough() -> None:
    one = TrainingRows(X[:1], COSTS[:1])
    assert cross_val_posterior(KNNRouter(n_neighbors=1).fit_rows(one), one).shape == (1, 2)
