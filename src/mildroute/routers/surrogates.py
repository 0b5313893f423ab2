"""The surrogates that the paper compares: linear routers that differ in their loss alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from mildroute.errors import ArgumentError
from mildroute.routers.autograd import differentiated
from mildroute.routers.base import Matrix
from mildroute.routers.descent import load_torch
from mildroute.routers.linear_loss import LinearLossRouter, LossOfRows
from mildroute.routers.logistic import deferral_row_loss
from mildroute.routers.rewards import THEORY, margins_of_wins, positive_wins, winner_shares
from mildroute.routers.solver import RowLoss

__all__ = ["CrossEntropyRouter", "LdamRouter", "PaperMildRouter", "TdefRouter", "WeightedCrossEntropyRouter"]

_OFFSETS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
"""The paper's integer offsets around theory margins, as far as they give positive margins."""


class TdefRouter(LinearLossRouter):
    """Two-stage deferral with the logistic loss (TDEF; Mao et al., 2023).

    Args:
        reward: ``"complement"`` (one minus the cost, the paper's baseline) or ``"sum"`` (the others' costs, later work of its school).
        penalty: Weight of the squared norm, or ``"cv"``; see :class:`~mildroute.routers.linear_loss.LinearLossRouter`.
        folds: Folds of the cross-validation.
        random_state: Seed of the folds.

    Attributes:
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        penalty_: The penalty taken.
        gradient_norm_: Largest entry of the gradient at the optimum.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> TdefRouter(penalty=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    def __init__(
        self,
        *,
        reward: Literal["complement", "sum"] = "complement",
        penalty: float | Literal["cv"] = "cv",
        folds: int = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(penalty=penalty, folds=folds, random_state=random_state)
        self.reward = reward

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.reward not in ("complement", "sum"):
            raise ArgumentError(f"reward must be complement or sum, got {self.reward!r}; MildRouter knows the gap reward too.")

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        rewards = _sum_rewards(costs) if self.reward == "sum" else 1 - costs / max(1.0, costs.max(initial=0.0))
        return deferral_row_loss(_to_one(rewards, weights), np.ones(costs.shape[1]))


class CrossEntropyRouter(LinearLossRouter):
    """Cross-entropy on the winner of each row, ties split equally: forgets by how much it won.

    Args:
        penalty: Weight of the squared norm, or ``"cv"``; see :class:`~mildroute.routers.linear_loss.LinearLossRouter`.
        folds: Folds of the cross-validation.
        random_state: Seed of the folds.

    Attributes:
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        penalty_: The penalty taken.
        gradient_norm_: Largest entry of the gradient at the optimum.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> CrossEntropyRouter(penalty=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:  # noqa: ARG002
        return deferral_row_loss(winner_shares(-costs), np.ones(costs.shape[1]))


class WeightedCrossEntropyRouter(LinearLossRouter):
    """Cross-entropy on the winner, each expert weighted by how rarely it wins.

    Args:
        penalty: Weight of the squared norm, or ``"cv"``; see :class:`~mildroute.routers.linear_loss.LinearLossRouter`.
        folds: Folds of the cross-validation.
        random_state: Seed of the folds.

    Attributes:
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        penalty_: The penalty taken.
        gradient_norm_: Largest entry of the gradient at the optimum.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> WeightedCrossEntropyRouter(penalty=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        winners = winner_shares(-costs)
        wins = positive_wins(weights @ winners)
        return deferral_row_loss(winners * (wins.mean() / wins), np.ones(costs.shape[1]))


class LdamRouter(LinearLossRouter):
    """LDAM on the winner of each row (Cao et al., 2019): rare winners must win by more.

    Its authors' scores are cosines, multiplied by s inside the loss. Linear scores have no bound, so there s would only rescale the
    penalty: scores here are s times theirs, and s says what the margins are worth, ``s * max_margin`` for the rarest winner.

    Args:
        s: Scale of the margins, as in the authors' loss.
        max_margin: Margin of the expert that wins most rarely.
        penalty: Weight of the squared norm, or ``"cv"``; see :class:`~mildroute.routers.linear_loss.LinearLossRouter`.
        folds: Folds of the cross-validation.
        random_state: Seed of the folds.

    Attributes:
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        penalty_: The penalty taken.
        gradient_norm_: Largest entry of the gradient at the optimum.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> LdamRouter(penalty=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    _learns_with_torch = True

    def __init__(
        self,
        *,
        s: float = 10.0,
        max_margin: float = 0.5,
        penalty: float | Literal["cv"] = "cv",
        folds: int = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(penalty=penalty, folds=folds, random_state=random_state)
        self.s = s
        self.max_margin = max_margin

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not (self.s > 0 and self.max_margin >= 0):
            raise ArgumentError(f"LDAM needs s > 0 and max_margin >= 0, got s={self.s} and max_margin={self.max_margin}.")

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        torch = load_torch()
        from mildroute.core.losses import ldam_loss

        rewards, wins = torch.from_numpy(-costs), torch.from_numpy(weights @ winner_shares(-costs))
        margin = self.s * self.max_margin
        return differentiated(
            lambda scores: ldam_loss(scores, rewards.to(scores), wins.to(scores), s=1.0, max_margin=margin, reduction="none")
        )


class PaperMildRouter(LinearLossRouter):
    """MILD to the letter of the paper: sum reward, theory margins, the largest score chosen.

    Kept to compare with: where margins differ, the largest score is not the best choice, even at the optimum.
    :class:`~mildroute.routers.mild.MildRouter` repairs that.

    Args:
        offsets: None for the theory margins as printed, which sum to 1; ``"search"`` to add the integer of 0 to 5 with the lowest
            held-out deferral loss, as the paper tunes them.
        penalty: Weight of the squared norm of the scores in units of the mean margin, or ``"cv"``; see
            :class:`~mildroute.routers.linear_loss.LinearLossRouter`.
        folds: Folds of the cross-validation.
        random_state: Seed of the folds.

    Attributes:
        margins_: Margins taken, shape (p,).
        offset_: The offset in them.
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        penalty_: The penalty taken.
        gradient_norm_: Largest entry of the gradient at the optimum.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 2, X <= 2]).astype(float)
        >>> router = PaperMildRouter(penalty=0.001).fit(X, costs)
        >>> router.predict([[-3.0], [5.0]]), router.margins_.round(2)
        (array([0, 1]), array([0.58, 0.42]))
    """

    def __init__(
        self,
        *,
        offsets: Literal["search"] | None = None,
        penalty: float | Literal["cv"] = "cv",
        folds: int = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(penalty=penalty, folds=folds, random_state=random_state)
        self.offsets = offsets

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.offsets not in (None, "search"):
            raise ArgumentError(f"offsets must be None or 'search', got {self.offsets!r}; MildRouter takes margins of any kind.")

    def _losses(self) -> Sequence[LossOfRows]:
        return [partial(self._row_loss, offset=offset) for offset in self._offsets()]

    def _offsets(self) -> tuple[float, ...]:
        return (0.0,) if self.offsets is None else _OFFSETS

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64], *, offset: float = 0.0) -> RowLoss:
        """Loss in units of the mean margin: the same problem, as well conditioned as with margins of 1."""
        margins = _theory_margins(costs, weights, offset)
        return deferral_row_loss(_to_one(_sum_rewards(costs), weights), margins / margins.mean())

    def _settle(self, choice: int, costs: Matrix, weights: NDArray[np.float64]) -> float:
        self.offset_ = self._offsets()[choice]
        self.margins_ = np.ones(1)
        if costs.shape[1] > 1:
            self.margins_ = _theory_margins(costs, weights, self.offset_)
        return float(self.margins_.mean())

    def _posterior(self, X: Any) -> Matrix:
        """What the paper's reading of the scores implies, softmax of scores over the mean margin; not calibrated."""
        return np.asarray(softmax(self._scores(X) / self.margins_.mean(), axis=1))


def _to_one(rewards: Matrix, weights: NDArray[np.float64]) -> Matrix:
    """Rewards with a mean row sum of 1, so that a penalty means the same for any costs."""
    mean = float(np.average(rewards.sum(axis=1), weights=weights))
    return rewards / mean if mean > 0 else rewards


def _sum_rewards(costs: Matrix) -> Matrix:
    """Sum rewards; costs below zero are raised first, all by the same, which changes no regret."""
    raised = costs - min(0.0, float(costs.min()))
    return np.asarray(raised.sum(axis=1, keepdims=True) - raised)


def _theory_margins(costs: Matrix, weights: NDArray[np.float64], offset: float) -> NDArray[np.float64]:
    return margins_of_wins(THEORY._replace(offset=offset), weights @ winner_shares(-costs))
