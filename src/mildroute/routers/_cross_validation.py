"""Folds, the path of penalties over them, and held-out posteriors of any router."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold

from mildroute.routers._linear_model import ROUGH, RowLoss, WhitenedFeatures, minimize_linear, whiten
from mildroute.routers.base import Matrix

# Cross-validation along a path of penalties, each solution the start of the next.


PENALTIES: tuple[float, ...] = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""Penalties tried, from strong to weak, in units of the features' variance."""


def assign_folds(rows: int, folds: int, seed: int | None) -> NDArray[np.intp]:
    """The fold in which each row is held out, shape (n,); balanced, shuffled by the seed.

    Example:
        >>> np.bincount(assign_folds(10, 5, seed=0))
        array([2, 2, 2, 2, 2])
    """
    assigned = np.zeros(rows, dtype=np.intp)
    splitter = KFold(max(2, min(folds, rows)), shuffle=True, random_state=seed or 0)
    for fold, (_, held_out) in enumerate(splitter.split(np.empty(rows))):
        assigned[held_out] = fold
    return assigned


@dataclass(frozen=True)
class Fold:
    """The rows on which one fold's router is trained, prepared once for all that is tried on them.

    Example:
        >>> prepare_folds(np.eye(4), np.array([0, 0, 1, 1]))[0].held_out
        array([0, 1])
    """

    seen: NDArray[np.intp]
    held_out: NDArray[np.intp]
    design: WhitenedFeatures
    weight: NDArray[np.float64] | None


def prepare_folds(features: Any, fold: NDArray[np.intp], sample_weight: NDArray[np.float64] | None = None) -> list[Fold]:
    """Prepare the training rows of each fold.

    Example:
        >>> len(prepare_folds(np.eye(4), np.array([0, 0, 1, 1])))
        2
    """
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
    penalties: Sequence[float] = PENALTIES,
    sample_weight: NDArray[np.float64] | None = None,
    paid_by: Callable[[NDArray[np.float32]], tuple[float, float]] | None = None,
    prepared: list[Fold] | None = None,
) -> NDArray[np.float32]:
    """Scores of each row by a linear router that has not seen its fold, for each penalty.

    Args:
        features: Shape (n, d), dense or sparse.
        loss_of: Gives the loss of the rows with these indices; see :data:`~mildroute.routers._linear_model.RowLoss`.
        experts: Number of experts p.
        fold: Fold of each row, shape (n,).
        penalties: From strong to weak.
        sample_weight: Weight of each row, shape (n,).
        paid_by: Mean cost and its standard error of scores of shape (n, p); the path ends where the cost has risen by more than that.
        prepared: What :func:`prepare_folds` gives for these features, where several losses are tried on them.

    Returns:
        Shape (penalties, n, p), fewer penalties where the path ended early; solved well enough to compare.

    Example:
        >>> from mildroute.routers._linear_model import deferral_row_loss
        >>> X, rewards = np.array([[0.0], [1], [2], [3], [6], [7], [8], [9]]), np.eye(2).repeat(4, axis=0)
        >>> loss_of = lambda rows: deferral_row_loss(rewards[rows], np.ones(2))
        >>> held_out_scores(X, loss_of, 2, np.arange(8) % 2, penalties=[0.01])[0].argmax(axis=1)
        array([0, 0, 0, 0, 1, 1, 1, 1])
    """
    scores = np.empty((len(penalties), len(fold), experts), dtype=np.float32)
    folds = prepare_folds(features, fold, sample_weight) if prepared is None else prepared
    losses = [loss_of(part.seen) for part in folds]
    starts: list[NDArray[np.float64] | None] = [None] * len(folds)
    best = np.inf
    for step, penalty in enumerate(penalties):
        for number, (part, loss) in enumerate(zip(folds, losses, strict=True)):
            fit = minimize_linear(
                part.design, loss, experts, penalty=penalty, sample_weight=part.weight, start=starts[number], tolerance=ROUGH
            )
            starts[number] = fit.solution
            scores[step, part.held_out] = fit.scores(features[part.held_out])
        if paid_by is not None:
            cost, error = paid_by(scores[step])
            if cost > best + error:
                return scores[: step + 1]
            best = min(best, cost)
    return scores


# What any router says of rows that it has not seen.


_FOLDS = 5


def fit_with_metadata(router: Any, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None = None, groups: Any = None) -> Any:
    """Fit a router, with the weights and groups of the rows where there are any and its ``fit`` takes them.

    Example:
        >>> from mildroute.routers.knn import KNNRouter
        >>> fit_with_metadata(KNNRouter(), np.array([[0.0], [1.0]]), np.eye(2), groups=["law", "code"]).predict([[0.0]])
        array([1])
    """
    known = inspect.signature(router.fit).parameters
    given = {"sample_weight": sample_weight, "groups": groups}
    return router.fit(X, costs, **{name: value for name, value in given.items() if value is not None and name in known})


def cross_val_posterior(router: Any, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None = None, groups: Any = None) -> Matrix:
    """Posterior of each training row by a router that has not seen its fold.

    A router that keeps them by itself is asked; of others, copies are fitted on all folds but one. A parameter ``"cv"`` is not searched for
    again: the copies take what the router has found.

    Args:
        router: A fitted router.
        X: Its training rows, shape (n, d).
        costs: Their costs, shape (n, p).
        sample_weight: Their weights, shape (n,), or none.
        groups: Their groups, shape (n,), or none.

    Returns:
        Shape (n, p).

    Example:
        >>> from mildroute.routers.regression import RegressionRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> cross_val_posterior(RegressionRouter().fit(X, costs), X, costs)[:2].round(1)
        array([[1., 0.],
               [0., 1.]])
    """
    if hasattr(router, "cross_val_posterior"):
        return np.asarray(router.cross_val_posterior())
    if len(costs) == 1:
        return np.asarray(router.predict_proba(X))
    fold = assign_folds(len(costs), _FOLDS, seed=0)
    posterior = np.empty(costs.shape)
    for current in np.unique(fold):
        seen, unseen = fold != current, fold == current
        weight = None if sample_weight is None else sample_weight[seen]
        copy = fit_with_metadata(settled(router), X[seen], costs[seen], weight, None if groups is None else np.asarray(groups)[seen])
        posterior[unseen] = copy.predict_proba(X[unseen])
    return posterior


def settled(router: Any) -> Any:
    """An unfitted copy whose searched parameters are those found.

    Example:
        >>> from mildroute.routers.surrogate import TDEFRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> settled(TDEFRouter(reward="sum").fit(X, costs)).penalty != "cv"
        True
    """
    found = {name: getattr(router, f"{name}_", value) for name, value in router.get_params(deep=False).items() if _is_searched(value)}
    return clone(router).set_params(**found)


def _is_searched(value: Any) -> bool:
    return isinstance(value, str) and value == "cv"
