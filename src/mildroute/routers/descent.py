"""Adam with early stopping on held-out deferral loss: how the routers that are not convex are trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError, MissingExtraError
from mildroute.routers.order import largest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Arrays", "Schedule", "descend", "load_torch", "mean_paid", "split_rows"]

Arrays: TypeAlias = list[NDArray[Any]]
"""Parameters of a model."""

_PATIENCE = 10
"""Epochs without a lower held-out loss after which training ends."""


@dataclass(frozen=True)
class Schedule:
    """How long and how boldly to train.

    Attributes:
        learning_rate: Step of Adam, positive.
        weight_decay: Weight of the squared norm in the gradient, not negative.
        max_epochs: Passes over the rows at most.
        seed: Seed of the split and the order of rows.

    Example:
        >>> Schedule(learning_rate=-1.0, weight_decay=0.0, max_epochs=10, seed=0)
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: learning_rate must be positive, got -1.0; 0.001 is a usual value.
    """

    learning_rate: float
    weight_decay: float
    max_epochs: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if not self.learning_rate > 0:
            raise ArgumentError(f"learning_rate must be positive, got {self.learning_rate}; 0.001 is a usual value.")
        if not self.weight_decay >= 0:
            raise ArgumentError(f"weight_decay must not be negative, got {self.weight_decay}; 0 turns it off.")
        if not self.max_epochs >= 1:
            raise ArgumentError(f"max_epochs must be at least 1, got {self.max_epochs}.")


def split_rows(rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to train on, and a tenth to stop by; below 20 rows all serve for both.

    Example:
        >>> [len(part) for part in split_rows(50, seed=0)], [len(part) for part in split_rows(4, seed=0)]
        ([45, 5], [4, 4])
    """
    order = np.random.default_rng(seed).permutation(rows)
    return (order, order) if rows < 20 else (order[rows // 10 :], order[: rows // 10])


def descend(
    start: Arrays,
    loss: Callable[[Sequence[Tensor], NDArray[np.intp]], Tensor],
    risk: Callable[[Arrays], float],
    rows: NDArray[np.intp],
    schedule: Schedule,
) -> Arrays:
    """Train from a start, and return the parameters of the epoch with the lowest risk, the start included.

    Args:
        start: Parameters before training.
        loss: Loss of a batch: parameters as tensors, and the indices of the batch's rows.
        risk: What to stop by, from parameters; the first of equal ones counts.
        rows: Indices to train on, shape (n,).
        schedule: How to train.

    Example:
        >>> schedule = Schedule(learning_rate=0.1, weight_decay=0.0, max_epochs=100, seed=0)
        >>> [found] = descend([np.zeros(1)], lambda w, rows: ((w[0] - 3) ** 2).sum(), lambda w: abs(w[0][0] - 3), np.arange(20), schedule)
        >>> bool(abs(found[0] - 3) < 0.1)
        True
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
            adam.step(torch.autograd.grad(loss(parameters, order[first : first + batch]), parameters))
        arrays = [parameter.detach().numpy() for parameter in parameters]
        current = risk(arrays)
        waited += 1
        if current < lowest:
            best, lowest, waited = [array.copy() for array in arrays], current, 0
        if waited >= _PATIENCE:
            break
    return [array.astype(np.float64) for array in best]


def mean_paid(scores: NDArray[Any], costs: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Mean cost of choosing the largest score.

    Example:
        >>> mean_paid(np.eye(2), np.array([[0.5, 1.0], [1.0, 0.25]]), np.array([3.0, 1.0]))
        0.4375
    """
    return round(float(np.average(costs[np.arange(len(costs)), largest(scores)], weights=weights)), 12)


class _Adam:
    """Adam (Kingma and Ba, 2015). torch's own loads its compiler at the first step, which takes longer than training does."""

    def __init__(self, parameters: Sequence[Any], schedule: Schedule) -> None:
        torch = load_torch()
        self.parameters, self.schedule, self.steps = parameters, schedule, 0
        self.means = [torch.zeros_like(parameter, requires_grad=False) for parameter in parameters]
        self.squares = [torch.zeros_like(parameter, requires_grad=False) for parameter in parameters]

    def step(self, gradients: Sequence[Any]) -> None:
        self.steps += 1
        bias, bias_of_squares = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        for parameter, gradient, mean, square in zip(self.parameters, gradients, self.means, self.squares, strict=True):
            values = parameter.detach()
            slope = gradient.add(values, alpha=self.schedule.weight_decay)
            mean.lerp_(slope, 0.1)
            square.mul_(0.999).addcmul_(slope, slope, value=0.001)
            spread = square.div(bias_of_squares).sqrt_().add_(1e-8)
            values.addcdiv_(mean, spread, value=-self.schedule.learning_rate / bias)


def load_torch() -> Any:
    """The torch package, or an error that says how to install it.

    Example:
        >>> load_torch().__name__
        'torch'
    """
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise MissingExtraError.for_package("torch", extra="torch", user="fitting this router") from missing
    return torch
