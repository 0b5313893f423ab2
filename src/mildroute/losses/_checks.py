"""Argument checks for the public functions; internal functions trust their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError, CostError, MarginError, ShapeError


def as_costs(values: object) -> Tensor:
    """Turn nested lists, NumPy arrays or tensors into a checked float64 cost matrix.

    Args:
        values: Cost of each expert on each row, shape (n, p), p at least 2, finite.

    Returns:
        Costs, shape (n, p), float64.

    Example:
        >>> as_costs([[0, 1], [1, 0]])
        tensor([[0., 1.],
                [1., 0.]], dtype=torch.float64)
    """
    return check_costs(torch.as_tensor(values, dtype=torch.float64))


def check_costs(costs: Tensor) -> Tensor:
    """Return costs that are a finite (n, p) matrix with at least two experts, or raise."""
    if costs.ndim != 2 or costs.shape[1] < 2:
        raise ShapeError(
            f"costs must be (n, p) with at least 2 experts, got shape {tuple(costs.shape)}; one"
            " column per expert."
        )
    n_nonfinite = int((~torch.isfinite(costs)).sum())
    if n_nonfinite:
        raise CostError(
            f"costs must be finite, got {n_nonfinite} non-finite"
            f" value{'s' * (n_nonfinite > 1)}; drop those rows or impute them first."
        )
    return costs


def check_scores(scores: Tensor, rewards: Tensor) -> None:
    """Raise an error unless scores and rewards are (n, p) matrices of the same shape.

    Only shapes are checked, so the check is free.
    """
    if scores.ndim != 2:
        raise ShapeError(
            f"scores must be (n, p), got shape {tuple(scores.shape)}; one row per input, one column"
            " per expert."
        )
    if scores.shape != rewards.shape:
        raise ShapeError(
            f"scores and rewards must have the same shape, got {tuple(scores.shape)} and"
            f" {tuple(rewards.shape)}; one column per expert in both."
        )


def check_margins(margins: Tensor, experts: int) -> Sequence[float]:
    """Return margins as floats; raise an error unless they are p positive, finite numbers."""
    if margins.shape != (experts,):
        raise ShapeError(
            f"margins must be ({experts},), one per expert, got shape {tuple(margins.shape)}."
        )
    values: list[float] = margins.tolist()
    for expert, value in enumerate(values):
        if not (value > 0 and math.isfinite(value)):
            raise MarginError(
                f"margins must be positive and finite, got {value} for expert {expert}; raise the"
                " offset or the scale."
            )
    return values


def check_weights(weights: Tensor, rows: int) -> None:
    """Raise an error unless row weights are a vector with one entry per row."""
    if weights.shape != (rows,):
        raise ShapeError(
            f"weights must be ({rows},), one per row, got shape {tuple(weights.shape)}."
        )


def check_tau(tau: float) -> None:
    """Raise an error for a comp-sum parameter below zero."""
    if not tau >= 0:
        raise ArgumentError(
            f"tau must be at least 0, got {tau}; 1 is the logistic loss, 0 the exponential loss."
        )
