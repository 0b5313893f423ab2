"""Imputation of the costs of experts that were not called, by doubly robust estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, CostError
from mildroute.routers._folds import assign_folds
from mildroute.routers._ridge import ridge
from mildroute.routers._shared_ridge import COMMON_PENALTY, EXPERT_PENALTY, SharedRidge
from mildroute.routers.base import check_costs
from mildroute.routers.online import OnlineRouter
from mildroute.routers.training_rows import Matrix

__all__ = ["FOLDS", "check_asked", "impute_costs"]

# Maximum weight of a residual: a small bias is better than one row that counts for hundreds.
_MAX_WEIGHT = 10.0
FOLDS = 5
_FEWEST = 20


def impute_costs(
    X: Any,
    costs: Any,
    propensities: Any = None,
    groups: Any = None,
    *,
    max_weight: float = _MAX_WEIGHT,
    random_state: int | None = None,
) -> Matrix:
    """Return doubly robust costs of every expert on every row, for any router to learn from.

    A cost is the prediction of a regression on other rows plus, if the expert was called, the
    residual divided by the probability of the call. Experts that were called on all rows help to
    predict the others.

    Args:
        X: Vectors, shape (n, d).
        costs: Shape (n, p), NaN where an expert was not called.
        propensities: Probability of calling each expert, shape (n, p); NaN if nothing was drawn at
            random, such as on a request that named its expert. If `None`, all are unknown, and an
            expert's probability is its share of the rows.
        groups: Group of each row, shape (n,), or `None`. Rows of a group are not used to predict
            one another.
        max_weight: Maximum weight of a residual.
        random_state: Seed of the folds.

    Returns:
        Shape (n, p). Rows on which all experts were certain to be called keep the observed costs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, asked = rng.normal(size=(600, 2)), rng.random((600, 2)) < 0.5
        >>> costs = X + [0.0, 1.0]
        >>> imputed = impute_costs(X, np.where(asked, costs, np.nan), np.full((600, 2), 0.5))
        >>> abs((imputed - costs).mean(axis=0)) < 0.1
        array([ True,  True])
    """
    observed = check_costs(costs, partial=True)
    asked = ~np.isnan(observed)
    check_asked(asked)
    propensities = _propensities(asked, propensities)
    expected = _expected(X, observed, asked, propensities, groups, random_state)
    weights = np.where(asked, np.minimum(1 / np.where(asked, propensities, 1.0), max_weight), 0.0)
    return np.asarray(expected + weights * np.where(asked, observed - expected, 0.0))


def check_asked(asked: NDArray[np.bool_], names: Any = None) -> None:
    """Raise an error if an expert was called too rarely to estimate its costs."""
    counts = asked.sum(axis=0)
    rarest = int(counts.argmin())
    if counts[rarest] < min(_FEWEST, len(asked)):
        name = rarest if names is None else repr(names[rarest])
        raise CostError(
            f"each expert must have been asked on at least {_FEWEST} rows, got {counts[rarest]} for"
            f" expert {name}; ask it more often (exploration, sampling, collect), or leave it out."
        )


def _propensities(asked: NDArray[np.bool_], chances: Any) -> Matrix:
    if chances is None:
        return np.broadcast_to(asked.mean(axis=0), asked.shape)
    propensities = np.asarray(chances, dtype=np.float64)
    if propensities.shape != asked.shape:
        raise ArgumentError(
            f"propensities must have the shape of costs, {asked.shape}, got {propensities.shape}."
        )
    propensities = np.where(np.isnan(propensities), 1.0, propensities)
    if (
        (propensities < 0).any()
        or (propensities > 1 + 1e-6).any()
        or (asked & (propensities <= 0)).any()
    ):
        raise ArgumentError(
            "propensities must lie between 0 and 1, and above 0 where an expert was asked, got"
            f" {propensities.min():g} to {propensities.max():g}; check the log."
        )
    return propensities


def _expected(
    X: Any,
    costs: Matrix,
    asked: NDArray[np.bool_],
    propensities: Matrix,
    groups: Any,
    random_state: int | None,
) -> Matrix:
    """Return cross-fitted predictions of all costs, shape (n, p)."""
    template = OnlineRouter(random_state=random_state or 0)
    template._learn_features(X)
    features = template._features(X)
    # Rows of a group are held out together.
    codes = np.arange(len(costs)) if groups is None else np.unique(groups, return_inverse=True)[1]
    fold = assign_folds(int(codes.max()) + 1, FOLDS, seed=random_state or 0)[codes]
    parts = []
    total = SharedRidge(features.shape[1], costs.shape[1])
    for current in range(fold.max() + 1):
        part = SharedRidge(features.shape[1], costs.shape[1])
        part.add(features[fold == current], costs[fold == current])
        total.add(features[fold == current], costs[fold == current])
        parts.append(part)
    expected = np.empty_like(costs)
    for current, part in enumerate(parts):
        weights, _, _ = total.without(part).solve(COMMON_PENALTY, EXPERT_PENALTY)
        expected[fold == current] = features[fold == current] @ weights.T
    always_asked = np.asarray((propensities >= 1).all(axis=0) & asked.all(axis=0))
    if always_asked.any() and not always_asked.all():
        _add_residuals(expected, costs, asked, always_asked, fold)
    return expected


def _add_residuals(
    expected: Matrix,
    costs: Matrix,
    asked: NDArray[np.bool_],
    always_asked: NDArray[np.bool_],
    fold: NDArray[np.intp],
) -> None:
    """Predict the other experts' residuals from those of the experts called on every row."""
    residuals = costs - expected
    for expert in np.flatnonzero(~always_asked):
        for current in range(fold.max() + 1):
            rows, at = asked[:, expert] & (fold != current), fold == current
            regression = ridge(residuals[rows][:, always_asked], residuals[rows][:, [expert]])
            expected[at, expert] += regression.predict(residuals[at][:, always_asked])[:, 0]
