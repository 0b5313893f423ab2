"""What any router says of rows that it has not seen."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mildroute.routers.base import Matrix
from mildroute.routers.path import fold_of_rows

__all__ = ["fit_with", "held_out_posterior", "settled"]

_FOLDS = 5


def fit_with(router: Any, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None = None, groups: Any = None) -> Any:
    """Fit a router, with the weights and groups of the rows where there are any and its ``fit`` takes them.

    Example:
        >>> from mildroute.routers.knn import KnnRouter
        >>> fit_with(KnnRouter(), np.array([[0.0], [1.0]]), np.eye(2), groups=["law", "code"]).predict([[0.0]])
        array([1])
    """
    known = inspect.signature(router.fit).parameters
    given = {"sample_weight": sample_weight, "groups": groups}
    return router.fit(X, costs, **{name: value for name, value in given.items() if value is not None and name in known})


def held_out_posterior(router: Any, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None = None, groups: Any = None) -> Matrix:
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
        >>> held_out_posterior(RegressionRouter().fit(X, costs), X, costs)[:2].round(1)
        array([[1., 0.],
               [0., 1.]])
    """
    if hasattr(router, "held_out_posterior"):
        return np.asarray(router.held_out_posterior())
    if len(costs) == 1:
        return np.asarray(router.predict_proba(X))
    fold = fold_of_rows(len(costs), _FOLDS, seed=0)
    posterior = np.empty(costs.shape)
    for current in np.unique(fold):
        seen, unseen = fold != current, fold == current
        weight = None if sample_weight is None else sample_weight[seen]
        copy = fit_with(settled(router), X[seen], costs[seen], weight, None if groups is None else np.asarray(groups)[seen])
        posterior[unseen] = copy.predict_proba(X[unseen])
    return posterior


def settled(router: Any) -> Any:
    """An unfitted copy whose searched parameters are those found.

    Example:
        >>> from mildroute.routers.surrogates import TdefRouter
        >>> X, costs = np.array([[0.0], [1.0]] * 20), np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
        >>> settled(TdefRouter(reward="sum").fit(X, costs)).penalty != "cv"
        True
    """
    found = {name: getattr(router, f"{name}_", value) for name, value in router.get_params(deep=False).items() if _is_searched(value)}
    return clone(router).set_params(**found)


def _is_searched(value: Any) -> bool:
    return isinstance(value, str) and value == "cv"
