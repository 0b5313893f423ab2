"""How a loss of each row becomes the number that is minimised."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from torch import Tensor

from mildroute.core.checks import check_weights
from mildroute.errors import ArgumentError

__all__ = ["Reduction", "reduce_rows"]

Reduction: TypeAlias = Literal["mean", "sum", "none"]
"""``"mean"`` is the weighted mean where row weights are given."""


def reduce_rows(losses: Tensor, weights: Tensor | None, reduction: Reduction) -> Tensor:
    """Weigh and reduce the losses of the rows.

    Args:
        losses: Loss of each row, shape (n,).
        weights: Weight of each row, shape (n,), or none for equal weights.
        reduction: ``"mean"`` divides by the sum of the weights, ``"sum"`` adds up, ``"none"`` keeps the rows.

    Returns:
        A scalar, or shape (n,) for ``"none"``.

    Example:
        >>> import torch
        >>> reduce_rows(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0]), "mean")
        tensor(2.)
    """
    if reduction not in get_args(Reduction):
        raise ArgumentError(f"reduction must be one of {', '.join(get_args(Reduction))}, got {reduction!r}.")
    if weights is not None:
        check_weights(weights, len(losses))
        weights = weights.to(losses.dtype)
        losses = losses * weights
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if weights is None else losses.sum() / weights.sum()
