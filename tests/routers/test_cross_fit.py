"""What a router says of rows that it has not seen."""

from __future__ import annotations

import numpy as np

from mildroute.routers._cross_validation import assign_folds, cross_val_posterior
from mildroute.routers.base import RouterMixin
from mildroute.routers.knn import KNNRouter
from routers.every_router import SMALL_MILD, problem

X, COSTS = problem(2)


def test_no_row_is_judged_by_a_router_that_has_seen_it() -> None:
    """The nearest neighbor of a row that was seen is the row itself, which then costs what it
    costs; unseen rows have others.
    """
    router = KNNRouter(n_neighbors=1, weights="uniform").fit(X, COSTS)
    held_out, fold = cross_val_posterior(router, X, COSTS), assign_folds(len(X), 5, seed=0)
    for row in range(0, len(X), 9):
        others = np.flatnonzero(fold != fold[row])
        near = others[np.linalg.norm(X[others] - X[row], axis=1).argmin()]
        assert held_out[row].argmax() == COSTS[near].argmin()


def test_what_was_searched_for_is_kept_and_a_router_that_knows_is_asked() -> None:
    router = KNNRouter().fit(X, COSTS)
    fixed = KNNRouter(n_neighbors=router.n_neighbors_, weights=router.weights_).fit(X, COSTS)
    np.testing.assert_array_equal(
        cross_val_posterior(router, X, COSTS), cross_val_posterior(fixed, X, COSTS)
    )
    mild = SMALL_MILD.fit(X, COSTS)
    np.testing.assert_array_equal(cross_val_posterior(mild, X, COSTS), mild.cross_val_posterior())


def test_one_row_is_enough() -> None:
    assert cross_val_posterior(
        KNNRouter(n_neighbors=1).fit(X[:1], COSTS[:1]), X[:1], COSTS[:1]
    ).shape == (
        1,
        2,
    )
    assert not hasattr(RouterMixin, "cross_val_posterior")
