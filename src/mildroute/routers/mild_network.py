"""The deferral loss under a network instead of a linear map, stopped early by held-out deferral loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.batches import batches_of
from mildroute.routers.candidates import paid_on_held_out
from mildroute.routers.descent import Schedule, load_torch
from mildroute.routers.network import layer_sizes, start_layers, train_layers

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["fit_network"]


def fit_network(
    X: Any,
    costs: NDArray[np.float64],
    rewards: NDArray[np.float64],
    rho: NDArray[np.float64],
    *,
    hidden: Sequence[int],
    decision: str,
    weights: NDArray[np.float64] | None,
    seed: int,
) -> list[NDArray[np.float64]]:
    """Weights and biases, in turn, of a network whose outputs are scores.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        costs: Shape (n, p).
        rewards: Shape (n, p).
        rho: Margins, shape (p,).
        hidden: Units of each hidden layer.
        decision: How scores become a choice, to stop by its cost.
        weights: Weight of each row, shape (n,), or none.
        seed: Of the start, the split and the order of rows.

    Example:
        >>> X = np.linspace(-1, 1, 64)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> layers = fit_network(X, costs, 1 - costs, np.ones(2), hidden=(4,), decision="argmax", weights=None, seed=0)
        >>> [array.shape for array in layers]
        [(1, 4), (4,), (4, 2), (2,)]
    """
    torch = load_torch()
    from mildroute.core.surprise import row_losses

    share = np.ones(len(costs)) if weights is None else weights / weights.mean()
    shares, margins, targets = (torch.from_numpy(array).float() for array in (share, rho, rewards))

    def row_loss(scores: Tensor, rows: NDArray[np.intp]) -> Tensor:
        return row_losses(scores, targets[rows], margins, 1.0) * shares[rows]

    def risk(scores: NDArray[Any], rows: NDArray[np.intp]) -> float:
        paid = paid_on_held_out(scores, costs[rows], rho, decision)
        return round(float(np.average(paid, weights=share[rows] if share[rows].any() else None)), 12)

    batches = batches_of(X)
    start = start_layers([X.shape[1], *layer_sizes(hidden), costs.shape[1]], seed)
    start[-1] = np.log(np.maximum(np.average(rewards, axis=0, weights=share), 1e-6))
    layers = train_layers(batches, row_loss, risk, start, Schedule(1e-3, 1e-4, 100, seed))
    layers[0], layers[1] = batches.for_raw_rows(layers[0], layers[1])
    return layers
