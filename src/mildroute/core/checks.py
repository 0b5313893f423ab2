"""Checks at the edge that users touch; the functions below it trust their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mildroute.errors import ArgumentError, CostError, MarginError, ShapeError

__all__ = ["as_costs", "check_costs", "check_margins", "check_scores", "check_weights"]


def as_costs(values: object) -> Tensor:
    """Turn nested lists, NumPy arrays or tensors into a checked float64 cost matrix.

    Args:
        values: What each expert cost on each row, shape (n, p), p at least 2, finite.

    Returns:
        Costs, shape (n, p), float64.

    Example:
        >>> as_costs([[0, 1], [1, 0]])
        tensor([[0., 1.],
                [1., 0.]], dtype=torch.float64)
    """
    return check_costs(torch.as_tensor(values, dtype=torch.float64))


def check_costs(costs: Tensor) -> Tensor:
    """Refuse costs that are not a finite (n, p) matrix with at least two experts; return them.

    Example:
        >>> check_costs(torch.tensor([[0.0, float("nan")]]))
        Traceback (most recent call last):
        mildroute.errors.CostError: costs must be finite, got 1 non-finite value; drop those rows or impute them first.
    """
    if costs.ndim != 2 or costs.shape[1] < 2:
        raise ShapeError(f"costs must be (n, p) with at least 2 experts, got shape {tuple(costs.shape)}; one column per expert.")
    bad = int((~torch.isfinite(costs)).sum())
    if bad:
        raise CostError(f"costs must be finite, got {bad} non-finite value{'s' * (bad > 1)}; drop those rows or impute them first.")
    return costs


def check_scores(scores: Tensor, rewards: Tensor) -> None:
    """Refuse scores and rewards that are not (n, p) matrices of one shape; looks at shapes only, so it is free.

    Example:
        >>> check_scores(torch.zeros(4, 3), torch.zeros(4, 3))
        >>> check_scores(torch.zeros(4, 3), torch.zeros(4, 2))
        Traceback (most recent call last):
        mildroute.errors.ShapeError: scores and rewards must have one shape, got (4, 3) and (4, 2); one column per expert in both.
    """
    if scores.ndim != 2:
        raise ShapeError(f"scores must be (n, p), got shape {tuple(scores.shape)}; one row per input, one column per expert.")
    if scores.shape != rewards.shape:
        raise ShapeError(
            f"scores and rewards must have one shape, got {tuple(scores.shape)} and {tuple(rewards.shape)}; one column per expert in both."
        )


def check_margins(margins: Tensor, experts: int) -> Sequence[float]:
    """Refuse margins that are not p positive, finite numbers; return them as plain floats.

    Example:
        >>> check_margins(torch.tensor([1.0, 2.0]), experts=2)
        [1.0, 2.0]
        >>> check_margins(torch.tensor([1.0, -2.0]), experts=2)
        Traceback (most recent call last):
        mildroute.errors.MarginError: margins must be positive and finite, got -2.0 for expert 1; raise the offset or the scale.
    """
    if margins.shape != (experts,):
        raise ShapeError(f"margins must be ({experts},), one per expert, got shape {tuple(margins.shape)}.")
    values: list[float] = margins.tolist()
    for expert, value in enumerate(values):
        if not (value > 0 and math.isfinite(value)):
            raise MarginError(f"margins must be positive and finite, got {value} for expert {expert}; raise the offset or the scale.")
    return values


def check_weights(weights: Tensor, rows: int) -> None:
    """Refuse row weights that are not a vector with one entry a row.

    Example:
        >>> check_weights(torch.ones(4), rows=4)
    """
    if weights.shape != (rows,):
        raise ShapeError(f"weights must be ({rows},), one per row, got shape {tuple(weights.shape)}.")


def check_tau(tau: float) -> None:
    """Refuse a comp-sum parameter below zero.

    Example:
        >>> check_tau(-1.0)
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: tau must be at least 0, got -1.0; 1 is the logistic loss, 0 the exponential one.
    """
    if not tau >= 0:
        raise ArgumentError(f"tau must be at least 0, got {tau}; 1 is the logistic loss, 0 the exponential one.")
