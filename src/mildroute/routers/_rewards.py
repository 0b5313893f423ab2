"""Rewards from costs, and margins from rewards, in NumPy, so that fitting needs no torch."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray


class MarginRule(NamedTuple):
    """A rule that computes margins as ``share(counts ** exponent) + offset``.

    ``"reward_mass"`` counts by the summed reward distribution, as the paper does; see
    :func:`mildroute.losses.margins.reward_mass`. ``"winner_counts"`` assigns each row to its
    winners, and ``"decided_wins"`` does so only for rows on which some expert loses.
    """

    counts: Literal["reward_mass", "winner_counts", "decided_wins"]
    exponent: float
    offset: float = 0.0


# The paper's margins, and the same rule applied to wins. The paper's X_k are equal for linear
# scores.
THEORY = MarginRule("reward_mass", 1 / 3)
WINNER_COUNTS = MarginRule("winner_counts", 1 / 3)
# Rules by the names that users pass.
MARGIN_RULES = {"theory": THEORY, "winner_counts": WINNER_COUNTS}


def rewards_from_nonnegative(
    raised: NDArray[np.float64], name: str, largest: float
) -> NDArray[np.float64]:
    """Return rewards by name, without scaling.

    Args:
        raised: Costs of some rows, shape (n, p), all at least 0.
        name: ``"gap"``, ``"complement"`` or ``"sum"``, as in :mod:`mildroute.losses.rewards`.
        largest: Largest raised cost of all rows.
    """
    if name == "gap":
        return np.asarray(raised.max(axis=1, keepdims=True) - raised)
    if name == "complement":
        return np.asarray(1 - raised / max(1.0, largest))
    return np.asarray(raised.sum(axis=1, keepdims=True) - raised)


def scaled_rewards(
    costs: NDArray[np.float64], name: str, sample_weight: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return rewards by name, scaled to a mean row sum of 1 so that the unit of costs cancels out.

    Args:
        costs: Shape (n, p).
        name: ``"gap"``, ``"complement"`` or ``"sum"``, as in :mod:`mildroute.losses.rewards`.
        sample_weight: Weight of each row, shape (n,), or `None`.

    Returns:
        Shape (n, p), not negative; all equal if no row distinguishes the experts.
    """
    raised = costs - min(costs.min(), 0.0)
    rewards = rewards_from_nonnegative(raised, name, float(raised.max()))
    mean = float(np.average(rewards.sum(axis=1), weights=sample_weight))
    return np.asarray(rewards / mean) if mean > 0 else np.full(rewards.shape, 1 / rewards.shape[1])


def winner_targets(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each expert's share in winning each row, shape (n, p).

    The single best expert has share 1; ties are split equally.
    """
    best = (rewards == rewards.max(axis=1, keepdims=True)).astype(np.float64)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def reward_mass(
    rewards: NDArray[np.float64], sample_weight: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the paper's m_k, ``sum_i rewards[i, k] / sum_j rewards[i, j]``, shape (p,).

    Args:
        rewards: Shape (n, p), not negative. A row whose rewards are all 0 counts for no expert.
        sample_weight: Weight of each row, shape (n,); `None` weighs all rows equally.
    """
    total = rewards.sum(axis=1)
    share = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    return np.asarray((share if sample_weight is None else share * sample_weight) @ rewards)


def winner_counts(
    rewards: NDArray[np.float64], sample_weight: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Count how often each expert wins, shape (p,); ties are split equally."""
    weights = np.ones(len(rewards)) if sample_weight is None else sample_weight
    return np.asarray(weights @ winner_targets(rewards))


def decided_wins(
    rewards: NDArray[np.float64], sample_weight: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Count how often each expert wins a row on which not all experts are equal, shape (p,)."""
    decided = (np.ptp(rewards, axis=1) > 0).astype(np.float64)
    return winner_counts(rewards, decided if sample_weight is None else decided * sample_weight)


_COUNTERS = {
    "reward_mass": reward_mass,
    "winner_counts": winner_counts,
    "decided_wins": decided_wins,
}


def margins_by(
    rule: MarginRule, rewards: NDArray[np.float64], sample_weight: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the margins of a rule, shape (p,), positive.

    Args:
        rule: Rule that turns rewards into margins.
        rewards: Shape (n, p).
        sample_weight: Weight of each row, shape (n,); `None` weighs all rows equally.
    """
    return margins_of_counts(rule, _COUNTERS[rule.counts](rewards, sample_weight))


def margins_of_counts(rule: MarginRule, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the margins of a rule from the m_k of each expert, shape (p,).

    They sum to 1 before the offset, as in the paper. An expert with a count of 0 gets half of the
    smallest positive count.
    """
    mass = smoothed_win_counts(counts)
    powered = (mass / mass.max()) ** rule.exponent
    return np.asarray(powered / powered.sum() + rule.offset)


def smoothed_win_counts(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return win counts in which an expert without wins gets half of the smallest positive count.

    All counts are 1 if no expert ever wins.
    """
    return (
        np.where(wins > 0, wins, wins[wins > 0].min() / 2)
        if (wins > 0).any()
        else np.ones_like(wins)
    )
