"""Surrogates of the deferral loss: convex or smooth functions of a router's scores.

All functions take scores and rewards of shape (n, p), optional row weights and a reduction, and
compute in at least float32 regardless of autocast.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses._checks import check_margins, check_scores, check_tau
from mildroute.losses._logsumexp import comp_sum, log_margin_sum, row_losses
from mildroute.losses._order import runner_up_score
from mildroute.losses._precision import full_precision, no_autocast
from mildroute.losses.margins import smoothed_win_counts
from mildroute.losses.reduction import Reduction, reduce_rows
from mildroute.losses.rewards import winner_targets

__all__ = [
    "cross_entropy",
    "deferral_loss",
    "hinge_loss",
    "ldam_loss",
    "pairwise_loss",
    "tdef_loss",
    "weighted_cross_entropy",
]


def deferral_loss(
    scores: Tensor,
    rewards: Tensor,
    margins: Tensor,
    *,
    tau: float = 1.0,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the surrogate of the chosen expert's cost; the paper's MILD loss at tau = 1.

    The loss is ``sum_k w_k * comp_sum(log sum_j exp((f_j - f_k) / rho_k))``. The sum over j is
    inside the comp-sum function for every tau, which is tighter than the paper's outer sum
    (:func:`pairwise_loss`) and equal to it for two experts. Differing margins move the minimizer:
    decide with :func:`mildroute.losses.decision.posterior`, not with the largest score.

    Args:
        scores: Router outputs, shape (n, p).
        rewards: Weight of each expert on each row, shape (n, p), not negative.
        margins: Confidence margin of each expert, shape (p,), positive.
        tau: Parameter of the comp-sum family, at least 0; 1 is logistic, convex for tau up to 1.
        weights: Weight of each row, shape (n,).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or shape (n,) for ``"none"``.

    Example:
        >>> deferral_loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), torch.ones(2))
        tensor(0.6931)
    """
    check_scores(scores, rewards)
    check_tau(tau)
    with no_autocast(scores):
        scores, rewards, margins = full_precision(scores, rewards, margins)
        return reduce_rows(row_losses(scores, rewards, margins, tau), weights, reduction)


def pairwise_loss(
    scores: Tensor,
    rewards: Tensor,
    margins: Tensor,
    *,
    tau: float = 1.0,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the paper's comp-sum loss with an outer sum.

    The loss is ``sum_k w_k sum_{j != k} comp_sum(log(1 + exp((f_j - f_k) / rho_k)))``.

    It takes p^2 operations per row. Arguments are as in :func:`deferral_loss`. For two experts
    the two losses are equal.

    Example:
        >>> rewards = torch.tensor([[1.0, 0.0, 0.0]])
        >>> pairwise_loss(torch.zeros(1, 3), rewards, torch.ones(3), tau=0.0)
        tensor(2.)
    """
    check_scores(scores, rewards)
    check_tau(tau)
    with no_autocast(scores):
        scores, rewards, margins = full_precision(scores, rewards, margins)
        _check_eager_margins(margins, scores.shape[1])
        pairs = comp_sum(
            -F.logsigmoid((scores[:, :, None] - scores[:, None, :]) / margins[:, None]), tau
        )
        is_same = torch.eye(scores.shape[1], dtype=torch.bool, device=scores.device)
        losses = (rewards * pairs.masked_fill(is_same, 0).sum(dim=2)).sum(dim=1)
        return reduce_rows(losses, weights, reduction)


def hinge_loss(
    scores: Tensor,
    rewards: Tensor,
    margins: Tensor,
    *,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the hinge loss ``sum_k w_k * max(0, 1 - (f_k - max_{j != k} f_j) / rho_k)``.

    Arguments are as in :func:`deferral_loss`. The loss bounds the deferral loss but, like every
    multi-class hinge, is not consistent.

    Example:
        >>> hinge_loss(torch.tensor([[3.0, 1.0]]), torch.ones(1, 2), torch.tensor([1.0, 2.0]))
        tensor(2.)
    """
    check_scores(scores, rewards)
    with no_autocast(scores):
        scores, rewards, margins = full_precision(scores, rewards, margins)
        _check_eager_margins(margins, scores.shape[1])
        lead = (scores - runner_up_score(scores)) / margins
        return reduce_rows((rewards * (1 - lead).clamp_min(0)).sum(dim=1), weights, reduction)


def tdef_loss(
    scores: Tensor, rewards: Tensor, *, weights: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """Return the TDEF loss (Mao et al., 2023), the logistic deferral loss with margins of 1.

    It is meant for complement rewards.

    Arguments are as in :func:`deferral_loss`.

    Example:
        >>> tdef_loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.5]]))
        tensor(1.0397)
    """
    return deferral_loss(
        scores, rewards, scores.new_ones(scores.shape[-1]), weights=weights, reduction=reduction
    )


def cross_entropy(
    scores: Tensor, rewards: Tensor, *, weights: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """Return the cross-entropy on each row's winner; ties are split, winning margins ignored.

    Arguments are as in :func:`deferral_loss`.

    Example:
        >>> cross_entropy(torch.zeros(1, 2), torch.tensor([[0.9, 0.1]]))
        tensor(0.6931)
    """
    check_scores(scores, rewards)
    return tdef_loss(scores, winner_targets(rewards), weights=weights, reduction=reduction)


def weighted_cross_entropy(
    scores: Tensor,
    rewards: Tensor,
    counts: Tensor,
    *,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the cross-entropy on the winner, experts weighted by ``sum(m) / (p * m_k)``.

    Args:
        scores: Router outputs, shape (n, p).
        rewards: Rewards, shape (n, p); the largest of a row wins.
        counts: Number of wins of each expert on the training set, shape (p,); a zero counts as half
            of the smallest positive count.
        weights: Weight of each row, shape (n,).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> rewards = torch.tensor([[0.0, 1.0]])
        >>> weighted_cross_entropy(torch.zeros(1, 2), rewards, torch.tensor([9.0, 1.0]))
        tensor(3.4657)
    """
    check_scores(scores, rewards)
    mass = _expert_counts(counts, scores)
    rarity = mass.sum() / (len(mass) * mass)
    return tdef_loss(scores, winner_targets(rewards) * rarity, weights=weights, reduction=reduction)


def ldam_loss(
    scores: Tensor,
    rewards: Tensor,
    counts: Tensor,
    *,
    s: float = 30.0,
    max_margin: float = 0.5,
    weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the LDAM loss (Cao et al., 2019) on the winner.

    This is the cross-entropy of ``s * scores`` after the winner's margin is subtracted from its
    score. Margins are ``counts ** -1/4``, scaled so that the largest is ``max_margin``.

    Args:
        scores: Router outputs, shape (n, p); LDAM's authors use cosines.
        rewards: Rewards, shape (n, p); the largest of a row wins, ties are split equally.
        counts: Number of wins of each expert on the training set, shape (p,); a zero counts as half
            of the smallest positive count.
        s: Scale of the scores.
        max_margin: Margin of the rarest expert.
        weights: Weight of each row, shape (n,).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Example:
        >>> rewards = torch.tensor([[1.0, 0.0]])
        >>> ldam_loss(torch.zeros(1, 2), rewards, torch.tensor([1.0, 1.0]), s=1.0, max_margin=1.0)
        tensor(1.3133)
    """
    check_scores(scores, rewards)
    if not (s > 0 and max_margin >= 0):
        raise ArgumentError(
            f"LDAM needs s > 0 and max_margin >= 0, got s={s} and max_margin={max_margin}."
        )
    with no_autocast(scores):
        scores, rewards = full_precision(scores, rewards)
        rarity = _expert_counts(counts, scores) ** -0.25
        handicap = s * max_margin * rarity / rarity.max()
        surprise = log_margin_sum(s * scores, torch.ones_like(handicap)).clamp_min(0)
        # log(1 + (e^surprise - 1) e^handicap), in a form that neither overflows nor divides by zero
        handicapped_surprise = (
            surprise
            + handicap
            + torch.log(-torch.expm1(-surprise) + torch.exp(-surprise - handicap))
        )
        return reduce_rows(
            (winner_targets(rewards) * handicapped_surprise).sum(dim=1), weights, reduction
        )


def _expert_counts(counts: Tensor, scores: Tensor) -> Tensor:
    if counts.shape != scores.shape[1:]:
        raise ShapeError(
            f"counts must be ({scores.shape[-1]},), one per expert, got shape"
            f" {tuple(counts.shape)}."
        )
    return smoothed_win_counts(
        counts.to(scores.device, torch.promote_types(scores.dtype, torch.float32))
    )


def _check_eager_margins(margins: Tensor, experts: int) -> None:
    if not torch.compiler.is_compiling():
        check_margins(margins, experts)
