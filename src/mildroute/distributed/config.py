"""What to train.

A linear router to the optimum of its convex problem, or a network by gradient steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mildroute.distributed.statistics import Statistics, unit_margins
from mildroute.exceptions import ArgumentError, MarginError, ShapeError
from mildroute.routers._decision import THEORY

__all__ = ["LinearConfig", "MLPConfig", "plan_margins"]


_REWARDS = ("gap", "complement", "sum")


@dataclass(frozen=True)
class LinearConfig:
    """A linear router.

    The problem of ``MildRouter(reward=..., margins=..., alpha=..., features="raw")``.

    Args:
        reward: ``"gap"``, ``"complement"`` or ``"sum"``.
        margins: ``"uniform"``, ``"theory"`` or one number for each expert.
        alpha: Weight of the squared norm, in units of the vectors' variance.
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


def plan_margins(wanted: str | Sequence[float], known: Statistics) -> NDArray[np.float64]:
    """The margins of a plan, shape (p,).

    Args:
        wanted: ``"uniform"``, ``"theory"`` or numbers.
        known: Statistics of all rows.
    """
    if isinstance(wanted, str):
        return unit_margins(THEORY if wanted == "theory" else None, known)
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
        if margins not in ("uniform", "theory"):
            raise ArgumentError(
                f"margins must be uniform, theory or one number for each expert, got {margins!r}."
            )
    elif not all(np.isfinite(margin) and margin > 0 for margin in margins):
        raise MarginError(f"margins must be positive and finite, got {list(margins)}.")
