"""A loss written in torch, differentiated for the solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.descent import load_torch
from mildroute.routers.solver import RowLoss

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TorchLoss", "differentiated"]

TorchLoss: TypeAlias = "Callable[[Tensor], Tensor]"
"""Scores of shape (n, p) to the loss of each row, shape (n,)."""


def differentiated(loss: TorchLoss) -> RowLoss:
    """The loss with its gradient, by automatic differentiation.

    Args:
        loss: Scores of shape (n, p), a tensor, to the loss of each row.

    Returns:
        What :func:`~mildroute.routers.solver.solve_linear` takes.

    Example:
        >>> differentiated(lambda scores: (scores**2).sum(dim=1))(np.array([[1.0, 2.0]]))
        (array([5.]), array([[2., 4.]]))
    """
    torch = load_torch()

    def value_and_gradient(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        unknown = torch.from_numpy(np.ascontiguousarray(scores)).requires_grad_()
        losses = loss(unknown)
        (gradient,) = torch.autograd.grad(losses.sum(), unknown)
        # the gradient of a plain sum is one number seen n times, which must not be written to
        return losses.detach().numpy(), gradient.contiguous().numpy()

    return value_and_gradient
