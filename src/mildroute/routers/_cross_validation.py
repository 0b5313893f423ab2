"""Cross-validation: scores along a path of penalties, and posteriors of any router."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._folds import assign_folds, count_units
from mildroute.routers._linear_model import ROUGH, RowLoss, minimize_linear
from mildroute.routers._whitening import WhitenedFeatures, whiten
from mildroute.routers.training_rows import Matrix, TrainingRows

# Penalties tried, from strong to weak, in units of the features' variance.
ALPHAS: tuple[float, ...] = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
# Number of folds for posteriors.
_FOLDS = 5


@dataclass(frozen=True)
class Fold:
    """The training rows of one fold, prepared once for all routers that are tried on them."""

    seen: NDArray[np.intp]
    held_out: NDArray[np.intp]
    design: WhitenedFeatures
    weight: NDArray[np.float64] | None


def prepare_folds(
    features: Any, fold: NDArray[np.intp], sample_weight: NDArray[np.float64] | None = None
) -> list[Fold]:
    """Prepare the training rows of each fold."""
    folds = []
    for current in np.unique(fold):
        seen, held_out = np.flatnonzero(fold != current), np.flatnonzero(fold == current)
        weight = None if sample_weight is None else sample_weight[seen]
        folds.append(Fold(seen, held_out, whiten(features[seen], weight, np.float32), weight))
    return folds


def held_out_scores(
    features: Any,
    loss_of: Callable[[NDArray[np.intp]], RowLoss],
    experts: int,
    fold: NDArray[np.intp],
    *,
    alphas: Sequence[float] = ALPHAS,
    sample_weight: NDArray[np.float64] | None = None,
    paid_by: Callable[[NDArray[np.float32]], tuple[float, float]] | None = None,
    prepared: list[Fold] | None = None,
) -> NDArray[np.float32]:
    """Return out-of-fold scores of a linear router for each penalty of a path.

    On each fold, the solution for one penalty is the starting point for the next one.

    Args:
        features: Shape (n, d), dense or sparse.
        loss_of: Returns the loss of the rows with the given indices; see
            :data:`~mildroute.routers._linear_model.RowLoss`.
        experts: Number of experts p.
        fold: Fold of each row, shape (n,).
        alphas: From strong to weak.
        sample_weight: Weight of each row, shape (n,).
        paid_by: Computes the mean cost and its standard error from scores of shape (n, p). The path
            ends once the cost exceeds the lowest one by more than that error.
        prepared: The result of :func:`prepare_folds` for these features, if several losses are
            tried on them.

    Returns:
        Shape (penalties, n, p), with fewer penalties if the path ended early. The solutions are
        precise enough to compare, not fully converged.
    """
    scores = np.empty((len(alphas), len(fold), experts), dtype=np.float32)
    folds = prepare_folds(features, fold, sample_weight) if prepared is None else prepared
    losses = [loss_of(part.seen) for part in folds]
    starts: list[NDArray[np.float64] | None] = [None] * len(folds)
    best = np.inf
    for step, alpha in enumerate(alphas):
        for number, (part, loss) in enumerate(zip(folds, losses, strict=True)):
            fit = minimize_linear(
                part.design,
                loss,
                experts,
                alpha=alpha,
                sample_weight=part.weight,
                start=starts[number],
                tolerance=ROUGH,
            )
            starts[number] = fit.solution
            scores[step, part.held_out] = fit.scores(features[part.held_out])
        if paid_by is not None:
            cost, error = paid_by(scores[step])
            if cost > best + error:
                return scores[: step + 1]
            best = min(best, cost)
    return scores


def cross_val_posterior(router: Any, rows: TrainingRows) -> Matrix:
    """Return out-of-fold posteriors of the training rows.

    If the router kept its posteriors, they are returned. Otherwise, copies of the router are fitted
    on all folds but one, with every ``"cv"`` parameter set to the value that the router selected.
    If all rows are in one cluster, there are no folds, and the router's own posteriors are
    returned.

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
        is_held_out = fold == current
        copy = router.with_selected_parameters()
        copy.fit_rows(rows.take(np.flatnonzero(~is_held_out), rows.X))
        posterior[is_held_out] = copy.predict_proba(rows.X[is_held_out])
    return posterior
