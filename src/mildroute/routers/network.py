"""A multi-layer perceptron as plain arrays: trained with torch, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError
from mildroute.routers.batches import Batches
from mildroute.routers.descent import Arrays, Schedule, descend, load_torch, split_rows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["forward", "layer_sizes", "start_layers", "torch_forward", "train_layers"]


def layer_sizes(hidden: Sequence[int]) -> list[int]:
    """Hidden sizes as whole numbers of at least 1.

    Example:
        >>> layer_sizes((64, 32))
        [64, 32]
    """
    sizes = [int(size) for size in hidden]
    if any(size < 1 for size in sizes):
        raise ArgumentError(f"hidden_sizes must be at least 1, got {hidden!r}; an empty tuple makes a linear model.")
    return sizes


def start_layers(sizes: Sequence[int], seed: int) -> Arrays:
    """Weights and biases in turn; the last layer is zero, so that every network starts as a constant.

    Example:
        >>> [array.shape for array in start_layers([3, 8, 2], seed=0)]
        [(3, 8), (8,), (8, 2), (2,)]
    """
    random = np.random.default_rng(seed)
    layers: Arrays = []
    for size, following in pairwise(sizes):
        layers += [random.normal(size=(size, following)) * np.sqrt(2 / size), np.zeros(following)]
    layers[-2] = np.zeros_like(layers[-2])
    return layers


def train_layers(
    batches: Batches,
    row_loss: Callable[[Tensor, NDArray[np.intp]], Tensor],
    risk: Callable[[NDArray[Any], NDArray[np.intp]], float],
    start: Arrays,
    schedule: Schedule,
) -> Arrays:
    """Train by the mean of ``row_loss``, stop by ``risk`` on a held-out tenth of the rows.

    Args:
        batches: Rows to train on.
        row_loss: Outputs (b, p) and the indices of their rows to the loss of each, shape (b,).
        risk: Outputs of held-out rows and their indices to the figure to stop by.
        start: Weights and biases in turn.
        schedule: How to train.

    Returns:
        Weights and biases in turn, for rows as the batches give them.

    Example:
        >>> from mildroute.routers.batches import batches_of
        >>> batches, schedule = batches_of(np.arange(40.0)[:, None]), Schedule(0.1, 0.0, 20, 0)
        >>> start, squares = start_layers([1, 1], seed=0), lambda outputs, rows: (outputs[:, 0] - 1) ** 2
        >>> len(train_layers(batches, squares, lambda outputs, rows: outputs.var(), start, schedule))
        2
    """
    torch = load_torch()
    seen, held_out = split_rows(batches.features.shape[0], schedule.seed)
    judged = batches.take(held_out)

    def loss(layers: Sequence[Tensor], rows: NDArray[np.intp]) -> Tensor:
        return row_loss(torch_forward(layers, torch.from_numpy(batches.take(rows))), rows).mean()

    return descend(start, loss, lambda layers: risk(forward(layers, judged), held_out), seen, schedule)


def torch_forward(layers: Sequence[Tensor], vectors: Tensor) -> Tensor:
    """What :func:`forward` computes, for tensors.

    Example:
        >>> import torch
        >>> torch_forward([torch.eye(2), torch.zeros(2), torch.ones(2, 1), torch.zeros(1)], torch.tensor([[-1.0, 2.0]]))
        tensor([[2.]])
    """
    torch = load_torch()
    hidden = vectors
    for place in range(0, len(layers), 2):
        hidden = torch.addmm(layers[place + 1], hidden.relu() if place else hidden, layers[place])
    return hidden


def forward(layers: Sequence[NDArray[Any]], X: Any) -> NDArray[Any]:
    """Outputs of a network given as weights and biases in turn, shape (n, p).

    Example:
        >>> forward([np.eye(2), np.zeros(2), np.ones((2, 1)), np.zeros(1)], np.array([[-1.0, 2.0]]))
        array([[2.]])
    """
    hidden = X
    for place in range(0, len(layers), 2):
        hidden = np.asarray((np.maximum(hidden, 0) if place else hidden) @ layers[place]) + layers[place + 1]
    return np.asarray(hidden)
