"""Confidence margins: how much each expert should win by, from how often it wins."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mildroute.core.checks import check_costs, check_margins
from mildroute.core.rewards import winner_targets
from mildroute.errors import ArgumentError, ShapeError

__all__ = ["MARGIN_GRID", "MarginSpec", "positive_counts", "reward_mass", "theory_margins", "winner_counts"]


@dataclass(frozen=True)
class MarginSpec:
    """One point of the margin search: ``scale * share(m_k ** exponent) + offset``.

    Example:
        >>> MarginSpec(exponent=1 / 3, scale=1.0, offset=2.0).offset
        2.0
    """

    exponent: float
    scale: float = 1.0
    offset: float = 0.0


MARGIN_GRID: tuple[MarginSpec, ...] = (
    MarginSpec(exponent=0.0),
    *(MarginSpec(exponent, offset=offset) for exponent in (1 / 6, 1 / 3) for offset in (0.0, 0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 5.0)),
)
"""The search grid: equal margins once, then both exponents at offsets 0 to 5.

The paper searches offsets -5 to 5 around shares that sum to 1; its negative ones give negative margins, so what is left of
its grid is here. Between 0 and 1 lie the points where the ratio of margins changes most. Scaling all margins together only
moves the penalty, so the scale stays 1.
"""


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


def positive_counts(counts: Tensor) -> Tensor:
    """Counts in which an expert that never wins has half of the smallest positive count.

    So margins and class weights stay positive and finite; if no expert ever wins, all count 1.

    Example:
        >>> positive_counts(torch.tensor([8.0, 2.0, 0.0]))
        tensor([8., 2., 1.])
    """
    wins = counts > 0
    if not bool(wins.any()):
        return torch.ones_like(counts)
    return torch.where(wins, counts, counts[wins].min() / 2)


def theory_margins(
    counts: Tensor, *, exponent: float = 1 / 3, scale: float = 1.0, offset: float = 0.0, norms: Tensor | None = None
) -> Tensor:
    """Margins close to those that minimise the paper's bound: ``scale * share((m_k X_k^2) ** exponent) + offset``.

    Shares sum to 1. An exponent of 1/3, scale 1 and offset 0 are the paper's; an exponent of 0 makes all margins equal.

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
        raise ShapeError(f"counts must be (p,), got shape {tuple(counts.shape)}; take winner_counts(costs) or reward_mass(rewards).")
    if not (bool(torch.isfinite(counts).all()) and bool((counts >= 0).all())):
        raise ArgumentError(f"counts must be finite and not negative, got {counts.tolist()}; take winner_counts(costs).")
    if norms is not None and norms.shape != counts.shape:
        raise ShapeError(f"norms must be ({len(counts)},), one per expert, got shape {tuple(norms.shape)}.")
    mass = positive_counts(counts.to(torch.get_default_dtype()) if not counts.is_floating_point() else counts)
    powered = (mass / mass.max() * (1 if norms is None else norms.to(mass.dtype) ** 2)) ** exponent
    margins = scale * powered / powered.sum() + offset
    check_margins(margins, len(margins))
    return margins
