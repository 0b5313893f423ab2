"""Order of the experts of a row, with the paper's rule for ties: the highest index wins."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["descending", "largest", "runner_up"]


def largest(values: Tensor) -> Tensor:
    """Column of the largest value of each row, the highest one of equals.

    Args:
        values: Shape (n, p).

    Returns:
        Shape (n,).

    Example:
        >>> largest(torch.tensor([[1.0, 2.0, 2.0], [3.0, 0.0, 1.0]]))
        tensor([2, 0])
    """
    return values.shape[1] - 1 - values.flip(1).argmax(dim=1)


def descending(values: Tensor) -> Tensor:
    """Columns of each row from the largest value to the smallest, the highest one of equals first.

    Args:
        values: Shape (n, p).

    Returns:
        Shape (n, p).

    Example:
        >>> descending(torch.tensor([[1.0, 2.0, 2.0]]))
        tensor([[2, 1, 0]])
    """
    return values.shape[1] - 1 - values.flip(1).argsort(dim=1, descending=True, stable=True)


def runner_up(scores: Tensor) -> Tensor:
    """Largest score among the other experts, for each expert.

    Args:
        scores: Router outputs, shape (n, p), p at least 2.

    Returns:
        Shape (n, p).

    Example:
        >>> runner_up(torch.tensor([[1.0, 5.0, 3.0]]))
        tensor([[5., 3., 5.]])
    """
    top = scores.topk(2, dim=1)
    best = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, top.indices[:, :1], True)
    return torch.where(best, top.values[:, 1:], top.values[:, :1])
