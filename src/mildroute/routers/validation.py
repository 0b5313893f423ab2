"""What a router's card says of its training: a hash of the data, and what was measured on held-out rows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.candidates import mean_and_error
from mildroute.routers.row_hash import hash_rows

__all__ = ["hash_of_data", "held_out_metrics"]

_NORMAL_95 = 1.959964


def hash_of_data(X: Any, costs: NDArray[np.float64]) -> str:
    """SHA-256 of the rows in their order; the same for dense and sparse vectors.

    Args:
        X: Vectors, shape (n, d).
        costs: Shape (n, p).

    Example:
        >>> hash_of_data(np.eye(2), np.eye(2)) == hash_of_data(np.eye(2), np.eye(2)) != hash_of_data(np.eye(2), 1 - np.eye(2))
        True
    """
    return hashlib.sha256(hash_rows(X).tobytes() + hash_rows(costs, seed=1).tobytes()).hexdigest()


def held_out_metrics(
    paid: NDArray[np.float64], single: NDArray[np.float64], costs: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> dict[str, dict[str, float]]:
    """Cost of a router on rows that it has not seen, beside the best single expert and the oracle, with 95% intervals.

    Args:
        paid: What the router paid on each held-out row, shape (n,).
        single: What the best single expert, found without that row's fold, paid on it, shape (n,).
        costs: Shape (n, p).
        sample_weight: Weight of each row, shape (n,), or none.

    Returns:
        For each metric its value and the ends of its interval.

    Example:
        >>> found = held_out_metrics(np.array([0.0, 0.0]), np.array([0.0, 1.0]), np.eye(2), None)
        >>> found["saved against the best single expert"]["value"]
        0.5
    """
    columns = {
        "mean cost": paid,
        "mean cost of the best single expert": single,
        "mean cost of the oracle": costs.min(axis=1),
        "saved against the best single expert": single - paid,
    }
    return {name: _with_interval(values, sample_weight) for name, values in columns.items()}


def _with_interval(values: NDArray[np.float64], sample_weight: NDArray[np.float64] | None) -> dict[str, float]:
    mean, error = mean_and_error(values, sample_weight)
    return {"value": mean, "low": mean - _NORMAL_95 * error, "high": mean + _NORMAL_95 * error}
