"""Rewards: the evidence in favor of each expert, from a row's costs.

For any constant m per row, ``sum_k (m - c_k) * 1[choice != k]`` is the cost of the choice plus a
constant, so all three rewards have the deferral loss as their target. Their surrogates differ: see
each function.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from torch import Tensor

from mildroute.exceptions import ArgumentError, CostError
from mildroute.losses._checks import check_costs

__all__ = [
    "Reward",
    "complement_rewards",
    "complement_scale",
    "gap_rewards",
    "rewards_of",
    "sum_rewards",
    "winner_targets",
]


# Names of the rewards.
Reward: TypeAlias = Literal["sum", "complement", "gap"]


def sum_rewards(costs: Tensor) -> Tensor:
    """Return each expert's reward: the sum of the other experts' costs (the paper's Lemma 1).

    For more than two experts the rewards are close to uniform and act like strong label smoothing.

    Args:
        costs: Cost of each expert on each row, shape (n, p), not negative.

    Returns:
        Rewards, shape (n, p).

    Example:
        >>> import torch
        >>> sum_rewards(torch.tensor([[0.0, 1.0, 1.0]]))
        tensor([[2., 1., 1.]])
    """
    _check_nonnegative(costs)
    return costs.sum(dim=1, keepdim=True) - costs


def complement_scale(costs: Tensor) -> float:
    """Return the constant that scales costs to at most 1: the largest cost, or 1 if that is larger.

    Compute it on the training rows and store it with the router, so that all rows are scaled alike.

    Example:
        >>> import torch
        >>> complement_scale(torch.tensor([[0.0, 1.6], [0.1, 1.0]]))
        1.600000023841858
        >>> complement_scale(torch.tensor([[0.0, 0.5]]))
        1.0
    """
    return max(1.0, float(check_costs(costs).max())) if costs.numel() else 1.0


def complement_rewards(costs: Tensor, scale: float) -> Tensor:
    """Return the rewards ``1 - cost / scale`` (the paper's Lemma 2, used by TDEF).

    Args:
        costs: Cost of each expert on each row, shape (n, p), at most ``scale``.
        scale: The constant from :func:`complement_scale`.

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
    """Return each expert's reward: the row's largest cost minus the expert's own.

    Rewards are nonnegative for any real costs; a row on which all experts cost the same has no
    weight.

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
    """Return rewards by name.

    Args:
        costs: Cost of each expert on each row, shape (n, p).
        reward: ``"sum"``, ``"complement"`` or ``"gap"``.
        scale: The constant from :func:`complement_scale`, required only by ``"complement"``.

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
    """Return 1 for each row's best expert and 0 for the others; tied experts share the 1 equally.

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


def _check_nonnegative(costs: Tensor) -> None:
    if check_costs(costs).numel() and float(costs.min()) < 0:
        raise CostError(
            f"the sum reward needs costs of at least 0, got {float(costs.min())}; add a constant,"
            " or use the gap reward."
        )
