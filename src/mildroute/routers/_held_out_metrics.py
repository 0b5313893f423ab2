"""Metrics for a router's card, measured on held-out rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._search import _NORMAL_95
from mildroute.routers._search_result import mean_and_error


def held_out_metrics(
    paid: NDArray[np.float64],
    single: NDArray[np.float64],
    costs: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    clusters: NDArray[np.intp] | None = None,
) -> dict[str, dict[str, float]]:
    """Return the cost of a router on held-out rows with 95% intervals.

    The best single expert and the oracle are reported alongside it.

    Args:
        paid: Cost of the router's choice on each held-out row, shape (n,).
        single: Cost on each row of the best single expert, chosen without the row's fold, shape
            (n,).
        costs: Shape (n, p).
        sample_weight: Weight of each row, shape (n,), or `None`.
        clusters: Number of each row's cluster, shape (n,), or `None`.

    Returns:
        The value of each metric and the bounds of its interval.
    """
    columns = {
        "mean cost": paid,
        "mean cost of the best single expert": single,
        "mean cost of the oracle": costs.min(axis=1),
        "saved against the best single expert": single - paid,
    }
    return {
        name: _with_interval(values, sample_weight, clusters) for name, values in columns.items()
    }


def _with_interval(
    values: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    clusters: NDArray[np.intp] | None,
) -> dict[str, float]:
    mean, error = mean_and_error(values, sample_weight, clusters)
    return {"value": mean, "low": mean - _NORMAL_95 * error, "high": mean + _NORMAL_95 * error}
