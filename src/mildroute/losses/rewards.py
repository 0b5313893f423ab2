"""Rewards from costs, and margins from counts of wins."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.losses._tensors import check_costs, check_margins

__all__ = [
    "Reward",
    "complement_rewards",
    "complement_scale",
    "gap_rewards",
    "reward_mass",
    "rewards_of",
    "smoothed_win_counts",
    "sum_rewards",
    "theory_margins",
    "winner_counts",
    "winner_targets",
]


# Rewards: what a row's costs say in favor of each expert.
#
# For any constant m of a row, ``sum_k (m - c_k) * 1[choice != k]`` is the cost of the choice plus
# a constant, so all three rewards have the deferral loss as their target. Their surrogates
# differ: see each function.


# Name of a reward.
Reward: TypeAlias = Literal["sum", "complement", "gap"]


def sum_rewards(costs: Tensor) -> Tensor:
    """Reward of an expert: the summed costs of all others (the paper's Lemma 1).

    For more than two experts it is close to uniform and acts like strong label smoothing.

    Args:
        costs: Cost of each expert on each row, shape (n, p), not negative.

    Returns:
        Rewards, shape (n, p).

    Example:
        >>> import torch
        >>> sum_rewards(torch.tensor([[0.0, 1.0, 1.0]]))
        tensor([[2., 1., 1.]])
    """
    _refuse_negative(costs)
    return costs.sum(dim=1, keepdim=True) - costs


def complement_scale(costs: Tensor) -> float:
    """The constant that brings costs below 1: the largest cost, and at least 1.

    Fix it on the training set and keep it with the router, so that rewards mean the same on every
    row.

    Example:
        >>> import torch
        >>> complement_scale(torch.tensor([[0.0, 1.6], [0.1, 1.0]]))
        1.600000023841858
        >>> complement_scale(torch.tensor([[0.0, 0.5]]))
        1.0
    """
    return max(1.0, float(check_costs(costs).max())) if costs.numel() else 1.0


def complement_rewards(costs: Tensor, scale: float) -> Tensor:
    """Reward of an expert: one minus its cost over ``scale`` (the paper's Lemma 2, used by TDEF).

    Args:
        costs: Cost of each expert on each row, shape (n, p), none above ``scale``.
        scale: The constant of :func:`complement_scale`.

    Returns:
        Rewards, shape (n, p), not negative.

    Example:
        >>> import torch
        >>> complement_rewards(torch.tensor([[0.0, 1.0, 2.0]]), scale=2.0)
        tensor([[1.0000, 0.5000, 0.0000]])
    """
    check_costs(costs)
    if not scale > 0:
        raise ArgumentError(f"scale must be positive, got {scale}; take complement_scale(costs).")
    if costs.numel() and float(costs.max()) > scale * (1 + 1e-6):
        raise CostError(
            f"costs must not exceed the scale {scale}, got {float(costs.max())}; fix the scale on"
            " all training rows, or use the gap reward."
        )
    return (1 - costs / scale).clamp_min(0)


def gap_rewards(costs: Tensor) -> Tensor:
    """Reward of an expert: the row's largest cost minus its own.

    Not negative for any real costs; a row on which all experts cost the same gets no weight at all.

    Args:
        costs: Cost of each expert on each row, shape (n, p).

    Returns:
        Rewards, shape (n, p), with a zero in every row.

    Example:
        >>> import torch
        >>> gap_rewards(torch.tensor([[0.0, 1.0, 1.0], [0.3, 0.3, 0.3]]))
        tensor([[1., 0., 0.],
                [0., 0., 0.]])
    """
    check_costs(costs)
    return costs.amax(dim=1, keepdim=True) - costs


def rewards_of(costs: Tensor, reward: Reward, *, scale: float | None = None) -> Tensor:
    """Rewards by name.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        reward: ``"sum"``, ``"complement"`` or ``"gap"``.
        scale: Needed by ``"complement"`` alone: the constant of :func:`complement_scale`.

    Returns:
        Rewards, shape (n, p).

    Example:
        >>> import torch
        >>> rewards_of(torch.tensor([[0.0, 1.0, 1.0]]), "complement", scale=1.0)
        tensor([[1., 0., 0.]])
    """
    if reward == "complement":
        if scale is None:
            raise ArgumentError(
                "the complement reward needs its scale, got None; pass"
                " scale=complement_scale(training_costs)."
            )
        return complement_rewards(costs, scale)
    if reward not in get_args(Reward):
        raise ArgumentError(f"reward must be one of {', '.join(get_args(Reward))}, got {reward!r}.")
    return sum_rewards(costs) if reward == "sum" else gap_rewards(costs)


def winner_targets(rewards: Tensor) -> Tensor:
    """Share of each expert in winning a row: 1 for the single best one, ties split equally.

    Args:
        rewards: Rewards (or negated costs), shape (n, p); the largest wins.

    Returns:
        Targets, shape (n, p), rows sum to 1.

    Example:
        >>> import torch
        >>> winner_targets(torch.tensor([[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]]))
        tensor([[0.5000, 0.0000, 0.5000],
                [0.0000, 1.0000, 0.0000]])
    """
    best = (rewards == rewards.amax(dim=1, keepdim=True)).to(rewards.dtype)
    return best / best.sum(dim=1, keepdim=True)


def _refuse_negative(costs: Tensor) -> None:
    if check_costs(costs).numel() and float(costs.min()) < 0:
        raise CostError(
            f"the sum reward needs costs of at least 0, got {float(costs.min())}; add a constant,"
            " or use the gap reward."
        )


# Confidence margins: how much each expert should win by, from how often it wins.


def winner_counts(costs: Tensor) -> Tensor:
    """How often each expert is the best one; a tie counts equally for all who share it.

    Args:
        costs: Cost of each expert on each row, shape (n, p).

    Returns:
        Counts, shape (p,); they sum to n.

    Example:
        >>> winner_counts(torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.5, 1.0]]))
        tensor([1.5000, 0.5000, 0.0000])
    """
    return winner_targets(-check_costs(costs)).sum(dim=0)


def reward_mass(rewards: Tensor) -> Tensor:
    """Total reward of each expert, the soft version of :func:`winner_counts`.

    Args:
        rewards: Rewards, shape (n, p).

    Returns:
        Mass, shape (p,).

    Example:
        >>> reward_mass(torch.tensor([[2.0, 1.0], [0.0, 0.5]]))
        tensor([2.0000, 1.5000])
    """
    return rewards.sum(dim=0)


def smoothed_win_counts(counts: Tensor) -> Tensor:
    """Counts in which an expert that never wins has half of the smallest positive count.

    So margins and class weights stay positive and finite; if no expert ever wins, all count 1.
    """
    wins = counts > 0
    if not bool(wins.any()):
        return torch.ones_like(counts)
    return torch.where(wins, counts, counts[wins].min() / 2)


def theory_margins(
    counts: Tensor,
    *,
    exponent: float = 1 / 3,
    scale: float = 1.0,
    offset: float = 0.0,
    norms: Tensor | None = None,
) -> Tensor:
    """Margins close to those that minimize the paper's bound.

    ``scale * share((m_k X_k^2) ** exponent) + offset``.

    Shares sum to 1. An exponent of 1/3, scale 1 and offset 0 are the paper's; an exponent of 0
    makes all margins equal.

    Args:
        counts: How often each expert wins, or its reward mass, shape (p,).
        exponent: Power of the counts.
        scale: What the margins sum to before the offset.
        offset: Added to each margin; a large one makes them nearly equal.
        norms: Norm bound X_k of each expert's features, shape (p,); 1 by default.

    Returns:
        Margins, shape (p,), positive and finite.

    Example:
        >>> theory_margins(torch.tensor([27.0, 8.0, 1.0]))
        tensor([0.5000, 0.3333, 0.1667])
    """
    if counts.ndim != 1:
        raise ShapeError(
            f"counts must be (p,), got shape {tuple(counts.shape)}; take winner_counts(costs) or"
            " reward_mass(rewards)."
        )
    if not (bool(torch.isfinite(counts).all()) and bool((counts >= 0).all())):
        raise ArgumentError(
            f"counts must be finite and not negative, got {counts.tolist()}; take"
            " winner_counts(costs)."
        )
    if norms is not None and norms.shape != counts.shape:
        raise ShapeError(
            f"norms must be ({len(counts)},), one per expert, got shape {tuple(norms.shape)}."
        )
    mass = smoothed_win_counts(
        counts.to(torch.get_default_dtype()) if not counts.is_floating_point() else counts
    )
    powered = (mass / mass.max() * (1 if norms is None else norms.to(mass.dtype) ** 2)) ** exponent
    margins = scale * powered / powered.sum() + offset
    check_margins(margins, len(margins))
    return margins
