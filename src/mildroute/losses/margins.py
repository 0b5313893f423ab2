"""Confidence margins: the score differences by which experts should win.

The paper draws an input and then a label k from p(k | x), which is proportional to the rewards, and
m_k is the number of rows with the label k. :func:`reward_mass` returns the expected counts.
:func:`winner_counts` assigns each row to its winner instead. Both agree for one-hot rewards, and
differ widely for the sum reward, under which every expert is a likely label of every row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses._checks import check_costs, check_margins, check_weights
from mildroute.losses.rewards import winner_targets

__all__ = ["feature_norms", "reward_mass", "smoothed_win_counts", "theory_margins", "winner_counts"]


def winner_counts(costs: Tensor) -> Tensor:
    """Count the rows on which each expert is best; tied experts share a row equally.

    This is an alternative to :func:`reward_mass`, the paper's m_k, that does not depend on the
    reward. With the sum reward and the argmax decision, theory margins from winner counts choose
    wrong experts once one expert wins much more often than another; see the page on margins.

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
    expected number of rows with each label. A row without rewards has no label and no weight in
    the loss, so it counts for no expert.

    Args:
        rewards: Rewards, shape (n, p), not negative.
        weights: Weight of each row, shape (n,); defaults to 1.

    Returns:
        Expected counts, shape (p,); they sum to the number of rows with a reward.

    Example:
        >>> from mildroute.losses import gap_rewards, sum_rewards
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

    A row may carry the label k if it has a reward for k. Under the sum reward, nearly every row may
    carry every label, so a linear router's X_k are equal and :func:`theory_margins` may ignore
    them. They differ if rewards are zero, or if each expert has its own features.

    Args:
        features: Features of each row, shape (n, d), with the 1 of an intercept if there is one.
        rewards: Rewards, shape (n, p), not negative.

    Returns:
        Norms, shape (p,). An expert without rewards gets the largest norm of all rows.

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
    """Replace each zero count by half of the smallest positive count.

    This keeps margins and class weights positive and finite. If all counts are zero, all become 1.
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
    """Return the margins with a given sum that minimize the complexity term of the paper's bound.

    ``rho_k = scale * (m_k X_k^2)^(1/3) / sum_j (m_j X_j^2)^(1/3) + offset``.

    ``scale`` is the paper's rho-bar, the sum of the margins. Its experiments start from a sum of 1
    and search around it. An exponent of 0 makes all margins equal.

    Args:
        counts: The m_k, shape (p,): :func:`reward_mass` for the paper's, or :func:`winner_counts`.
        exponent: Exponent of the counts; 1/3 in the paper.
        scale: Sum of the margins before the offset.
        offset: Constant to add to each margin; a large offset makes them nearly equal.
        norms: Norm bound X_k of each expert's features, shape (p,), such as :func:`feature_norms`;
            defaults to equal norms, as for a linear router.
        distinct: Number of experts with their own margin: the experts with the largest
            ``m_k X_k^2``. The others share the margin of their mean term, which is the best shared
            margin, as the paper suggests for many experts. `None` gives each expert its own.

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
        shared = terms.argsort(descending=True, stable=True)[distinct:]
        terms = terms.index_fill(0, shared, float(terms[shared].mean()) if len(shared) else 1.0)
    powered = terms**exponent
    margins = scale * powered / powered.sum() + offset
    check_margins(margins, len(margins))
    return margins
