"""Cross-validation along a path of penalties, each solution the start of the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from mildroute.routers.design import Design, design_of
from mildroute.routers.solver import ROUGH, RowLoss, solve_linear

__all__ = ["PENALTIES", "Fold", "fold_of_rows", "held_out_scores", "prepare_folds"]

PENALTIES: tuple[float, ...] = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""Penalties tried, from strong to weak, in units of the features' variance."""


def fold_of_rows(rows: int, folds: int, seed: int | None) -> NDArray[np.intp]:
    """The fold in which each row is held out, shape (n,); balanced, shuffled by the seed.

    Example:
        >>> np.bincount(fold_of_rows(10, 5, seed=0))
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
    design: Design
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
        folds.append(Fold(seen, held_out, design_of(features[seen], weight, np.float32), weight))
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
        loss_of: Gives the loss of the rows with these indices; see :data:`~mildroute.routers.solver.RowLoss`.
        experts: Number of experts p.
        fold: Fold of each row, shape (n,).
        penalties: From strong to weak.
        sample_weight: Weight of each row, shape (n,).
        paid_by: Mean cost and its standard error of scores of shape (n, p); the path ends where the cost has risen by more than that.
        prepared: What :func:`prepare_folds` gives for these features, where several losses are tried on them.

    Returns:
        Shape (penalties, n, p), fewer penalties where the path ended early; solved well enough to compare.

    Example:
        >>> from mildroute.routers.logistic import deferral_row_loss
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
            fit = solve_linear(
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
