"""The choice of a network's objective, by held-out deferral loss after full training runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._order import argmax_last, chosen_costs
from mildroute.routers._rewards import scaled_rewards
from mildroute.routers.training_rows import Matrix

__all__ = ["REWARDS", "ModelSelection", "Objective", "objectives_of", "select"]


REWARDS = ("gap", "complement", "sum")

# The sum reward is nearly uniform, (2, 1, 1) if one of three experts is right, so its scores differ
# by little more than log 2 times the margins. Margins of 5, the largest in the paper's tuning, give
# them the range that other rewards have with margins of 1. Measured on SVHN, experts 70/20/10, seed
# 100, test cost of a small ResNet:
#
#     reward       margins  cost
#     gap               1   0.150
#     gap               5   0.177
#     complement        5   0.179
#     sum               1   0.154
#     sum               2   0.141
#     sum               5   0.116
#     sum              10   0.138
#
# Short runs cannot rank objectives: after two of five epochs all chose the best single expert.
_SMALL_MARGIN = 1.0
_LARGE_MARGIN = 5.0

T = TypeVar("T")


class Objective(NamedTuple):
    """A network's training objective.

    Args:
        reward: ``"gap"``, ``"complement"`` or ``"sum"``.
        margin: Margin of every expert, or `None` if margins were set.
    """

    reward: str
    margin: float | None = _SMALL_MARGIN


@dataclass(frozen=True)
class ModelSelection(Generic[T]):
    """The selected objective.

    Args:
        objective: The objective.
        trained: The value that the caller keeps for its network.
        reason: The reason for the choice, in words.
        tried: Every run as columns: ``reward``, ``margin`` (`None` if margins were set) and
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
        The objectives; the first is used if there are no held-out rows.
    """
    has_margins = not isinstance(margins, str) or margins != "cv"
    if reward != "cv":
        return [
            Objective(reward, margin)
            for margin in ((None,) if has_margins else (_SMALL_MARGIN, _LARGE_MARGIN))
        ]
    return _drop_equivalent(
        [
            Objective(
                name, None if has_margins else _LARGE_MARGIN if name == "sum" else _SMALL_MARGIN
            )
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
    """Train a network per objective and select the lowest deferral loss on held-out rows.

    Ties go to the first objective.

    Args:
        objectives: The objectives to choose from, at least one.
        train: Function that trains a network for an objective from scratch, and returns utilities
            of the held-out rows, shape (h, p), and a value that the caller keeps.
        costs: Costs of the held-out rows, shape (h, p). If empty, only the first objective is
            trained.
        weights: Weight of each held-out row, shape (h,), or `None`.

    Returns:
        The selected objective with its trained network, and all objectives' costs.
    """
    tried = objectives if len(costs) else objectives[:1]
    held_out_costs: list[float] = []
    best: list[T] = []
    for objective in tried:
        utilities, trained = train(objective)
        held_out_costs.append(_mean_cost(utilities, costs, weights))
        # Keep at most one network besides the network in training.
        best = best if best and held_out_costs[-1] >= min(held_out_costs[:-1]) else [trained]
    selected = tried[int(np.argmin(held_out_costs))]
    columns: dict[str, list[Any]] = {
        "reward": [each.reward for each in tried],
        "margin": [each.margin for each in tried],
        "mean_cost": held_out_costs,
    }
    return ModelSelection(
        selected, best[0], _reason(selected, objectives, held_out_costs, len(costs)), columns
    )


def _drop_equivalent(objectives: Sequence[Objective], costs: Matrix) -> list[Objective]:
    """Drop objectives that are equal to another objective in different units.

    Gap and sum are equal for two experts if one of them is always free.
    """
    rewards_of_objective: dict[Objective, Matrix] = {}
    for objective in objectives:
        rewards = scaled_rewards(costs, objective.reward, None)
        if not any(
            objective.margin == other.margin and np.allclose(rewards, other_rewards)
            for other, other_rewards in rewards_of_objective.items()
        ):
            rewards_of_objective[objective] = rewards
    return list(rewards_of_objective)


def _mean_cost(utilities: Matrix, costs: Matrix, weights: NDArray[np.float64] | None) -> float:
    """Return the deferral loss of choices by utility; NaN without rows."""
    if not len(costs):
        return float("nan")
    return float(np.average(chosen_costs(costs, argmax_last(utilities)), weights=weights))


def _reason(
    selected: Objective, objectives: Sequence[Objective], held_out_costs: Sequence[float], rows: int
) -> str:
    name = (
        f"{selected.reward} reward,"
        f" {'given margins' if selected.margin is None else f'margins of {selected.margin:g}'}"
    )
    if len(held_out_costs) > 1:
        return (
            f"{name}: the lowest cost of {len(held_out_costs)} objectives on {rows} held-out rows,"
            f" {min(held_out_costs):.4g}"
        )
    return f"{name}: {'as given' if len(objectives) == 1 else 'for lack of held-out rows'}"
