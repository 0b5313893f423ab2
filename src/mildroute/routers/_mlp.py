"""Multilayer perceptrons as arrays, trained with torch and early stopping, applied with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mildroute._optional import load_torch
from mildroute.exceptions import ArgumentError
from mildroute.routers._decision import argmax_last, chosen_costs
from mildroute.routers._search import held_out_costs

if TYPE_CHECKING:
    from torch import Tensor


# Rows of any feature matrix as small dense batches on a common scale.


@dataclass(frozen=True)
class StandardizedBatches:
    """A feature matrix that yields batches with centered and scaled columns.

    Attributes:
        features: Shape (n, d), dense or sparse.
        center: Subtracted from each row, shape (d,).
        spread: Divides each centered row, shape (d,).
    """

    features: Any
    center: NDArray[np.float64]
    spread: NDArray[np.float64]

    def take(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the rows with these indices, dense, centered and scaled, shape (batch, d)."""
        taken = self.features[rows]
        dense = taken.toarray() if sparse.issparse(taken) else taken
        return ((dense - self.center) / self.spread).astype(np.float32)

    def for_raw_rows(
        self, weights: NDArray[np.float64], bias: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return weights (d, h) and bias (h,) of a first layer that takes unscaled rows.

        The arguments are those of the layer for rows as :meth:`take` returns them.
        """
        raw = weights / self.spread[:, None]
        return raw, bias - self.center @ raw


def batches_of(X: Any) -> StandardizedBatches:
    """Scale dense columns to mean 0 and variance 1; leave constant columns as they are.

    Sparse columns share one factor and are not centered, so zeros stay zeros.

    Args:
        X: Shape (n, d), dense or sparse.
    """
    columns = X.shape[1]
    if sparse.issparse(X):
        spread = float(np.sqrt(X.multiply(X).sum() / max(1, X.shape[0] * columns))) or 1.0
        return StandardizedBatches(X, np.zeros(columns), np.full(columns, spread))
    center = X.mean(axis=0, dtype=np.float64)
    return StandardizedBatches(X, center, positive_spread(X.std(axis=0, dtype=np.float64), center))


def positive_spread(
    spread: NDArray[np.float64], center: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the divisor of each column.

    The divisor is the standard deviation, or 1 if the column is constant up to rounding.

    Args:
        spread: Standard deviation of each column, shape (d,).
        center: Mean of each column, shape (d,).
    """
    varies = spread > 1e-6 * np.abs(center)
    return np.where(varies, np.where(spread > 0, spread, 1.0), 1.0)


# Adam with early stopping on held-out deferral loss, for the routers that are not convex.


# The parameters of a model.
Arrays: TypeAlias = list[NDArray[Any]]

# Epochs without a lower held-out loss after which training ends.
_PATIENCE = 10


@dataclass(frozen=True)
class TrainingConfig:
    """The hyperparameters of a training run.

    Attributes:
        weight_decay: Weight of the squared norm in the gradient, not negative.
        seed: Seed of the split and the order of rows.
    """

    learning_rate: float
    weight_decay: float
    max_epochs: int
    seed: int

    def __post_init__(self) -> None:
        """Raise an error for values that cannot train."""
        if not self.learning_rate > 0:
            raise ArgumentError(
                f"learning_rate must be positive, got {self.learning_rate}; 0.001 is a usual value."
            )
        if not self.weight_decay >= 0:
            raise ArgumentError(
                f"weight_decay must not be negative, got {self.weight_decay}; 0 turns it off."
            )
        if not self.max_epochs >= 1:
            raise ArgumentError(f"max_epochs must be at least 1, got {self.max_epochs}.")


def holdout_split(rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows to train on and a tenth to stop by; below 20 rows, all rows serve for both."""
    order = np.random.default_rng(seed).permutation(rows)
    return (order, order) if rows < 20 else (order[rows // 10 :], order[: rows // 10])


def train_adam(
    start: Arrays,
    loss: Callable[[Sequence[Tensor], NDArray[np.intp]], Tensor],
    risk: Callable[[Arrays], float],
    rows: NDArray[np.intp],
    schedule: TrainingConfig,
) -> Arrays:
    """Train from a start, and return the parameters of the epoch with the lowest risk.

    If no epoch improves on the start, its parameters are returned.

    Args:
        start: Parameters before training.
        loss: Loss of a batch: parameters as tensors, and the indices of the batch's rows.
        risk: Computes the figure to stop by from parameters; the first of equal values counts.
        rows: Indices to train on, shape (n,).
        schedule: Hyperparameters of the training.
    """
    torch = load_torch()
    random = np.random.default_rng(schedule.seed + 1)
    parameters = [torch.tensor(array, dtype=torch.float32, requires_grad=True) for array in start]
    adam = _Adam(parameters, schedule)
    best, lowest, waited = [array.copy() for array in start], risk(start), 0
    batch = min(256, max(16, len(rows) // 20))
    for _ in range(schedule.max_epochs):
        order = random.permutation(rows)
        for first in range(0, len(order), batch):
            adam.step(
                torch.autograd.grad(loss(parameters, order[first : first + batch]), parameters)
            )
        arrays = [parameter.detach().numpy() for parameter in parameters]
        current = risk(arrays)
        waited += 1
        if current < lowest:
            best, lowest, waited = [array.copy() for array in arrays], current, 0
        if waited >= _PATIENCE:
            break
    return [array.astype(np.float64) for array in best]


def mean_chosen_cost(
    scores: NDArray[Any], costs: NDArray[np.float64], weights: NDArray[np.float64]
) -> float:
    """Return the mean cost of choosing the largest score."""
    return round(float(np.average(chosen_costs(costs, argmax_last(scores)), weights=weights)), 12)


class _Adam:
    """The Adam optimizer (Kingma and Ba, 2015).

    Written by hand because torch.optim.Adam loads torch's compiler at its first step: 7.1 s on one
    core, where a fit on 2,000 rows takes 1.3 s. Later steps take 0.7 ms here and 1.4 ms there (256
    x 128).
    """

    def __init__(self, parameters: Sequence[Any], schedule: TrainingConfig) -> None:
        torch = load_torch()
        self.parameters, self.schedule, self.steps = parameters, schedule, 0
        self.means = [torch.zeros_like(parameter, requires_grad=False) for parameter in parameters]
        self.squares = [
            torch.zeros_like(parameter, requires_grad=False) for parameter in parameters
        ]

    def step(self, gradients: Sequence[Any]) -> None:
        self.steps += 1
        bias, bias_of_squares = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        for parameter, gradient, mean, square in zip(
            self.parameters, gradients, self.means, self.squares, strict=True
        ):
            values = parameter.detach()
            slope = gradient.add(values, alpha=self.schedule.weight_decay)
            mean.lerp_(slope, 0.1)
            square.mul_(0.999).addcmul_(slope, slope, value=0.001)
            spread = square.div(bias_of_squares).sqrt_().add_(1e-8)
            values.addcdiv_(mean, spread, value=-self.schedule.learning_rate / bias)


# A multilayer perceptron as plain arrays: trained with torch, evaluated with NumPy.


def layer_sizes(hidden: Sequence[int]) -> list[int]:
    """Check hidden layer sizes; return them as integers of at least 1."""
    sizes = [int(size) for size in hidden]
    if any(size < 1 for size in sizes):
        raise ArgumentError(
            f"hidden_layer_sizes must be at least 1, got {hidden!r}; an empty tuple makes a linear"
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
    """Train on the mean of ``row_loss``, stopping by ``risk`` on a held-out tenth of the rows.

    Args:
        batches: Rows to train on.
        row_loss: Maps outputs (b, p) and the indices of their rows to a loss per row, shape (b,).
        risk: Maps outputs of held-out rows and their indices to the figure to stop by.
        start: Weights and biases in alternation.
        schedule: Hyperparameters of the training.

    Returns:
        Weights and biases in alternation, for rows as the batches return them.
    """
    torch = load_torch()
    seen, held_out = holdout_split(batches.features.shape[0], schedule.seed)
    judged = batches.take(held_out)

    def loss(layers: Sequence[Tensor], rows: NDArray[np.intp]) -> Tensor:
        return row_loss(torch_forward(layers, torch.from_numpy(batches.take(rows))), rows).mean()

    return train_adam(
        start, loss, lambda layers: risk(forward(layers, judged), held_out), seen, schedule
    )


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


# The deferral loss under a network instead of a linear map, stopped early by held-out deferral
# loss. loss.


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
        decision: How scores become a choice; training stops by the cost of that choice.
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
