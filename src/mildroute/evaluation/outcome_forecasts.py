"""A rough forecast of each expert's cost for doubly robust estimates, which tolerate its errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import Matrix
from mildroute.evaluation.logged_data import LoggedDecisions
from mildroute.evaluation.resampling import group_codes

__all__ = ["fit_outcome_model"]

_FOLDS = 5
_FEWEST = 10
_STRENGTH = 3.0


def fit_outcome_model(logged: LoggedDecisions) -> Matrix:
    """Return the expected cost of every expert on every decision.

    The estimates come from ridge regression on what was known about the request. No row is forecast
    by a regression trained on it or on a row of its group; otherwise the intervals would be too
    narrow.

    Args:
        logged: Decisions; without features, their probabilities are used instead.

    Returns:
        Shape (n, p).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> chosen = np.arange(400) % 2
        >>> costs, chances = np.where(chosen, 0.8, 0.2), np.full((400, 2), 0.5)
        >>> seen = LoggedDecisions(("a", "b"), chosen, costs, chances)
        >>> fit_outcome_model(seen).mean(axis=0).round(2)
        array([0.2, 0.8])
    """
    features = _standardized(logged.chances if logged.features is None else logged.features)
    codes = (
        np.arange(logged.rows) if logged.groups is None else group_codes(logged.groups, logged.rows)
    )
    fold = codes % _FOLDS
    forecasts = np.empty(logged.chances.shape)
    for expert in range(len(logged.experts)):
        own = logged.has_answer & (logged.chosen == expert)
        for part in range(_FOLDS):
            learn, held_out = own & (fold != part), fold == part
            forecasts[held_out, expert] = features[held_out] @ _fitted(
                features[learn], logged.costs[learn], 1 / logged.chances[learn, expert], logged
            )
    return np.clip(forecasts, np.nanmin(logged.costs), np.nanmax(logged.costs))


def _standardized(values: Matrix) -> Matrix:
    """Scale columns to mean 0 and deviation 1, and prepend a column of ones."""
    spread = values.std(axis=0)
    scaled = (values - values.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return np.column_stack([np.ones(len(values)), scaled])


def _fitted(
    known: Matrix, costs: NDArray[np.float64], weights: NDArray[np.float64], logged: LoggedDecisions
) -> NDArray[np.float64]:
    """Fit with inverse probability weights, so that the rows represent all requests.

    With few rows, use only the mean.
    """
    coefficients = np.zeros(known.shape[1])
    if len(costs) < _FEWEST:
        coefficients[0] = costs.mean() if len(costs) else np.nanmean(logged.costs)
        return coefficients
    weights = weights / weights.mean()
    penalty = np.diag([1e-6, *[_STRENGTH] * (known.shape[1] - 1)])
    weighted = known * weights[:, None]
    return np.asarray(
        np.linalg.solve(weighted.T @ known + penalty, weighted.T @ costs), dtype=np.float64
    )
