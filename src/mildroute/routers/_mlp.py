"""Multilayer perceptrons as arrays, trained with torch and early stopping, applied with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mildroute._optional import load_torch
from mildroute.exceptions import ArgumentError
from mildroute.routers._adam import Arrays, TrainingConfig, holdout_split, train_adam
from mildroute.routers._batches import StandardizedBatches, batches_of
from mildroute.routers._search_result import held_out_costs

if TYPE_CHECKING:
    from torch import Tensor


def layer_sizes(hidden: Sequence[int]) -> list[int]:
    """Check hidden layer sizes and return them as integers."""
    sizes = [int(size) for size in hidden]
    if any(size < 1 for size in sizes):
        raise ArgumentError(
            f"hidden_layer_sizes must be at least 1, got {hidden!r}; an empty tuple builds a linear"
            " model."
        )
    return sizes


def start_layers(sizes: Sequence[int], seed: int) -> Arrays:
    """Return initial weights and biases in alternation.

    The last layer is zero, so that every network starts as a constant function.
    """
    random = np.random.default_rng(seed)
    layers: Arrays = []
    for size, following in pairwise(sizes):
        layers += [random.normal(size=(size, following)) * np.sqrt(2 / size), np.zeros(following)]
    layers[-2] = np.zeros_like(layers[-2])
    return layers


def train_layers(
    batches: StandardizedBatches,
    row_loss: Callable[[Tensor, NDArray[np.intp]], Tensor],
    risk: Callable[[NDArray[Any], NDArray[np.intp]], float],
    start: Arrays,
    schedule: TrainingConfig,
) -> Arrays:
    """Minimize the mean of ``row_loss``, with early stopping by ``risk`` on a tenth of the rows.

    Args:
        batches: Rows to train on.
        row_loss: Maps outputs (b, p) and the indices of their rows to a loss per row, shape (b,).
        risk: Maps outputs of held-out rows and their indices to the early-stopping metric.
        start: Weights and biases in alternation.
        schedule: Hyperparameters of the training.

    Returns:
        Weights and biases in alternation, for the rows that the batches return.
    """
    torch = load_torch()
    seen, held_out = holdout_split(batches.features.shape[0], schedule.seed)
    held_out_batch = batches.take(held_out)

    def loss(layers: Sequence[Tensor], rows: NDArray[np.intp]) -> Tensor:
        return row_loss(torch_forward(layers, torch.from_numpy(batches.take(rows))), rows).mean()

    def held_out_risk(layers: Arrays) -> float:
        return risk(forward(layers, held_out_batch), held_out)

    return train_adam(start, loss, held_out_risk, seen, schedule)


def torch_forward(layers: Sequence[Tensor], vectors: Tensor) -> Tensor:
    """Compute :func:`forward` for tensors."""
    torch = load_torch()
    hidden = vectors
    for index in range(0, len(layers), 2):
        hidden = torch.addmm(layers[index + 1], hidden.relu() if index else hidden, layers[index])
    return hidden


def forward(layers: Sequence[NDArray[Any]], X: Any) -> NDArray[Any]:
    """Return the outputs, shape (n, p), of a network given as alternating weights and biases."""
    hidden = X
    for index in range(0, len(layers), 2):
        hidden = (
            np.asarray((np.maximum(hidden, 0) if index else hidden) @ layers[index])
            + layers[index + 1]
        )
    return np.asarray(hidden)


def fit_network(
    X: Any,
    costs: NDArray[np.float64],
    rewards: NDArray[np.float64],
    rho: NDArray[np.float64],
    *,
    hidden_layer_sizes: Sequence[int],
    decision: str,
    weights: NDArray[np.float64] | None,
    seed: int,
) -> list[NDArray[np.float64]]:
    """Return alternating weights and biases of a network whose outputs are scores.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        costs: Shape (n, p).
        rewards: Shape (n, p).
        rho: Margins, shape (p,).
        hidden_layer_sizes: Units of each hidden layer.
        decision: Rule that turns scores into a choice; its cost is the early-stopping metric.
        weights: Weight of each row, shape (n,), or `None`.
        seed: Seed of the start, the split and the order of rows.
    """
    torch = load_torch()
    from mildroute.losses._logsumexp import row_losses

    share = np.ones(len(costs)) if weights is None else weights / weights.mean()
    shares, margins, targets = (torch.from_numpy(array).float() for array in (share, rho, rewards))

    def row_loss(scores: Tensor, rows: NDArray[np.intp]) -> Tensor:
        return row_losses(scores, targets[rows], margins, 1.0) * shares[rows]

    def risk(scores: NDArray[Any], rows: NDArray[np.intp]) -> float:
        paid = held_out_costs(scores, costs[rows], rho, decision)
        return round(
            float(np.average(paid, weights=share[rows] if share[rows].any() else None)), 12
        )

    batches = batches_of(X)
    start = start_layers([X.shape[1], *layer_sizes(hidden_layer_sizes), costs.shape[1]], seed)
    start[-1] = np.log(np.maximum(np.average(rewards, axis=0, weights=share), 1e-6))
    layers = train_layers(batches, row_loss, risk, start, TrainingConfig(1e-3, 1e-4, 100, seed))
    layers[0], layers[1] = batches.for_raw_rows(layers[0], layers[1])
    return layers
