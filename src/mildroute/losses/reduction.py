"""Reductions of row losses to a scalar."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from torch import Tensor

from mildroute.exceptions import ArgumentError
from mildroute.losses._checks import check_weights

__all__ = ["Reduction", "reduce_rows"]


# ``"mean"`` is the weighted mean if there are row weights.
Reduction: TypeAlias = Literal["mean", "sum", "none"]


def reduce_rows(losses: Tensor, weights: Tensor | None, reduction: Reduction) -> Tensor:
    """Weight and reduce row losses.

    Args:
        losses: Loss of each row, shape (n,).
        weights: Weight of each row, shape (n,), or `None` for equal weights.
        reduction: ``"mean"`` divides by the sum of the weights, ``"sum"`` adds, ``"none"`` keeps
            one loss per row.

    Returns:
        A scalar, or shape (n,) for ``"none"``.
    """
    if reduction not in get_args(Reduction):
        raise ArgumentError(
            f"reduction must be one of {', '.join(get_args(Reduction))}, got {reduction!r}."
        )
    if weights is not None:
        check_weights(weights, len(losses))
        weights = weights.to(losses.dtype)
        losses = losses * weights
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if weights is None else losses.sum() / weights.sum()
