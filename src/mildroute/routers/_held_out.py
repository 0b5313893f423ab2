"""Posteriors of any router on its training rows, out of fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from mildroute.routers._folds import assign_folds, count_units
from mildroute.routers.training_rows import Matrix, TrainingRows

_FOLDS = 5


def cross_val_posterior(router: Any, rows: TrainingRows) -> Matrix:
    """Return the posterior of each training row by a router that has not seen its fold.

    If the router keeps such posteriors, they are returned. Otherwise copies of the router are
    fitted on all folds but one, with every ``"cv"`` parameter set to the value that the router
    selected.

    Args:
        router: A fitted router.
        rows: Its training rows.
    """
    if router.keeps_held_out_posterior:
        return np.asarray(router.cross_val_posterior())
    if count_units(rows.clusters, len(rows.costs)) == 1:
        return np.asarray(router.predict_proba(rows.X))
    fold = assign_folds(len(rows.costs), _FOLDS, seed=0, clusters=rows.clusters)
    posterior = np.empty(rows.costs.shape)
    for current in np.unique(fold):
        unseen = fold == current
        copy = router.with_selected_parameters()
        copy.fit_rows(rows.take(np.flatnonzero(~unseen), rows.X))
        posterior[unseen] = copy.predict_proba(rows.X[unseen])
    return posterior
