"""What a network is trained with: reward, size of margins, optimizer.

Held-out deferral loss decides between full trainings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._decision import argmax_last, chosen_costs, scaled_rewards
from mildroute.routers.base import Matrix

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

# The sum reward is nearly uniform, (2, 1, 1) where one of three experts is right, so that its
# scores differ by little more than log 2 times the margins; margins of 5, the largest of the
# paper's tuning, give them the range that the other rewards have with 1. Measured on SVHN, experts
# 70/20/10, seed 100, test cost of a small ResNet by margins: gap 1 0.150, 5 0.177; complement 5
# 0.179; sum 1 0.154, 2 0.141, 5 0.116, 10 0.138. Short trainings cannot screen: after two of five
# epochs all chose the best single expert.
_NARROW, _WIDE = 1.0, 5.0

T = TypeVar("T")


class Objective(NamedTuple):
    """What a network is trained for.

    Args:
        reward: ``"gap"``, ``"complement"`` or ``"sum"``.
        margin: Margin of every expert, or none where margins are given.
    """

    reward: str
    margin: float | None = _NARROW


@dataclass(frozen=True)
class ModelSelection(Generic[T]):
    """The objective that was taken.

    Args:
        tried: Every training as columns: ``reward``, ``margin`` (none where margins are given) and
            ``mean_cost`` on held-out rows.
    """

    objective: Objective
    trained: T
    reason: str
    tried: dict[str, list[Any]]


def objectives_of(costs: Matrix, reward: str = "cv", margins: object = "cv") -> list[Objective]:
    """The objectives to choose from.

    What is not ``"cv"`` is not searched, and what teaches the same is there once.

    Where both are searched these are today's three kinds of routers: the gap reward and TDEF's
    complement with margins of 1, and the sum with margins of 5, to which the paper's tuning comes.

    Args:
        costs: Costs of the training rows, shape (n, p).
        reward: ``"cv"`` or the name of a reward.
        margins: ``"cv"``, or anything else for margins that are given.

    Returns:
        Objectives; the first one is taken where nothing can be chosen.
    """
    given = not isinstance(margins, str) or margins != "cv"
    if reward != "cv":
        return [Objective(reward, margin) for margin in ((None,) if given else (_NARROW, _WIDE))]
    return _different(
        [
            Objective(name, None if given else _WIDE if name == "sum" else _NARROW)
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
    """Train for every objective and take the one of lowest deferral loss on held-out rows.

    Of equals the first is taken.

    Args:
        objectives: Those to choose from, at least one.
        train: Trains a network for an objective from the start. Returns the utilities of the
            held-out rows, shape (h, p), and whatever the caller wants to keep of the network.
        costs: Costs of the held-out rows, shape (h, p); without any the first objective alone is
            trained.
        weights: Weight of each of them, shape (h,), or none.

    Returns:
        The objective taken with what its training gave; of the others only figures are kept.
    """
    tried = objectives if len(costs) else objectives[:1]
    paid: list[float] = []
    best: list[T] = []
    for objective in tried:
        utilities, trained = train(objective)
        paid.append(_mean_cost(utilities, costs, weights))
        # One network in addition to the one in training, however many objectives there are.
        best = best if best and paid[-1] >= min(paid[:-1]) else [trained]
    taken = tried[int(np.argmin(paid))]
    columns: dict[str, list[Any]] = {
        "reward": [each.reward for each in tried],
        "margin": [each.margin for each in tried],
        "mean_cost": paid,
    }
    return ModelSelection(taken, best[0], _reason(taken, objectives, paid, len(costs)), columns)


def _different(objectives: Sequence[Objective], costs: Matrix) -> list[Objective]:
    """Leave out objectives that are another one in other units.

    Gap and sum are, for two experts of which one is always free.
    """
    found: dict[Objective, Matrix] = {}
    for objective in objectives:
        rewards = scaled_rewards(costs, objective.reward, None)
        if not any(
            objective.margin == known.margin and np.allclose(rewards, theirs)
            for known, theirs in found.items()
        ):
            found[objective] = rewards
    return list(found)


def _mean_cost(utilities: Matrix, costs: Matrix, weights: NDArray[np.float64] | None) -> float:
    """Deferral loss of what utilities choose; not a number without rows."""
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


# Optimizer, learning rate and decay where their user leaves them open: by whether a network knows
# something already.


# Untrained networks get what the ledger's are trained with. Measured on SVHN, experts 70/20/10,
# seed 100, a small ResNet, five epochs, test cost: Adam with decay in the gradient 0.133, AdamW at
# the same rate 0.167.
_RATES = {True: 1e-3, False: 5e-5}
_DECAYS = {"adam": 1e-3, "adamw": 0.01}


class Optimizer(NamedTuple):
    """How the weights of a network move.

    Args:
        name: ``"adam"``, with decay as a part of the gradient, or ``"adamw"``.
    """

    name: Literal["adam", "adamw"]
    learning_rate: float
    weight_decay: float


def is_untrained(model: Any) -> bool:
    """Whether a network starts from random weights.

    It has batch norms, and none of them has seen a batch.

    The weights of a network without batch norms, as most for texts, do not tell; it counts as
    trained.
    """
    seen = [part for part in model.modules() if getattr(part, "running_mean", None) is not None]
    return bool(seen) and all(
        bool((part.running_mean == 0).all()) and bool((part.running_var == 1).all())
        for part in seen
    )


def optimizer_for(
    model: Any, name: Literal["auto", "adam", "adamw"], rate: float | None, decay: float | None
) -> Optimizer:
    """What a network is trained with; what is given is taken.

    Args:
        model: The network as it starts.
        name: ``"adam"``, ``"adamw"`` or ``"auto"``: Adam for a network with random weights, else
            AdamW.
        rate: Learning rate, or none: 1e-3 for a network with random weights, else 5e-5.
        decay: Weight decay, or none: 1e-3 with Adam, 0.01 with AdamW.
    """
    untrained = is_untrained(model)
    chosen: Literal["adam", "adamw"] = name if name != "auto" else "adam" if untrained else "adamw"
    return Optimizer(
        chosen,
        _RATES[untrained] if rate is None else rate,
        _DECAYS[chosen] if decay is None else decay,
    )
