"""What costs say in favour of each expert, and margins from how often it wins: the core in NumPy, so that fitting needs no torch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["THEORY", "MarginRule", "margins_by", "margins_of_wins", "positive_wins", "rewards_of_raised", "scaled_rewards", "winner_shares"]


class MarginRule(NamedTuple):
    """Margins ``share(wins ** exponent) + offset``.

    Example:
        >>> MarginRule(1 / 3).offset
        0.0
    """

    exponent: float
    offset: float = 0.0


THEORY = MarginRule(1 / 3)
"""The paper's margins: wins to the power of a third."""


def rewards_of_raised(raised: NDArray[np.float64], name: str, largest: float) -> NDArray[np.float64]:
    """Rewards by name, in no particular unit.

    Args:
        raised: Costs of some rows, none below 0, shape (n, p).
        name: ``"gap"``, ``"complement"`` or ``"sum"``, as in :mod:`mildroute.core.rewards`.
        largest: Largest raised cost of all rows.

    Returns:
        Shape (n, p), not negative.

    Example:
        >>> rewards_of_raised(np.array([[0.0, 1.0, 2.0]]), "sum", 2.0)
        array([[3., 2., 1.]])
    """
    if name == "gap":
        return np.asarray(raised.max(axis=1, keepdims=True) - raised)
    if name == "complement":
        return np.asarray(1 - raised / max(1.0, largest))
    return np.asarray(raised.sum(axis=1, keepdims=True) - raised)


def scaled_rewards(costs: NDArray[np.float64], name: str, sample_weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Rewards by name; their mean row sum is 1, so that the scale of the costs does not matter.

    Args:
        costs: Shape (n, p).
        name: ``"gap"``, ``"complement"`` or ``"sum"``, as in :mod:`mildroute.core.rewards`.
        sample_weight: Weight of each row, shape (n,), or none.

    Returns:
        Shape (n, p), not negative; equal where no row says anything.

    Example:
        >>> scaled_rewards(np.array([[0.0, 1.0, 1.0]]), "gap", None), scaled_rewards(np.array([[0.0, 1.0, 1.0]]), "sum", None)
        (array([[1., 0., 0.]]), array([[0.5 , 0.25, 0.25]]))
    """
    raised = costs - min(costs.min(), 0.0)
    rewards = rewards_of_raised(raised, name, float(raised.max()))
    mean = float(np.average(rewards.sum(axis=1), weights=sample_weight))
    return np.asarray(rewards / mean) if mean > 0 else np.full(rewards.shape, 1 / rewards.shape[1])


def winner_shares(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of each expert in winning a row: 1 for the single best one, ties split equally; shape (n, p).

    Example:
        >>> winner_shares(np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]]))
        array([[0.5, 0. , 0.5],
               [0. , 1. , 0. ]])
    """
    best = (rewards == rewards.max(axis=1, keepdims=True)).astype(np.float64)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def margins_by(rule: MarginRule, rewards: NDArray[np.float64], sample_weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Margins of a rule, divided by their mean; rows on which all experts are equal have no winner.

    Args:
        rule: How wins become margins.
        rewards: Shape (n, p).
        sample_weight: Weight of each row, shape (n,), or none.

    Returns:
        Shape (p,), positive. An expert that never wins counts half as much as the one that wins most rarely.

    Example:
        >>> margins_by(MarginRule(1 / 3), np.repeat(np.eye(3), [27, 8, 1], axis=0)).round(3)
        array([1.5, 1. , 0.5])
    """
    decided = (np.ptp(rewards, axis=1) > 0).astype(np.float64)
    wins = (decided if sample_weight is None else decided * sample_weight) @ winner_shares(rewards)
    margins = margins_of_wins(rule, wins)
    return np.asarray(margins / margins.mean())


def margins_of_wins(rule: MarginRule, wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Margins of a rule from how often each expert wins, shape (p,); their shares sum to 1 before the offset.

    Example:
        >>> margins_of_wins(MarginRule(1 / 3, offset=1.0), np.array([27.0, 8.0, 1.0])).round(3)
        array([1.5  , 1.333, 1.167])
    """
    mass = positive_wins(wins)
    powered = (mass / mass.max()) ** rule.exponent
    return np.asarray(powered / powered.sum() + rule.offset)


def positive_wins(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Wins in which an expert that never wins has half of the smallest positive count; all 1 if nobody ever wins.

    Example:
        >>> positive_wins(np.array([8.0, 2.0, 0.0]))
        array([8., 2., 1.])
    """
    return np.where(wins > 0, wins, wins[wins > 0].min() / 2) if (wins > 0).any() else np.ones_like(wins)
