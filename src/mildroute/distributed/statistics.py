"""What one pass over the rows must find out before a router can be trained.

Sizes, means, units, and a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mildroute.distributed.shards import Rows
from mildroute.exceptions import ArgumentError, MarginError, ShapeError, TableError
from mildroute.routers._decision import (
    MARGIN_RULES,
    margins_of_counts,
    reward_mass,
    rewards_from_nonnegative,
    winner_targets,
)

__all__ = [
    "LinearConfig",
    "MLPConfig",
    "Statistics",
    "combined",
    "plan_margins",
    "reward_mass_of",
    "rewards_of",
    "statistics_of",
]


_BLOCK = 16_384


@dataclass(frozen=True)
class Statistics:
    """Sums over rows; those of parts add up.

    Args:
        total: Sum of the vectors, shape (d,).
        squares: Sum of the squared vectors, entry by entry, shape (d,).
        wins: How often each expert is the cheapest, ties shared, shape (p,); rows on which all are
            equal do not count.
        sample: Every so many rows, for what needs no more than a few of them.
    """

    rows: int
    total: NDArray[np.float64]
    squares: NDArray[np.float64]
    paid: float
    worst: float
    lowest: float
    highest: float
    wins: NDArray[np.float64]
    sample: Rows

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean vector, shape (d,)."""
        return self.total / self.rows

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variance of each entry, shape (d,)."""
        return np.asarray(np.maximum(self.squares / self.rows - self.mean**2, 0.0))

    @property
    def scale(self) -> float:
        """Mean squared distance of a row from the mean.

        The unit of the penalty, as in :mod:`mildroute.routers._linear_model`.
        """
        return float(self.variances.sum()) or 1.0


def statistics_of(parts: Iterable[Rows], *, experts: int, stride: int) -> Statistics:
    """Statistics of rows as they come.

    Args:
        parts: The rows.
        experts: Number of the experts, p.
        stride: Every how many rows one goes into the sample.
    """
    found = [_of_part(part, stride) for part in parts]
    return combined(found) if found else _nothing(experts)


def combined(parts: Sequence[Statistics]) -> Statistics:
    """Statistics of all parts together.

    Args:
        parts: Statistics of disjoint rows; those of no rows may have vectors of no length.

    Returns:
        Their sums; samples one after the other.
    """
    known = [part for part in parts if part.rows] or list(parts[:1])
    sample = Rows(
        np.concatenate([part.sample.vectors for part in known]),
        np.concatenate([part.sample.costs for part in known]),
    )
    return Statistics(
        rows=sum(part.rows for part in known),
        total=np.sum([part.total for part in known], axis=0),
        squares=np.sum([part.squares for part in known], axis=0),
        paid=sum(part.paid for part in known),
        worst=sum(part.worst for part in known),
        lowest=min(part.lowest for part in known),
        highest=max(part.highest for part in known),
        wins=np.sum([part.wins for part in known], axis=0),
        sample=sample,
    )


def rewards_of(costs: NDArray[np.float64], name: str, known: Statistics) -> NDArray[np.float64]:
    """Rewards of some rows, in the unit in which those of all rows sum to 1 a row on average.

    The same figures as :func:`mildroute.routers._decision.scaled_rewards` gives for all rows at
    once.

    Args:
        costs: Shape (n, p).
        name: ``"gap"``, ``"complement"`` or ``"sum"``.
        known: Statistics of all rows.
    """
    experts, shift = costs.shape[1], -min(known.lowest, 0.0)
    mean_sum = known.paid / known.rows + experts * shift
    largest = known.highest + shift
    units = {
        "gap": experts * known.worst / known.rows - known.paid / known.rows,
        "complement": experts - mean_sum / max(1.0, largest),
        "sum": (experts - 1) * mean_sum,
    }
    rewards, unit = rewards_from_nonnegative(costs + shift, name, largest), units[name]
    return np.asarray(rewards / unit) if unit > 0 else np.full(costs.shape, 1 / experts)


def reward_mass_of(
    parts: Iterable[Rows], name: str, lowest: float, highest: float, experts: int
) -> NDArray[np.float64]:
    """Return the paper's m_k of rows as they come, shape (p,).

    Args:
        parts: The rows.
        name: ``"gap"``, ``"complement"`` or ``"sum"``.
        lowest: Lowest cost of all rows, also of those of other workers.
        highest: Highest cost of all rows.
        experts: Number of the experts, p.
    """
    shift, total = -min(lowest, 0.0), np.zeros(experts)
    for part in parts:
        total += reward_mass(rewards_from_nonnegative(part.costs + shift, name, highest + shift))
    return total


def _of_part(part: Rows, stride: int) -> Statistics:
    width, experts = part.vectors.shape[1], part.costs.shape[1]
    total, squares = np.zeros(width), np.zeros(width)
    for start in range(0, len(part.vectors), _BLOCK):
        block = part.vectors[start : start + _BLOCK].astype(np.float32)
        total += block.sum(axis=0, dtype=np.float64)
        squares += np.square(block).sum(axis=0, dtype=np.float64)
    if not np.isfinite(squares).all():
        raise TableError("vectors must be finite, got NaN or infinity; drop those rows first.")
    decided = np.ptp(part.costs, axis=1) > 0
    return Statistics(
        rows=len(part.vectors),
        total=total,
        squares=squares,
        paid=float(part.costs.sum()),
        worst=float(part.costs.max(axis=1).sum()),
        lowest=float(part.costs.min()),
        highest=float(part.costs.max()),
        wins=(
            winner_targets(-part.costs[decided]).sum(axis=0) if decided.any() else np.zeros(experts)
        ),
        # Copies: the rows themselves lie in memory that is shared and given back.
        sample=Rows(part.vectors[::stride].copy(), part.costs[::stride].copy()),
    )


def _nothing(experts: int) -> Statistics:
    empty = Rows(np.empty((0, 0), np.float16), np.empty((0, experts)))
    return Statistics(
        0, np.zeros(0), np.zeros(0), 0.0, 0.0, np.inf, -np.inf, np.zeros(experts), empty
    )


# What to train: a linear router to the optimum of its convex problem, or a network by steps.


_REWARDS = ("gap", "complement", "sum")


@dataclass(frozen=True)
class LinearConfig:
    """A linear router.

    The problem of ``MildRouter(reward=..., margins=..., alpha=..., features="raw")``.

    Args:
        reward: ``"gap"``, ``"complement"`` or ``"sum"``.
        margins: ``"uniform"``, ``"theory"`` (which takes one more pass over the rows),
            ``"winner_counts"`` or one number for each expert.
        alpha: Weight of the squared norm, in units of the vectors' variance and of the mean of
            margins given by name.
        decision: ``"consistent"`` or ``"argmax"``.
        tolerance: Relative decrease of the objective below which it stops, twice in a row.
        max_steps: Steps after which it stops in any case.
        sample: Rows to start from: their optimum is found in memory first, so that few passes over
            all rows are left.

    Example:
        >>> LinearConfig(alpha=1e-3).reward
        'gap'
    """

    reward: str = "gap"
    margins: str | tuple[float, ...] = "uniform"
    alpha: float = 1e-4
    decision: str = "consistent"
    tolerance: float = 1e-6
    max_steps: int = 100
    sample: int = 100_000

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        _check(self.reward, self.margins, self.decision)
        for name in ("alpha", "tolerance", "max_steps", "sample"):
            if not getattr(self, name) > 0:
                raise ArgumentError(f"{name} must be above 0, got {getattr(self, name)!r}.")


@dataclass(frozen=True)
class MLPConfig:
    """A network with hidden layers, trained by Adam on small batches.

    The epoch that was best on held-out rows is kept.

    Args:
        hidden_layer_sizes: Units of each hidden layer.
        reward: As for a linear router.
        margins: As for a linear router.
        decision: ``"consistent"`` or ``"argmax"``.
        epochs: Passes over the rows.
        batch_size: Rows of a step of each worker.
        learning_rate: Step of Adam, lowered to zero over the run.
        weight_decay: Its decay.
        held_out: Every how many rows one is held out.
        sample: Rows that the start is computed from.
        seed: Seed of the start and of the order of rows.

    Example:
        >>> MLPConfig(hidden_layer_sizes=(64,)).epochs
        3
    """

    hidden_layer_sizes: tuple[int, ...] = (128,)
    reward: str = "gap"
    margins: str | tuple[float, ...] = "uniform"
    decision: str = "consistent"
    epochs: int = 3
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    held_out: int = 20
    sample: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        _check(self.reward, self.margins, self.decision)
        if not self.hidden_layer_sizes or min(self.hidden_layer_sizes) < 1:
            raise ArgumentError(
                "hidden_layer_sizes must have at least one layer of at least one unit, got"
                f" {self.hidden_layer_sizes}; LinearConfig has none."
            )
        for name, least in (("epochs", 1), ("batch_size", 1), ("held_out", 2), ("sample", 1)):
            if getattr(self, name) < least:
                raise ArgumentError(
                    f"{name} must be at least {least}, got {getattr(self, name)!r}."
                )


def plan_margins(
    wanted: str | Sequence[float], known: Statistics, mass: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the margins of a plan, shape (p,).

    Args:
        wanted: ``"uniform"``, ``"theory"``, ``"winner_counts"`` or numbers.
        known: Statistics of all rows.
        mass: What :func:`reward_mass_of` gives for all rows; needed by ``"theory"`` alone.
    """
    if wanted == "uniform":
        return np.ones(len(known.wins))
    if isinstance(wanted, str):
        # Rows on which all experts are equal are split among all of them.
        wins = known.wins + (known.rows - known.wins.sum()) / len(known.wins)
        return margins_of_counts(MARGIN_RULES[wanted], wins if mass is None else mass)
    margins = np.asarray(wanted, dtype=np.float64)
    if margins.shape != known.wins.shape:
        raise ShapeError(
            f"margins must be ({len(known.wins)},), one per expert, got shape {margins.shape}."
        )
    return margins


def _check(reward: str, margins: str | Sequence[float], decision: str) -> None:
    if reward not in _REWARDS:
        raise ArgumentError(
            f"reward must be one of {', '.join(_REWARDS)}, got {reward!r}; at this size nothing is"
            " chosen by trial."
        )
    if decision not in ("consistent", "argmax"):
        raise ArgumentError(f"decision must be consistent or argmax, got {decision!r}.")
    if isinstance(margins, str):
        if margins != "uniform" and margins not in MARGIN_RULES:
            raise ArgumentError(
                f"margins must be uniform, {', '.join(MARGIN_RULES)} or one number for each expert,"
                f" got {margins!r}."
            )
    elif not all(np.isfinite(margin) and margin > 0 for margin in margins):
        raise MarginError(f"margins must be positive and finite, got {list(margins)}.")
