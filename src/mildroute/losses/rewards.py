"""Rewards from costs, and margins from the rewards."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.losses._tensors import check_costs, check_margins, check_weights

__all__ = [
    "Reward",
    "complement_rewards",
    "complement_scale",
    "feature_norms",
    "gap_rewards",
    "reward_mass",
    "rewards_of",
    "smoothed_win_counts",
    "sum_rewards",
    "theory_margins",
    "winner_counts",
    "winner_targets",
]


# Rewards: the evidence of a row's costs in favor of each expert.
#
# For any constant m of a row, ``sum_k (m - c_k) * 1[choice != k]`` is the cost of the choice plus a
# constant, so all three rewards have the deferral loss as their target. Their surrogates differ:
# see each function.


# Name of a reward.
Reward: TypeAlias = Literal["sum", "complement", "gap"]


def sum_rewards(costs: Tensor) -> Tensor:
    """Return the reward of each expert: the summed costs of all others (the paper's Lemma 1).

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
    _refuse_negative(costs)
    return costs.sum(dim=1, keepdim=True) - costs


def complement_scale(costs: Tensor) -> float:
    """Return the constant that scales costs to at most 1: the largest cost, and at least 1.

    Fix it on the training set and store it with the router, so that rewards mean the same on every
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
    """Return rewards of one minus the cost over ``scale`` (the paper's Lemma 2, used by TDEF).

    Args:
        costs: Cost of each expert on each row, shape (n, p), at most ``scale``.
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
    """Return the reward of each expert: the row's largest cost minus its own.

    Rewards are not negative for any real costs; a row on which all experts cost the same has no
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
        scale: The constant of :func:`complement_scale`, required by ``"complement"`` only.

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
    """Return shares in winning a row: 1 for the single best expert, ties split equally.

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


# Confidence margins: how clearly each expert should win, given its number of labels.
#
# The paper draws an input and then a label k from p(k | x), which is proportional to the rewards,
# and m_k is the number of rows with the label k. :func:`reward_mass` is the expected count.
# :func:`winner_counts` assigns each row to its winner alone. That is the same for one-hot rewards,
# and far from it for the sum reward, under which every expert is a likely label of every row.


def winner_counts(costs: Tensor) -> Tensor:
    """Count how often each expert is the best one; tied experts share the row equally.

    This is an alternative to :func:`reward_mass`, the paper's m_k, and unlike it does not depend on
    the reward. Theory margins of winner counts with the sum reward and the largest score choose
    wrongly as soon as one expert wins much more often than another: see the page on margins.

    Args:
        costs: Cost of each expert on each row, shape (n, p).

    Returns:
        Counts, shape (p,); they sum to n.

    Example:
        >>> winner_counts(torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.5, 1.0]]))
        tensor([1.5000, 0.5000, 0.0000])
    """
    return winner_targets(-check_costs(costs)).sum(dim=0)


def reward_mass(rewards: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the paper's m_k: ``sum_i rewards[i, k] / sum_j rewards[i, j]``.

    The paper labels each row with one expert, drawn in proportion to the row's rewards. This is the
    expected number of rows with each label. A row without any reward has no label and no weight in
    the loss, so it counts for no expert.

    Args:
        rewards: Rewards, shape (n, p), not negative.
        weights: Weight of each row, shape (n,); defaults to 1.

    Returns:
        Expected counts, shape (p,); they sum to the number of rows with a reward.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
        >>> reward_mass(sum_rewards(costs))
        tensor([1.2500, 1.0000, 0.7500])
        >>> reward_mass(gap_rewards(costs))
        tensor([2., 1., 0.])
    """
    _check_matrix(rewards)
    total = rewards.sum(dim=1, keepdim=True)
    labels = rewards / torch.where(total > 0, total, 1)
    if weights is None:
        return labels.sum(dim=0)
    check_weights(weights, len(rewards))
    return weights.to(labels.dtype) @ labels


def feature_norms(features: Tensor, rewards: Tensor) -> Tensor:
    """Return the norm bounds X_k: the largest feature norm among the rows that may carry label k.

    A row may carry the label k if it has a reward for k. Under the sum reward nearly every row does
    for every expert, so a linear router has equal X_k, and :func:`theory_margins` may ignore them.
    They differ if rewards are zero, or if each expert has its own features.

    Args:
        features: Features of each row, shape (n, d), with the 1 of an intercept if there is one.
        rewards: Rewards, shape (n, p), not negative.

    Returns:
        Norms, shape (p,). An expert without any reward has the largest norm of all rows.

    Example:
        >>> features = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
        >>> feature_norms(features, torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
        tensor([5., 1.])
    """
    _check_matrix(rewards)
    if features.ndim != 2 or len(features) != len(rewards):
        raise ShapeError(
            f"features must be ({len(rewards)}, d), one row per row of the rewards, got shape"
            f" {tuple(features.shape)}."
        )
    norms = features.norm(dim=1)[:, None].expand(rewards.shape)
    labeled = norms.where(rewards > 0, 0).amax(dim=0)
    return torch.where((rewards > 0).any(dim=0), labeled, norms.amax())


def _check_matrix(rewards: Tensor) -> None:
    if rewards.ndim != 2:
        raise ShapeError(
            f"rewards must be (n, p), got shape {tuple(rewards.shape)}; one column per expert."
        )


def smoothed_win_counts(counts: Tensor) -> Tensor:
    """Replace each count of zero by half of the smallest positive one.

    Margins and class weights thus stay positive and finite. If all counts are zero, all become 1.
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
    distinct: int | None = None,
) -> Tensor:
    """Return the margins of a given sum that minimize the complexity term of the paper's bound.

    ``rho_k = scale * (m_k X_k^2)^(1/3) / sum_j (m_j X_j^2)^(1/3) + offset``.

    ``scale`` is the paper's rho-bar, the sum of the margins. Its experiments start from a sum of 1
    and search around it. An exponent of 0 makes all margins equal.

    Args:
        counts: The m_k, shape (p,): :func:`reward_mass` for the paper's, or :func:`winner_counts`.
        exponent: Power of the counts; 1/3 is the paper's.
        scale: Sum of the margins before the offset.
        offset: Added to each margin; a large one makes them nearly equal.
        norms: Norm bound X_k of each expert's features, shape (p,), such as :func:`feature_norms`;
            defaults to equal ones, as for a linear router.
        distinct: Number of experts with their own margin, those of the largest ``m_k X_k^2``. All
            others share one margin, as the paper suggests for many experts: that of their mean,
            which is the best shared one. `None` gives every expert its own.

    Returns:
        Margins, shape (p,), positive and finite.

    Example:
        >>> theory_margins(torch.tensor([27.0, 8.0, 1.0]))
        tensor([0.5000, 0.3333, 0.1667])
        >>> theory_margins(torch.tensor([27.0, 1.5, 0.5]), distinct=1)
        tensor([0.6000, 0.2000, 0.2000])
    """
    if counts.ndim != 1:
        raise ShapeError(
            f"counts must be (p,), got shape {tuple(counts.shape)}; take reward_mass(rewards) or"
            " winner_counts(costs)."
        )
    if not (bool(torch.isfinite(counts).all()) and bool((counts >= 0).all())):
        raise ArgumentError(
            f"counts must be finite and not negative, got {counts.tolist()}; take"
            " reward_mass(rewards)."
        )
    if norms is not None and norms.shape != counts.shape:
        raise ShapeError(
            f"norms must be ({len(counts)},), one per expert, got shape {tuple(norms.shape)}."
        )
    if distinct is not None and not 0 <= distinct <= len(counts):
        raise ArgumentError(
            f"distinct must be between 0 and {len(counts)}, the number of experts, got {distinct}."
        )
    mass = smoothed_win_counts(
        counts.to(torch.get_default_dtype()) if not counts.is_floating_point() else counts
    )
    terms = mass / mass.max() * (1 if norms is None else norms.to(mass.dtype) ** 2)
    if distinct is not None:
        rare = terms.argsort(descending=True, stable=True)[distinct:]
        terms = terms.index_fill(0, rare, float(terms[rare].mean()) if len(rare) else 1.0)
    powered = terms**exponent
    margins = scale * powered / powered.sum() + offset
    check_margins(margins, len(margins))
    return margins
