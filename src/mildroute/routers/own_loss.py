"""A linear router for a loss of one's own: a function of scores and costs, by name or as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError
from mildroute.routers.autograd import differentiated
from mildroute.routers.base import Matrix
from mildroute.routers.descent import load_torch
from mildroute.routers.linear_loss import LinearLossRouter
from mildroute.routers.losses import LossOfCosts, loss_named, loss_names
from mildroute.routers.solver import RowLoss

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LossRouter"]


class LossRouter(LinearLossRouter):
    """Linear scores that minimise any loss of scores and costs; the largest score is chosen.

    The loss is scaled to a mean of log p where all scores are 0, as cross-entropy has it there, so that a penalty means the same whatever
    unit the costs have. An artifact holds the name of the loss, never its code: a stored router predicts where neither torch nor the
    loss is installed.

    Args:
        loss: Name of a loss: ``"gap"``, ``"tdef"``, ``"cross-entropy"``, or what an installed distribution registers under the entry-point
            group ``mildroute.losses``; or a function written in torch that takes scores and costs of the training rows, both (n, p),
            and returns the loss of each row, shape (n,). A router with a function cannot be stored.
        penalty: Weight of the squared norm, or ``"cv"``; see :class:`~mildroute.routers.linear_loss.LinearLossRouter`.
        folds: Folds of the cross-validation.
        random_state: Seed of the folds.

    Attributes:
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        penalty_: The penalty taken.
        gradient_norm_: Largest entry of the gradient where the solver stopped.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> def expected_cost(scores, costs):
        ...     return (scores.softmax(dim=1) * costs).sum(dim=1)
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> LossRouter(expected_cost, penalty=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    _learns_with_torch = True

    def __init__(
        self,
        loss: str | LossOfCosts = "gap",
        *,
        penalty: float | Literal["cv"] = "cv",
        folds: int = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(penalty=penalty, folds=folds, random_state=random_state)
        self.loss = loss

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.loss, str) and not callable(self.loss):
            raise ArgumentError(f"loss must be a function of scores and costs, or one of {', '.join(loss_names())}, got {self.loss!r:.80}.")

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        torch = load_torch()
        loss = loss_named(self.loss) if isinstance(self.loss, str) else self.loss
        known = torch.from_numpy(costs)
        start = torch.zeros_like(known, requires_grad=True)
        unit = self._unit(self._checked(loss(start, known), start), weights, costs.shape[1])

        def in_units(scores: Tensor) -> Tensor:
            return self._checked(loss(scores, known.to(scores)), scores) / unit

        return differentiated(in_units)

    def _checked(self, losses: Tensor, scores: Tensor) -> Tensor:
        """What the loss returned, if the solver can use it."""
        shape, wanted = tuple(getattr(losses, "shape", ())), (scores.shape[0],)
        if shape != wanted or not losses.requires_grad:
            raise ArgumentError(
                f"a loss must return a tensor of shape {wanted}, one number for each row, computed from the scores; {self._name} returns "
                f"{type(losses).__name__} of shape {shape}{'' if shape != wanted else ' without the scores in it'}."
            )
        if not bool(losses.isfinite().all()):
            raise ArgumentError(
                f"a loss must be finite, {self._name} is not for scores up to {float(scores.detach().abs().max()):.3g}; "
                "take log_softmax for the logarithm of a softmax, and raise what is divided by above 0."
            )
        return losses

    @property
    def _name(self) -> str:
        return repr(self.loss) if isinstance(self.loss, str) else getattr(self.loss, "__name__", type(self.loss).__name__)

    @staticmethod
    def _unit(at_zero: Tensor, weights: NDArray[np.float64], experts: int) -> float:
        """Mean loss of scores of 0 over that of cross-entropy; 1 for a loss that is not positive there."""
        mean = float(np.average(at_zero.detach().numpy(), weights=weights))
        return mean / np.log(experts) if mean > 0 else 1.0
