"""Routers with one surrogate loss: TDEF, cross-entropy, LDAM, the paper's MILD, or a custom one."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator

from mildroute._optional import load_torch
from mildroute._plugins import load_plugin, plugin_names
from mildroute.exceptions import ArgumentError
from mildroute.routers._cross_validation import ALPHAS, Fold, held_out_scores, prepare_folds
from mildroute.routers._deferral_loss import deferral_row_loss
from mildroute.routers._folds import CV, assign_folds, count_folds
from mildroute.routers._linear_model import RowLoss, minimize_linear
from mildroute.routers._order import argmax_last, chosen_costs
from mildroute.routers._rewards import (
    MARGIN_RULES,
    margins_by,
    smoothed_win_counts,
    winner_targets,
)
from mildroute.routers._whitening import whiten
from mildroute.routers.base import RouterMixin
from mildroute.routers.training_rows import Matrix, drop_zero_weight

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "GROUP",
    "CrossEntropyRouter",
    "CustomLossRouter",
    "LDAMRouter",
    "LossOfCosts",
    "LossOfRows",
    "PaperMILDRouter",
    "SurrogateRouter",
    "TDEFRouter",
    "TorchLoss",
    "WeightedCrossEntropyRouter",
    "get_loss",
    "loss_names",
    "with_autograd",
]


# Maps scores of shape (n, p) to the loss of each row, shape (n,).
TorchLoss: TypeAlias = "Callable[[Tensor], Tensor]"
# Maps costs (n, p) and weights (n,) of training rows to a loss of their scores.
LossOfRows: TypeAlias = Callable[[Matrix, NDArray[np.float64]], RowLoss]
# Maps scores and costs of the training rows, both of shape (n, p), to the loss of each row, shape
# (n,); written in torch.
LossOfCosts: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"

# Entry-point group under which other distributions register losses.
GROUP = "mildroute.losses"
# Maximum number of rounds over all experts in the search for one offset per expert.
_MAX_ROUNDS = 10


def with_autograd(loss: TorchLoss) -> RowLoss:
    """Return a torch loss with its gradient, computed by automatic differentiation.

    Args:
        loss: Maps scores of shape (n, p), a tensor, to the loss of each row.
    """
    torch = load_torch()

    def value_and_gradient(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        variable = torch.from_numpy(np.ascontiguousarray(scores)).requires_grad_()
        losses = loss(variable)
        (gradient,) = torch.autograd.grad(losses.sum(), variable)
        # The gradient of a plain sum is one number broadcast to n rows, which is not writable.
        return losses.detach().numpy(), gradient.contiguous().numpy()

    return value_and_gradient


class SurrogateRouter(RouterMixin, BaseEstimator, ABC):
    """A router whose scores ``X @ weights_ + intercept_`` minimize a surrogate plus a squared norm.

    The surrogate is convex, and the largest score is chosen.

    A subclass defines its surrogate in ``_row_loss``: losses and gradient in NumPy, or a loss
    written in torch and differentiated automatically.

    Args:
        alpha: Weight of the squared norm, in units of the features' variance. ``"cv"`` selects the
            one of seven values with the lowest held-out deferral loss.
        cv: Number of folds, or pairs of train and test rows that test each row once.
        random_state: Seed of the folds.

    Attributes:
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        alpha_: The penalty used.
        gradient_norm_: Largest entry of the gradient where the solver stopped.
        experts_: Names of the experts, shape (p,).
    """

    weights_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def __init__(
        self,
        *,
        alpha: float | Literal["cv"] = "cv",
        cv: CV = 5,
        random_state: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.cv = cv
        self.random_state = random_state

    @abstractmethod
    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        """Return the loss of rows with costs (n, p) and weights (n,) as a function of scores."""

    def _settle(self, costs: Matrix, weights: NDArray[np.float64]) -> float:  # noqa: ARG002
        """Store the attributes that the chosen loss implies; return the unit of its scores."""
        return 1.0

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        self._check_parameters()
        has_weight = None if sample_weight is None else sample_weight > 0
        X, costs, sample_weight = drop_zero_weight(X, costs, sample_weight)
        weights = np.ones(len(costs)) if sample_weight is None else sample_weight
        if costs.shape[1] == 1:
            self.weights_, self.intercept_, self.gradient_norm_ = (
                np.zeros((X.shape[1], 1)),
                np.zeros(1),
                0.0,
            )
            self.alpha_ = np.inf if self.alpha == "cv" else float(self.alpha)
            self._settle(costs, weights)
            return
        row_loss, self.alpha_ = self._select(X, costs, weights, has_weight)
        loss = _loss_of(row_loss, costs, weights)(np.arange(len(costs)))
        fit = minimize_linear(
            whiten(X, weights), loss, costs.shape[1], alpha=self.alpha_, sample_weight=weights
        )
        unit = self._settle(costs, weights)
        self.weights_, self.intercept_, self.gradient_norm_ = (
            unit * fit.weights,
            unit * fit.intercept,
            fit.gradient_norm,
        )

    def _scores(self, X: Any) -> Matrix:
        return np.asarray(X @ self.weights_) + self.intercept_

    def _posterior(self, X: Any) -> Matrix:
        return np.asarray(softmax(self._scores(X), axis=1))

    def _select(
        self,
        X: Any,
        costs: Matrix,
        weights: NDArray[np.float64],
        has_weight: NDArray[np.bool_] | None,
    ) -> tuple[LossOfRows, float]:
        """Return the loss, and the penalty with the lowest held-out deferral loss.

        Ties go to the strongest penalty.
        """
        alphas = self._alphas()
        if len(alphas) == 1 or len(costs) == 1:
            return self._row_loss, alphas[0]
        risk = self._held_out_risk(X, costs, weights, has_weight)
        return self._row_loss, risk.lowest(self._row_loss, alphas)[1]

    def _alphas(self) -> Sequence[float]:
        return ALPHAS if self.alpha == "cv" else (float(self.alpha),)

    def _held_out_risk(
        self,
        X: Any,
        costs: Matrix,
        weights: NDArray[np.float64],
        has_weight: NDArray[np.bool_] | None,
    ) -> _HeldOutRisk:
        fold = assign_folds(len(costs), self.cv, self.random_state, has_weight)
        return _HeldOutRisk(X, costs, weights, fold, prepare_folds(X, fold, weights))

    def _check_parameters(self) -> None:
        if self.alpha != "cv" and not (isinstance(self.alpha, int | float) and self.alpha > 0):
            raise ArgumentError(f"alpha must be a positive number or 'cv', got {self.alpha!r}.")
        count_folds(self.cv)


@dataclass(frozen=True)
class _HeldOutRisk:
    """The held-out deferral loss of routers with several losses."""

    features: Any
    costs: Matrix
    weights: NDArray[np.float64]
    fold: NDArray[np.intp]
    prepared: list[Fold]

    def lowest(self, loss: LossOfRows, alphas: Sequence[float]) -> tuple[float, float]:
        """Return the lowest mean cost along a path of penalties, and the first penalty with it."""
        paid_by = partial(_paid_by, costs=self.costs, weights=self.weights)
        scores_of_alphas = held_out_scores(
            self.features,
            _loss_of(loss, self.costs, self.weights),
            self.costs.shape[1],
            self.fold,
            alphas=alphas,
            paid_by=paid_by,
            prepared=self.prepared,
        )
        risks = [round(paid_by(scores)[0], 12) for scores in scores_of_alphas]
        best = int(np.argmin(risks))
        return risks[best], alphas[best]


def _loss_of(
    loss: LossOfRows, costs: Matrix, weights: NDArray[np.float64]
) -> Callable[[NDArray[np.intp]], RowLoss]:
    return lambda rows: loss(costs[rows], weights[rows])


def _paid_by(
    scores: NDArray[np.float32], *, costs: Matrix, weights: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the mean cost of choosing the largest score, and its standard error."""
    share = weights / weights.sum()
    paid = chosen_costs(costs, argmax_last(scores))
    mean = float(share @ paid)
    return mean, float(np.sqrt(share**2 @ (paid - mean) ** 2))


def loss_names() -> list[str]:
    """Return all names that :func:`get_loss` accepts."""
    return sorted({*_BUILT_IN, *plugin_names(GROUP)})


def get_loss(name: str) -> LossOfCosts:
    """Return a loss by name.

    Args:
        name: One of :func:`loss_names`; built-in names take precedence.
    """
    return _BUILT_IN[name] if name in _BUILT_IN else _load_plugin_loss(name)


# Cached because each fold calls it, and scanning all distributions takes longer than a small fit.
@functools.cache
def _load_plugin_loss(name: str) -> LossOfCosts:
    loss: LossOfCosts = load_plugin(GROUP, name, thing="loss", known=_BUILT_IN)
    if not callable(loss):
        raise ArgumentError(
            f"loss {name!r} must be a function of scores and costs, got {loss!r:.80}; correct the"
            " entry point."
        )
    return loss


def _cross_entropy(scores: Tensor, costs: Tensor) -> Tensor:
    """Return the cross-entropy on the cheapest expert of each row, ties split equally."""
    from mildroute.losses.functional import cross_entropy

    return cross_entropy(scores, -costs, reduction="none")


def _gap(scores: Tensor, costs: Tensor) -> Tensor:
    """Return the logistic loss with experts weighted by their gap to the row's largest cost."""
    from mildroute.losses.functional import tdef_loss
    from mildroute.losses.rewards import gap_rewards

    return tdef_loss(scores, gap_rewards(costs), reduction="none")


def _tdef(scores: Tensor, costs: Tensor) -> Tensor:
    """Return the logistic loss with each expert weighted by one minus its cost."""
    from mildroute.losses.functional import tdef_loss

    return tdef_loss(scores, 1 - costs / costs.max().clamp_min(1.0), reduction="none")


_BUILT_IN: dict[str, LossOfCosts] = {"cross-entropy": _cross_entropy, "gap": _gap, "tdef": _tdef}


class CustomLossRouter(SurrogateRouter):
    """A linear router that minimizes any loss of scores and costs; the largest score is chosen.

    The loss is scaled to the mean that cross-entropy has at scores of 0, which is log p, so that a
    penalty means the same in any unit of costs. An artifact stores the name of the loss, never its
    code: a stored router predicts without torch and without the loss installed.

    Args:
        loss: Name of a loss, or a torch function that maps scores and costs of the training rows,
            both (n, p), to the loss of each row, shape (n,). The names are ``"gap"``, ``"tdef"``,
            ``"cross-entropy"`` and those that installed distributions register under the
            entry-point group ``mildroute.losses``. A router with a function cannot be stored.

    Other parameters and fitted attributes are those of :class:`SurrogateRouter`.

    Example:
        >>> def expected_cost(scores, costs):
        ...     return (scores.softmax(dim=1) * costs).sum(dim=1)
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> CustomLossRouter(expected_cost, alpha=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    _learns_with_torch = True

    def __init__(
        self,
        loss: str | LossOfCosts = "gap",
        *,
        alpha: float | Literal["cv"] = "cv",
        cv: CV = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(alpha=alpha, cv=cv, random_state=random_state)
        self.loss = loss

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.loss, str) and not callable(self.loss):
            raise ArgumentError(
                f"loss must be a function of scores and costs, or one of {', '.join(loss_names())},"
                f" got {self.loss!r:.80}."
            )

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        torch = load_torch()
        loss = get_loss(self.loss) if isinstance(self.loss, str) else self.loss
        costs_tensor = torch.from_numpy(costs)
        start = torch.zeros_like(costs_tensor, requires_grad=True)
        at_zero = self._validate_losses(loss(start, costs_tensor), start)
        unit = self._unit(at_zero, weights, costs.shape[1])

        def in_units(scores: Tensor) -> Tensor:
            return self._validate_losses(loss(scores, costs_tensor.to(scores)), scores) / unit

        return with_autograd(in_units)

    def _validate_losses(self, losses: Tensor, scores: Tensor) -> Tensor:
        """Return the losses if the solver can use them; otherwise raise an error."""
        shape, expected = tuple(getattr(losses, "shape", ())), (scores.shape[0],)
        if shape != expected or not losses.requires_grad:
            raise ArgumentError(
                f"a loss must return a tensor of shape {expected}, one number for each row,"
                f" computed from the scores; {self._name} returns {type(losses).__name__} of shape"
                f" {shape}{'' if shape != expected else ' that does not depend on the scores'}."
            )
        if not bool(losses.isfinite().all()):
            raise ArgumentError(
                f"a loss must be finite, but {self._name} is not for scores up to"
                f" {float(scores.detach().abs().max()):.3g}; use log_softmax for the logarithm of a"
                " softmax, and keep divisors above 0."
            )
        return losses

    @property
    def _name(self) -> str:
        return (
            repr(self.loss)
            if isinstance(self.loss, str)
            else getattr(self.loss, "__name__", type(self.loss).__name__)
        )

    @staticmethod
    def _unit(at_zero: Tensor, weights: NDArray[np.float64], experts: int) -> float:
        """Return the mean loss at scores of 0 relative to that of cross-entropy.

        The result is 1 if the loss is not positive there.
        """
        mean = float(np.average(at_zero.detach().numpy(), weights=weights))
        return mean / np.log(experts) if mean > 0 else 1.0


class TDEFRouter(SurrogateRouter):
    """A router by two-stage deferral with the logistic loss (TDEF; Mao et al., 2023).

    Args:
        reward: ``"complement"`` (one minus the cost, the paper's baseline) or ``"sum"`` (the sum of
            the others' costs, from later work by the same authors).

    Other parameters and fitted attributes are those of :class:`SurrogateRouter`.

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> TDEFRouter(alpha=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    def __init__(
        self,
        *,
        reward: Literal["complement", "sum"] = "complement",
        alpha: float | Literal["cv"] = "cv",
        cv: CV = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(alpha=alpha, cv=cv, random_state=random_state)
        self.reward = reward

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.reward not in ("complement", "sum"):
            raise ArgumentError(
                f"reward must be complement or sum, got {self.reward!r}; MildRouter also supports"
                " the gap reward."
            )

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        rewards = (
            _sum_rewards(costs)
            if self.reward == "sum"
            else 1 - costs / max(1.0, costs.max(initial=0.0))
        )
        return deferral_row_loss(_normalize_rewards(rewards, weights), np.ones(costs.shape[1]))


class CrossEntropyRouter(SurrogateRouter):
    """A router by cross-entropy on each row's winner, ties split, ignoring the winning margin.

    Other parameters and fitted attributes are those of :class:`SurrogateRouter`.

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> CrossEntropyRouter(alpha=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:  # noqa: ARG002
        return deferral_row_loss(winner_targets(-costs), np.ones(costs.shape[1]))


class WeightedCrossEntropyRouter(SurrogateRouter):
    """A router by cross-entropy on the winner, each expert weighted by how rarely it wins.

    Other parameters and fitted attributes are those of :class:`SurrogateRouter`.

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> WeightedCrossEntropyRouter(alpha=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        winners = winner_targets(-costs)
        wins = smoothed_win_counts(weights @ winners)
        return deferral_row_loss(winners * (wins.mean() / wins), np.ones(costs.shape[1]))


class LDAMRouter(SurrogateRouter):
    """A router by LDAM on the winners (Cao et al., 2019): rare ones must win by a larger margin.

    In the original, scores are cosines, multiplied by s inside the loss. Linear scores are
    unbounded, so s would only rescale alpha. Here scores are s times the original ones, and s
    scales the margins: the rarest winner's is ``s * max_margin``.

    Args:
        s: Scale of the margins, as in the original loss.
        max_margin: Margin of the expert that wins least often.

    Other parameters and fitted attributes are those of :class:`SurrogateRouter`.

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
        >>> LDAMRouter(alpha=0.001).fit(X, costs).predict([[-3.0], [3.0]])
        array([0, 1])
    """

    _learns_with_torch = True

    def __init__(
        self,
        *,
        s: float = 10.0,
        max_margin: float = 0.5,
        alpha: float | Literal["cv"] = "cv",
        cv: CV = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(alpha=alpha, cv=cv, random_state=random_state)
        self.s = s
        self.max_margin = max_margin

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not (self.s > 0 and self.max_margin >= 0):
            raise ArgumentError(
                f"LDAM needs s > 0 and max_margin >= 0, got s={self.s} and"
                f" max_margin={self.max_margin}."
            )

    def _row_loss(self, costs: Matrix, weights: NDArray[np.float64]) -> RowLoss:
        torch = load_torch()
        from mildroute.losses.functional import ldam_loss

        rewards, wins = torch.from_numpy(-costs), torch.from_numpy(weights @ winner_targets(-costs))
        margin = self.s * self.max_margin
        return with_autograd(
            lambda scores: ldam_loss(
                scores,
                rewards.to(scores),
                wins.to(scores),
                s=1.0,
                max_margin=margin,
                reduction="none",
            )
        )


class PaperMILDRouter(SurrogateRouter):
    """The paper's MILD: sum reward, theory margins, the largest score chosen.

    This router is kept for comparison. The paper tunes its margins on validation data, so
    ``offsets=None`` is the starting point of that search and not the method of its experiments. If
    margins differ, the largest score is not the best choice, even at the optimum;
    :class:`~mildroute.routers.mild.MildRouter` corrects that.

    Args:
        margins: ``"theory"``, the paper's: proportional to the cube roots of the summed reward
            distribution m_k, with equal feature norms X_k, as linear scores have them.
            ``"winner_counts"`` sets m_k to the number of times that each expert wins.
        offsets: Search for numbers to add to the margins, which sum to 1 before that. `None` adds
            nothing. ``"search"`` adds the same whole number to all margins, namely the one with the
            lowest held-out deferral loss. ``"per_expert"`` continues from there with a separate
            number for each expert, cycling through the experts until no change of one offset helps.
        largest_offset: Largest number tried. The paper searches from -5 to 5 around the shares;
            below 0, no margin is positive.
        alpha: Weight of the squared norm of the scores in units of the mean margin, or ``"cv"``;
            see :class:`~mildroute.routers.surrogate.SurrogateRouter`.
        cv: Number of folds, or pairs of train and test rows that test each row once.
        random_state: Seed of the folds.

    Attributes:
        margins_: Margins used, shape (p,).
        offsets_: Offsets included in the margins, shape (p,).
        at_edge_: Whether each offset is the largest one tried, shape (p,). If any is, larger ones
            may be better.
        selection_: Description of how the offsets were chosen.
        weights_: Shape (d, p).
        intercept_: Shape (p,).
        alpha_: The penalty used.
        gradient_norm_: Largest entry of the gradient at the optimum.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 2, X <= 2]).astype(float)
        >>> router = PaperMILDRouter(alpha=0.001).fit(X, costs)
        >>> router.predict([[-3.0], [5.0]]), router.margins_.round(2)
        (array([0, 1]), array([0.58, 0.42]))
    """

    def __init__(
        self,
        *,
        margins: Literal["theory", "winner_counts"] = "theory",
        offsets: Literal["search", "per_expert"] | None = None,
        largest_offset: int = 5,
        alpha: float | Literal["cv"] = "cv",
        cv: CV = 5,
        random_state: int | None = None,
    ) -> None:
        super().__init__(alpha=alpha, cv=cv, random_state=random_state)
        self.margins = margins
        self.offsets = offsets
        self.largest_offset = largest_offset

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.margins not in MARGIN_RULES:
            raise ArgumentError(
                f"margins must be {' or '.join(MARGIN_RULES)}, got {self.margins!r:.80}; MildRouter"
                " takes margins of any kind."
            )
        if self.offsets not in (None, "search", "per_expert"):
            raise ArgumentError(
                f"offsets must be None, 'search' or 'per_expert', got {self.offsets!r}; MildRouter"
                " takes margins of any kind."
            )
        if isinstance(self.largest_offset, bool) or not (
            isinstance(self.largest_offset, int) and self.largest_offset >= 1
        ):
            raise ArgumentError(
                f"largest_offset must be a whole number of at least 1, got {self.largest_offset!r}."
            )

    def _select(
        self,
        X: Any,
        costs: Matrix,
        weights: NDArray[np.float64],
        has_weight: NDArray[np.bool_] | None,
    ) -> tuple[LossOfRows, float]:
        """Return the loss with the selected offsets, and the selected penalty."""
        self.offsets_, alphas = np.zeros(costs.shape[1]), self._alphas()
        if len(costs) > 1 and (self.offsets is not None or len(alphas) > 1):
            risk = self._held_out_risk(X, costs, weights, has_weight)
            alpha = self._search_offsets(risk, alphas)
        else:
            alpha = alphas[0]
        return partial(self._row_loss, offsets=self.offsets_), alpha

    def _search_offsets(self, risk: _HeldOutRisk, alphas: Sequence[float]) -> float:
        """Store the offsets with the lowest held-out deferral loss, and return their penalty.

        Ties go to the smallest offset.
        """
        grid = self._grid()

        def lowest(offsets: NDArray[np.float64], alphas: Sequence[float]) -> tuple[float, float]:
            return risk.lowest(partial(self._row_loss, offsets=offsets), alphas)

        common = [np.full(risk.costs.shape[1], offset) for offset in grid]
        results = [lowest(offsets, alphas) for offsets in common]
        best = min(range(len(grid)), key=lambda index: results[index][0])
        self.offsets_, (paid, alpha) = common[best], results[best]
        if self.offsets != "per_expert":
            return alpha
        for _ in range(_MAX_ROUNDS):
            before = paid
            for expert in range(len(self.offsets_)):
                for offset in grid:
                    changed = self.offsets_.copy()
                    changed[expert] = offset
                    if (cost := lowest(changed, [alpha])[0]) < paid:
                        self.offsets_, paid = changed, cost
            if paid == before:
                break
        return lowest(self.offsets_, alphas)[1]

    def _grid(self) -> tuple[float, ...]:
        return (0.0,) if self.offsets is None else tuple(np.arange(self.largest_offset + 1.0))

    def _row_loss(
        self,
        costs: Matrix,
        weights: NDArray[np.float64],
        *,
        offsets: NDArray[np.float64] | float = 0.0,
    ) -> RowLoss:
        """Return the loss in units of the mean margin.

        This does not change the problem, which is then as well conditioned as with margins of 1.
        """
        margins = self._theory_margins(costs, weights) + offsets
        rewards = _normalize_rewards(_sum_rewards(costs), weights)
        return deferral_row_loss(rewards, margins / margins.mean())

    def _theory_margins(self, costs: Matrix, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return margins_by(MARGIN_RULES[self.margins], _sum_rewards(costs), weights)

    def _settle(self, costs: Matrix, weights: NDArray[np.float64]) -> float:
        if costs.shape[1] == 1:
            self.margins_, self.offsets_ = np.ones(1), np.zeros(1)
        else:
            self.margins_ = self._theory_margins(costs, weights) + self.offsets_
        self.at_edge_ = self.offsets_ == (np.inf if self.offsets is None else self.largest_offset)
        self.selection_ = self._selection()
        return float(self.margins_.mean())

    def _selection(self) -> str:
        name = "theory margins" if self.margins == "theory" else "margins of winner counts"
        if self.offsets is None:
            return f"{name}, not tuned: as configured"
        added = ", ".join(f"{offset:g}" for offset in np.unique(self.offsets_))
        if self.offsets == "per_expert":
            added = ", ".join(f"{offset:g}" for offset in self.offsets_)
        words = f"{name} plus {added}: lowest cost on held-out rows of 0 to {self.largest_offset}"
        if self.at_edge_.any():
            words += "; at the edge of the grid, so a larger largest_offset may be better"
        return words

    def _posterior(self, X: Any) -> Matrix:
        """Return the paper's posterior: the softmax of the scores divided by the mean margin.

        This posterior is not calibrated.
        """
        return np.asarray(softmax(self._scores(X) / self.margins_.mean(), axis=1))


def _normalize_rewards(rewards: Matrix, weights: NDArray[np.float64]) -> Matrix:
    """Scale rewards to a mean row sum of 1, so that a penalty means the same for any costs."""
    mean = float(np.average(rewards.sum(axis=1), weights=weights))
    return rewards / mean if mean > 0 else rewards


def _sum_rewards(costs: Matrix) -> Matrix:
    """Return sum rewards; negative costs are first raised by a constant, keeping regrets."""
    raised = costs - min(0.0, float(costs.min()))
    return np.asarray(raised.sum(axis=1, keepdims=True) - raised)
