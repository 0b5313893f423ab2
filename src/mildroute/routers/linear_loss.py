"""A linear router that minimises one surrogate loss; what the surrogate baselines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator

from mildroute.errors import ArgumentError
from mildroute.routers.base import Matrix, RouterMixin
from mildroute.routers.design import design_of
from mildroute.routers.order import largest
from mildroute.routers.path import PENALTIES, fold_of_rows, held_out_scores, prepare_folds
from mildroute.routers.row_weights import positive_rows
from mildroute.routers.solver import RowLoss, solve_linear

__all__ = ["LinearLossRouter", "LossOfRows"]

LossOfRows: TypeAlias = Callable[[Matrix, NDArray[np.float64]], RowLoss]
"""Costs (n, p) and weights (n,) of training rows to the loss of their scores."""


class LinearLossRouter(RouterMixin, BaseEstimator, ABC):
    """Scores ``X @ weights_ + intercept_`` that minimise a convex surrogate plus a squared norm; the largest score is chosen.

    A subclass says which surrogate in ``_row_loss``: losses and gradient in NumPy, or a loss written in torch, differentiated.

    Args:
        penalty: Weight of the squared norm, in units of the features' variance, or ``"cv"``: the one of seven with the lowest
            held-out deferral loss.
        folds: Folds of that cross-validation.
        random_state: Seed of the folds.

    Attributes:
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        penalty_: The penalty taken.
        gradient_norm_: Largest entry of the gradient at the optimum.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> import torch
        >>> from mildroute.core.losses import hinge_loss
        >>> from mildroute.routers.autograd import differentiated
        >>> class HingeRouter(LinearLossRouter):
        ...     def _row_loss(self, costs, weights):
        ...         rewards = torch.from_numpy(1 - costs)
        ...         return differentiated(lambda scores: hinge_loss(scores, rewards.to(scores), torch.ones(2).to(scores), reduction="none"))
        >>> HingeRouter(penalty=0.01).fit([[-1.0], [1.0]], [[0, 1], [1, 0]]).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    weights_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def __init__(self, *, penalty: float | Literal["cv"] = "cv", folds: int = 5, random_state: int | None = None) -> None:
        self.penalty = penalty
        self.folds = folds
        self.random_state = random_state

    @abstractmethod
    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        """Loss of the rows with these costs (n, p) and weights (n,), as a function of their scores."""

    def _losses(self) -> Sequence[LossOfRows]:
        """The losses to choose from by cross-validation; one, for most routers."""
        return [self._row_loss]

    def _settle(self, choice: int, costs: Matrix, weights: NDArray[np.float64]) -> float:  # noqa: ARG002
        """Keep what the chosen loss implies; return the unit of its scores."""
        return 1.0

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        self._check_parameters()
        X, costs, sample_weight = positive_rows(X, costs, sample_weight)
        weights = np.ones(len(costs)) if sample_weight is None else sample_weight
        if costs.shape[1] == 1:
            self.weights_, self.intercept_, self.gradient_norm_ = np.zeros((X.shape[1], 1)), np.zeros(1), 0.0
            self.penalty_ = np.inf if self.penalty == "cv" else float(self.penalty)
            self._settle(0, costs, weights)
            return
        choice, self.penalty_ = self._tuned(X, costs, weights)
        loss = _loss_of(self._losses()[choice], costs, weights)(np.arange(len(costs)))
        fit = solve_linear(design_of(X, weights), loss, costs.shape[1], penalty=self.penalty_, sample_weight=weights)
        unit = self._settle(choice, costs, weights)
        self.weights_, self.intercept_, self.gradient_norm_ = unit * fit.weights, unit * fit.intercept, fit.gradient_norm

    def _scores(self, X: Any) -> Matrix:
        return np.asarray(X @ self.weights_) + self.intercept_

    def _posterior(self, X: Any) -> Matrix:
        return np.asarray(softmax(self._scores(X), axis=1))

    def _tuned(self, X: Any, costs: Matrix, weights: NDArray[np.float64]) -> tuple[int, float]:
        """Index of the loss, and the penalty, with the lowest held-out deferral loss; of equals the first and the strongest."""
        penalties = PENALTIES if self.penalty == "cv" else (float(self.penalty),)
        losses = self._losses()
        if len(penalties) * len(losses) == 1 or len(costs) == 1:
            return 0, penalties[0]
        fold = fold_of_rows(len(costs), self.folds, self.random_state)
        risks = np.full((len(losses), len(penalties)), np.inf)
        paid_by = partial(_paid_by, costs=costs, weights=weights)
        prepared = prepare_folds(X, fold, weights)
        for place, each in enumerate(losses):
            loss_of = _loss_of(each, costs, weights)
            found = held_out_scores(X, loss_of, costs.shape[1], fold, penalties=penalties, paid_by=paid_by, prepared=prepared)
            risks[place, : len(found)] = [paid_by(scores)[0] for scores in found]
        best = int(np.argmin(risks.round(12)))
        return best // len(penalties), penalties[best % len(penalties)]

    def _check_parameters(self) -> None:
        if self.penalty != "cv" and not (isinstance(self.penalty, int | float) and self.penalty > 0):
            raise ArgumentError(f"penalty must be a positive number or 'cv', got {self.penalty!r}.")
        if self.folds < 2:
            raise ArgumentError(f"folds must be at least 2, got {self.folds}.")


def _loss_of(loss: LossOfRows, costs: Matrix, weights: NDArray[np.float64]) -> Callable[[NDArray[np.intp]], RowLoss]:
    return lambda rows: loss(costs[rows], weights[rows])


def _paid_by(scores: NDArray[np.float32], *, costs: Matrix, weights: NDArray[np.float64]) -> tuple[float, float]:
    """Mean cost of choosing the largest score, and its standard error."""
    share = weights / weights.sum()
    paid = costs[np.arange(len(costs)), largest(scores)]
    mean = float(share @ paid)
    return mean, float(np.sqrt(share**2 @ (paid - mean) ** 2))
