"""The objective of a network: reward, size of margins, optimizer.

Held-out deferral loss decides between full trainings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._order import argmax_last, chosen_costs
from mildroute.routers._rewards import scaled_rewards
from mildroute.routers.training_rows import Matrix

__all__ = [
    "REWARDS",
    "ModelSelection",
    "Objective",
    "Optimizer",
    "is_untrained",
    "objectives_of",
    "optimizer_for",
    "select",
]


REWARDS = ("gap", "complement", "sum")

# The sum reward is nearly uniform, (2, 1, 1) if one of three experts is right, so its scores differ
# by little more than log 2 times the margins. Margins of 5, the largest in the paper's tuning, give
# them the range that the other rewards have with 1. Measured on SVHN, experts 70/20/10, seed 100,
# test cost of a small ResNet by margins: gap 1 0.150, 5 0.177; complement 5 0.179; sum 1 0.154, 2
# 0.141, 5
# 0.116, 10 0.138. Short trainings cannot screen: after two of five epochs all chose the best single
# expert.
_NARROW, _WIDE = 1.0, 5.0

T = TypeVar("T")


class Objective(NamedTuple):
    """The training objective of a network.

    Args:
        reward: ``"gap"``, ``"complement"`` or ``"sum"``.
        margin: Margin of every expert, or `None` if margins were set.
    """

    reward: str
    margin: float | None = _NARROW


@dataclass(frozen=True)
class ModelSelection(Generic[T]):
    """The selected objective.

    Args:
        tried: Every training as columns: ``reward``, ``margin`` (`None` if margins were set) and
            ``mean_cost`` on held-out rows.
    """

    objective: Objective
    trained: T
    reason: str
    tried: dict[str, list[Any]]


def objectives_of(costs: Matrix, reward: str = "cv", margins: object = "cv") -> list[Objective]:
    """Return the objectives to choose from.

    Only parameters set to ``"cv"`` are searched, and equivalent objectives appear once.

    If both are searched, the objectives are the three common kinds of routers: the gap reward and
    TDEF's complement with margins of 1, and the sum with margins of 5, which the paper's tuning
    selects.

    Args:
        costs: Costs of the training rows, shape (n, p).
        reward: ``"cv"`` or the name of a reward.
        margins: ``"cv"``, or anything else for margins that were set.

    Returns:
        Objectives; the first one is used if there is nothing to choose by.
    """
    has_margins = not isinstance(margins, str) or margins != "cv"
    if reward != "cv":
        return [
            Objective(reward, margin) for margin in ((None,) if has_margins else (_NARROW, _WIDE))
        ]
    return _different(
        [
            Objective(name, None if has_margins else _WIDE if name == "sum" else _NARROW)
            for name in REWARDS
        ],
        costs,
    )


def select(
    objectives: Sequence[Objective],
    train: Callable[[Objective], tuple[Matrix, T]],
    costs: Matrix,
    weights: NDArray[np.float64] | None = None,
) -> ModelSelection[T]:
    """Train for every objective and select the lowest deferral loss on held-out rows.

    Ties go to the first objective.

    Args:
        objectives: The objectives to choose from, at least one.
        train: Trains a network for an objective from scratch. Returns the utilities of the held-out
            rows, shape (h, p), and anything that the caller wants to keep of the network.
        costs: Costs of the held-out rows, shape (h, p). If empty, only the first objective is
            trained. trained.
        weights: Weight of each held-out row, shape (h,), or `None`.

    Returns:
        The selected objective with the result of its training; of the others only figures are kept.
    """
    tried = objectives if len(costs) else objectives[:1]
    paid: list[float] = []
    best: list[T] = []
    for objective in tried:
        utilities, trained = train(objective)
        paid.append(_mean_cost(utilities, costs, weights))
        # At most one network besides the one in training, however many objectives there are.
        best = best if best and paid[-1] >= min(paid[:-1]) else [trained]
    taken = tried[int(np.argmin(paid))]
    columns: dict[str, list[Any]] = {
        "reward": [each.reward for each in tried],
        "margin": [each.margin for each in tried],
        "mean_cost": paid,
    }
    return ModelSelection(taken, best[0], _reason(taken, objectives, paid, len(costs)), columns)


def _different(objectives: Sequence[Objective], costs: Matrix) -> list[Objective]:
    """Drop objectives that equal another one in different units.

    Gap and sum are equal for two experts of which one is always free.
    """
    rewards_of_objective: dict[Objective, Matrix] = {}
    for objective in objectives:
        rewards = scaled_rewards(costs, objective.reward, None)
        if not any(
            objective.margin == other.margin and np.allclose(rewards, theirs)
            for other, theirs in rewards_of_objective.items()
        ):
            rewards_of_objective[objective] = rewards
    return list(rewards_of_objective)


def _mean_cost(utilities: Matrix, costs: Matrix, weights: NDArray[np.float64] | None) -> float:
    """Return the deferral loss of what utilities choose; NaN without rows."""
    if not len(costs):
        return float("nan")
    return float(np.average(chosen_costs(costs, argmax_last(utilities)), weights=weights))


def _reason(
    taken: Objective, objectives: Sequence[Objective], paid: Sequence[float], rows: int
) -> str:
    name = (
        f"{taken.reward} reward,"
        f" {'given margins' if taken.margin is None else f'margins of {taken.margin:g}'}"
    )
    if len(paid) > 1:
        return (
            f"{name}: of {len(paid)} objectives the lowest cost on {rows} held-out rows,"
            f" {min(paid):.4g}"
        )
    return f"{name}: {'as given' if len(objectives) == 1 else 'for lack of held-out rows'}"


# Default optimizer, learning rate and decay, by whether a network has been trained before.


# Untrained networks get the settings of the paper's reproduction. Measured on SVHN, experts
# 70/20/10, seed 100, a small ResNet, five epochs, test cost: Adam with decay in the gradient 0.133,
# AdamW at the same rate 0.167.
_RATES = {True: 1e-3, False: 5e-5}
_DECAYS = {"adam": 1e-3, "adamw": 0.01}


class Optimizer(NamedTuple):
    """The optimizer of a network's weights.

    Args:
        name: ``"adam"``, with the decay added to the gradient, or ``"adamw"``.
    """

    name: Literal["adam", "adamw"]
    learning_rate: float
    weight_decay: float


def is_untrained(model: Any) -> bool:
    """Return whether a network starts from random weights.

    It does if it has batch norms and none of them has seen a batch.

    The weights of a network without batch norms, such as most for texts, do not show whether they
    are trained; such a network counts as trained.
    """
    seen = [part for part in model.modules() if getattr(part, "running_mean", None) is not None]
    return bool(seen) and all(
        bool((part.running_mean == 0).all()) and bool((part.running_var == 1).all())
        for part in seen
    )


def optimizer_for(
    model: Any, name: Literal["auto", "adam", "adamw"], rate: float | None, decay: float | None
) -> Optimizer:
    """Return the optimizer of a network; explicit settings take precedence.

    Args:
        model: The network before training.
        name: ``"adam"``, ``"adamw"`` or ``"auto"``: Adam for a network with random weights, else
            AdamW.
        rate: Learning rate; defaults to 1e-3 for a network with random weights, else 5e-5.
        decay: Weight decay; defaults to 1e-3 with Adam, 0.01 with AdamW.
    """
    untrained = is_untrained(model)
    chosen: Literal["adam", "adamw"] = name if name != "auto" else "adam" if untrained else "adamw"
    return Optimizer(
        chosen,
        _RATES[untrained] if rate is None else rate,
        _DECAYS[chosen] if decay is None else decay,
    )
