"""The losses as PyTorch modules of scores and costs, for use in a training loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses._checks import as_costs, check_margins
from mildroute.losses.cost_sensitive import Form, Psi, cost_sensitive_loss, label_costs
from mildroute.losses.functional import cross_entropy, deferral_loss, ldam_loss, tdef_loss
from mildroute.losses.margins import reward_mass, theory_margins, winner_counts
from mildroute.losses.reduction import Reduction
from mildroute.losses.rewards import Reward, complement_rewards, complement_scale, rewards_of

__all__ = [
    "CostSensitiveLoss",
    "CrossEntropyLoss",
    "LDAMLoss",
    "MILDLoss",
    "MarginChoice",
    "TDEFLoss",
]


# Margins by name: ``"theory"`` for the paper's margins, from its m_k; ``"winner_counts"`` for the
# same with the number of wins as m_k; ``"uniform"`` for margins of 1.
MarginChoice: TypeAlias = Literal["theory", "winner_counts", "uniform"]


class MILDLoss(nn.Module):
    """The paper's deferral loss: rewards from the costs, and a confidence margin for each expert.

    The loss is ``sum_k w_k * log sum_j exp((f_j - f_k) / rho_k)``, where w are a row's rewards.
    With one-hot rewards, the paper's case C(x) = 1, this is the IMMAX loss for imbalanced classes
    (Cortes et al., 2025).

    If margins differ, the largest score is not the best choice, even at the loss's minimum. Decide
    with ``choose(scores, loss.margins)``.

    Args:
        margins: Margin of each expert, shape (p,), positive.
        reward: ``"sum"`` (the paper's), ``"complement"`` or ``"gap"``.
        reward_scale: Largest cost that the complement reward can represent; ignored by the others.
        tau: Parameter of the comp-sum family; 1 is the paper's logistic loss.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
        >>> loss = MILDLoss.from_costs(costs)
        >>> loss
        MILDLoss(margins=[0.3608, 0.3349, 0.3043], reward='sum', tau=1)
        >>> scores = torch.zeros(3, 3, requires_grad=True)
        >>> loss(scores, costs).backward()
        >>> scores.grad.argmin(dim=1)  # the scores that should rise most
        tensor([0, 1, 0])
    """

    margins: Tensor

    def __init__(
        self,
        margins: Tensor | Sequence[float],
        *,
        reward: Reward = "sum",
        reward_scale: float = 1.0,
        tau: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.register_buffer("margins", _as_margins(margins))
        self.reward = _check_reward(reward)
        self.reward_scale = reward_scale
        self.tau = tau
        self.reduction: Reduction = reduction

    @classmethod
    def from_costs(
        cls,
        costs: object,
        *,
        reward: Reward = "sum",
        margins: MarginChoice | Tensor | Sequence[float] = "theory",
        tau: float = 1.0,
        reduction: Reduction = "mean",
    ) -> MILDLoss:
        """Create the loss with margins and the complement's scale from the training rows.

        Args:
            costs: Costs of all training rows, shape (n, p): nested lists, an array or a tensor.
            reward: ``"sum"`` (the paper's), ``"complement"`` or ``"gap"``.
            margins: ``"theory"``, the paper's, which sum to 1; ``"winner_counts"``, the same with
                the number of wins for m_k; ``"uniform"``, 1 for each; or p positive numbers.
            tau: Parameter of the comp-sum family; 1 is the paper's logistic loss.
            reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        """
        cost_matrix = as_costs(costs)
        scale = complement_scale(cost_matrix)
        rewards = rewards_of(cost_matrix, reward, scale=scale)
        values = _margins_of(margins, reward_mass(rewards), winner_counts(cost_matrix))
        return cls(values, reward=reward, reward_scale=scale, tau=tau, reduction=reduction)

    def forward(self, scores: Tensor, costs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            scores: Router outputs, shape (n, p).
            costs: Cost of each expert on each row, shape (n, p).
            weights: Weight of each row, shape (n,).
        """
        rewards = rewards_of(costs, self.reward, scale=self.reward_scale)
        return deferral_loss(
            scores, rewards, self.margins, tau=self.tau, weights=weights, reduction=self.reduction
        )

    def extra_repr(self) -> str:
        """Describe the margins, the reward and tau."""
        return f"margins={_rounded(self.margins)}, reward={self.reward!r}, tau={self.tau:g}"


class TDEFLoss(nn.Module):
    """The loss of two-stage deferral (TDEF; Mao et al., 2023): complement rewards, margins of 1.

    Args:
        reward_scale: Largest cost that can occur; costs are divided by it.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [0.4, 0.1]])
        >>> TDEFLoss.from_costs(costs)(torch.zeros(2, 2), costs)
        tensor(0.8664)
    """

    def __init__(self, *, reward_scale: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reward_scale = reward_scale
        self.reduction: Reduction = reduction

    @classmethod
    def from_costs(cls, costs: object, *, reduction: Reduction = "mean") -> TDEFLoss:
        """Create the loss with the rewards' scale from the training rows, shape (n, p)."""
        return cls(reward_scale=complement_scale(as_costs(costs)), reduction=reduction)

    def forward(self, scores: Tensor, costs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; arguments as in :meth:`MILDLoss.forward`."""
        rewards = complement_rewards(costs, self.reward_scale)
        return tdef_loss(scores, rewards, weights=weights, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Describe the rewards' scale."""
        return f"reward_scale={self.reward_scale:g}"


class CrossEntropyLoss(nn.Module):
    """The cross-entropy on each row's cheapest expert; ties are split equally.

    Unlike ``torch.nn.CrossEntropyLoss``, it takes costs instead of labels. It ignores the margin by
    which the cheapest expert wins.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> CrossEntropyLoss()(torch.zeros(1, 2), torch.tensor([[0.1, 0.9]]))
        tensor(0.6931)
    """

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction: Reduction = reduction

    def forward(self, scores: Tensor, costs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; arguments as in :meth:`MILDLoss.forward`."""
        return cross_entropy(scores, -costs, weights=weights, reduction=self.reduction)


class LDAMLoss(nn.Module):
    """The LDAM loss on the cheapest expert (Cao et al., 2019): rare winners need larger margins.

    Args:
        counts: Number of training rows that each expert wins, shape (p,).
        s: Scale of the scores.
        max_margin: Margin of the rarest winner.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> LDAMLoss.from_costs(costs, s=1.0, max_margin=1.0)(torch.zeros(2, 2), costs)
        tensor(1.3133)
    """

    counts: Tensor

    def __init__(
        self,
        counts: Tensor | Sequence[float],
        *,
        s: float = 30.0,
        max_margin: float = 0.5,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.register_buffer("counts", torch.as_tensor(counts, dtype=torch.get_default_dtype()))
        self.s = s
        self.max_margin = max_margin
        self.reduction: Reduction = reduction

    @classmethod
    def from_costs(
        cls,
        costs: object,
        *,
        s: float = 30.0,
        max_margin: float = 0.5,
        reduction: Reduction = "mean",
    ) -> LDAMLoss:
        """Create the loss with the number of wins on the training rows, shape (n, p)."""
        return cls(winner_counts(as_costs(costs)), s=s, max_margin=max_margin, reduction=reduction)

    def forward(self, scores: Tensor, costs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; arguments as in :meth:`MILDLoss.forward`."""
        return ldam_loss(
            scores,
            -costs,
            self.counts,
            s=self.s,
            max_margin=self.max_margin,
            weights=weights,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Describe the scale and the largest margin."""
        return f"s={self.s:g}, max_margin={self.max_margin:g}"


class CostSensitiveLoss(nn.Module):
    """The loss of the paper's general algorithm, with its own cost c(x, k, j) for every confusion.

    The loss is ``max_{j != k} c(x, k, j) * Psi((f_k - f_j) / rho_k)`` for a row with the label k.
    Add a squared norm of the weights, such as an optimizer's weight decay, to get the paper's
    algorithm.

    Args:
        margins: Margin of each label, shape (p,), positive.
        costs: c(k, j) if it does not depend on the row, shape (p, p); `None` (the default) if
            ``forward`` receives each row's costs.
        psi: ``"comp-sum"`` or ``"hinge"``.
        tau: Parameter of the comp-sum family; 1 is logistic.
        form: ``"max"``, or ``"smooth"`` for the paper's bound on the maximum.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0, 0.2], [0.5, 0.0, 1.0], [1.0, 1.0, 0.0]])
        >>> loss = CostSensitiveLoss.from_labels(torch.tensor([0, 0, 1, 2]), costs=costs)
        >>> loss(torch.zeros(2, 3), torch.tensor([0, 1]))
        tensor(0.6931)
    """

    margins: Tensor
    costs: Tensor | None

    def __init__(
        self,
        margins: Tensor | Sequence[float],
        *,
        costs: Tensor | None = None,
        psi: Psi = "comp-sum",
        tau: float = 1.0,
        form: Form = "max",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.register_buffer("margins", _as_margins(margins))
        self.register_buffer("costs", costs)
        if costs is not None and costs.shape != (len(self.margins), len(self.margins)):
            raise ShapeError(
                f"costs must be ({len(self.margins)}, {len(self.margins)}), one row per label, got"
                f" shape {tuple(costs.shape)}."
            )
        self.psi: Psi = psi
        self.tau = tau
        self.form: Form = form
        self.reduction: Reduction = reduction

    @classmethod
    def from_labels(
        cls,
        labels: Tensor,
        *,
        costs: Tensor,
        margins: MarginChoice | Tensor | Sequence[float] = "theory",
        psi: Psi = "comp-sum",
        tau: float = 1.0,
        form: Form = "max",
        reduction: Reduction = "mean",
    ) -> CostSensitiveLoss:
        """Create the loss with margins from the training labels.

        Args:
            labels: Label of each training row, shape (n,).
            costs: c(k, j), shape (p, p).
            margins: ``"theory"``, the paper's, from the m_k rows with each label; they sum to 1.
                ``"uniform"``, 1 for each label; or p positive numbers.
            psi: ``"comp-sum"`` or ``"hinge"``.
            tau: Parameter of the comp-sum family; 1 is logistic.
            form: ``"max"``, or ``"smooth"`` for the paper's bound on the maximum.
            reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        """
        counts = torch.bincount(labels, minlength=costs.shape[-1]).double()
        values = _margins_of(margins, counts, counts)
        return cls(values, costs=costs, psi=psi, tau=tau, form=form, reduction=reduction)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        costs: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            scores: Outputs, shape (n, p).
            labels: Label k of each row, shape (n,).
            costs: c(x, k, j) of the row's label, shape (n, p), or of every label, shape (n, p, p);
                `None` uses the constructor's costs.
            weights: Weight of each row, shape (n,).
        """
        if costs is None:
            if self.costs is None:
                raise ArgumentError(
                    "costs must be given for each batch, or once: CostSensitiveLoss(margins,"
                    " costs=...), shape (p, p)."
                )
            costs = self.costs[labels]
        elif costs.ndim == 3:
            costs = label_costs(costs, labels)
        return cost_sensitive_loss(
            scores,
            labels,
            costs,
            self.margins,
            psi=self.psi,
            tau=self.tau,
            form=self.form,
            weights=weights,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Describe the margins and the function of the margin."""
        psi = self.psi if self.psi == "hinge" else f"{self.psi}, tau={self.tau:g}"
        return f"margins={_rounded(self.margins)}, psi={psi}, form={self.form!r}"


def _as_margins(margins: Tensor | Sequence[float]) -> Tensor:
    values = torch.as_tensor(margins, dtype=torch.get_default_dtype())
    check_margins(values, values.shape[-1] if values.ndim else 1)
    return values


def _margins_of(
    margins: MarginChoice | Tensor | Sequence[float], mass: Tensor, wins: Tensor
) -> Tensor | Sequence[float]:
    if not isinstance(margins, str):
        if len(margins) != len(mass):
            raise ShapeError(
                f"margins must be ({len(mass)},), one per expert, got {len(margins)} numbers."
            )
        return margins
    if margins not in get_args(MarginChoice):
        raise ArgumentError(
            f"margins must be {', '.join(get_args(MarginChoice))} or p numbers, got {margins!r}."
        )
    if margins == "uniform":
        return torch.ones_like(mass)
    return theory_margins(mass if margins == "theory" else wins)


def _check_reward(reward: Reward) -> Reward:
    if reward not in get_args(Reward):
        raise ArgumentError(f"reward must be one of {', '.join(get_args(Reward))}, got {reward!r}.")
    return reward


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
