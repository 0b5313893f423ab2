"""A rough forecast of what each expert would have cost, for doubly robust estimates: these stay right where it is wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.checks import Matrix
from mildroute.evaluation.logged import Logged
from mildroute.evaluation.replicates import group_codes

__all__ = ["forecast_costs"]

_FOLDS = 5
_FEWEST = 10
_STRENGTH = 3.0


def forecast_costs(logged: Logged) -> Matrix:
    """Expected cost of every expert on every decision, by ridge regression on what was known of the request.

    No row is forecast by a regression that has seen it or a row of its group: with forecasts that have, the intervals would be too narrow.

    Args:
        logged: Decisions; without features, their chances are what is known.

    Returns:
        Shape (n, p).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> seen = Logged(("a", "b"), np.arange(400) % 2, np.where(np.arange(400) % 2, 0.8, 0.2), np.full((400, 2), 0.5))
        >>> forecast_costs(seen).mean(axis=0).round(2)
        array([0.2, 0.8])
    """
    known = _standardised(logged.chances if logged.features is None else logged.features)
    codes = np.arange(logged.rows) if logged.groups is None else group_codes(logged.groups, logged.rows)
    fold = codes % _FOLDS
    forecasts = np.empty(logged.chances.shape)
    for expert in range(len(logged.experts)):
        own = logged.has_answer & (logged.chosen == expert)
        for part in range(_FOLDS):
            learn, told = own & (fold != part), fold == part
            forecasts[told, expert] = known[told] @ _fitted(known[learn], logged.costs[learn], 1 / logged.chances[learn, expert], logged)
    return np.clip(forecasts, np.nanmin(logged.costs), np.nanmax(logged.costs))


def _standardised(values: Matrix) -> Matrix:
    """Columns of mean 0 and deviation 1, after a column of ones."""
    spread = values.std(axis=0)
    scaled = (values - values.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return np.column_stack([np.ones(len(values)), scaled])


def _fitted(known: Matrix, costs: NDArray[np.float64], weights: NDArray[np.float64], logged: Logged) -> NDArray[np.float64]:
    """Weighted by the inverse chances, so that the rows stand for all requests; of a few rows the mean alone."""
    coefficients = np.zeros(known.shape[1])
    if len(costs) < _FEWEST:
        coefficients[0] = costs.mean() if len(costs) else np.nanmean(logged.costs)
        return coefficients
    weights = weights / weights.mean()
    penalty = np.diag([1e-6, *[_STRENGTH] * (known.shape[1] - 1)])
    weighted = known * weights[:, None]
    return np.asarray(np.linalg.solve(weighted.T @ known + penalty, weighted.T @ costs), dtype=np.float64)
