"""Training objectives of networks: the loss of each method, and how scores become a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._optional import load_torch
from mildroute.deep.config import DeferralConfig, config_for
from mildroute.exceptions import ArgumentError
from mildroute.routers._rewards import smoothed_win_counts, winner_targets
from mildroute.routers.training_rows import Matrix

if TYPE_CHECKING:
    from mildroute.deep.trainer import DeferralTrainer

__all__ = [
    "NETWORK_METHODS",
    "NetworkMethod",
    "TrainingObjective",
    "TrainingTarget",
    "method_of_network",
    "target_for",
]

# Margin of the rarest winner in units of the scores, as in
# :class:`mildroute.routers.surrogate.LDAMRouter`.
_LDAM_MARGIN = 5.0


@dataclass(frozen=True)
class TrainingObjective:
    """The objective of one training; methods with the same objective share the network.

    Args:
        reward: ``"complement"`` or ``"sum"``; or a loss on the winner of each row alone:
            ``"winner"``, ``"rare winner"`` or ``"ldam"``.
        margins: ``"equal"``, 1 for each; ``"theory"``, the paper's, which sum to 1; or
            ``"winner_counts"``, the same from how often each expert wins.
        offset: Number added to margins that are not equal.

    Example:
        >>> TrainingObjective("sum", "theory").offset
        0.0
    """

    reward: str
    margins: str = "equal"
    offset: float = 0.0


@dataclass(frozen=True)
class NetworkMethod:
    """A method: its description, its objective and its decision.

    Args:
        description: Description in words.
        objective: Objective of its network.
        decision: ``"argmax"``, the largest score, or ``"consistent"``, the largest posterior.
        tuned: Whether held-out rows choose the offset of the margins.

    Example:
        >>> method = NETWORK_METHODS["mild-mass-tuned"]
        >>> [objective.offset for objective in method.objectives((0.0, 5.0))]
        [0.0, 5.0]
    """

    description: str
    objective: TrainingObjective
    decision: Literal["argmax", "consistent"] = "argmax"
    tuned: bool = False

    def objectives(self, offsets: Sequence[float]) -> list[TrainingObjective]:
        """Return the objectives to train networks for; the best network is used."""
        if not self.tuned:
            return [self.objective]
        return [replace(self.objective, offset=offset) for offset in offsets]


_FROM_P = TrainingObjective("sum", "theory")
_FROM_WINS = TrainingObjective("sum", "winner_counts")

# The methods of networks, under the names of :data:`paper.routers.METHODS`.
NETWORK_METHODS: dict[str, NetworkMethod] = {
    "tdef": NetworkMethod("complement reward, equal margins", TrainingObjective("complement")),
    "mild-mass": NetworkMethod("sum reward, theory margins, largest score", _FROM_P),
    "mild-mass-tuned": NetworkMethod(
        "the same margins plus a whole number chosen on held-out rows", _FROM_P, tuned=True
    ),
    "mild": NetworkMethod("sum reward, theory margins of winner counts, largest score", _FROM_WINS),
    "mild-decoded": NetworkMethod("the same network, largest posterior", _FROM_WINS, "consistent"),
    "mild-tuned": NetworkMethod(
        "the same margins plus a whole number chosen on held-out rows", _FROM_WINS, tuned=True
    ),
    "mild-uniform": NetworkMethod(
        "sum reward, equal margins, largest score", TrainingObjective("sum")
    ),
    "ce": NetworkMethod("cross-entropy on the winner", TrainingObjective("winner")),
    "weighted-ce": NetworkMethod(
        "cross-entropy, rare winners weigh more", TrainingObjective("rare winner")
    ),
    "ldam": NetworkMethod("rare winners must win by more", TrainingObjective("ldam")),
}


@dataclass(frozen=True)
class TrainingTarget:
    """An objective as the trainer takes it.

    Args:
        costs: Costs for the loss, shape (n, p).
        deferral: Margins and reward.
        trainer: Trainer with a loss of its own; `None` uses the deferral loss.

    Example:
        >>> target_for(TrainingObjective("winner"), np.array([[0.0, 0.4]])).costs
        array([[0., 1.]])
    """

    costs: Matrix
    deferral: DeferralConfig
    trainer: type[DeferralTrainer] | None = None


def method_of_network(name: str) -> NetworkMethod:
    """Return a method by name.

    Args:
        name: Name of the method.

    Example:
        >>> method_of_network("mildroute")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: a method of a network must be one of tdef, mild, ...
    """
    if name not in NETWORK_METHODS:
        raise ArgumentError(
            f"a method of a network must be one of {', '.join(NETWORK_METHODS)}, got {name!r}."
        )
    return NETWORK_METHODS[name]


def target_for(objective: TrainingObjective, costs: Matrix) -> TrainingTarget:
    """Return the costs, margins and reward that train a network for an objective.

    Cross-entropy on the winner is the deferral loss of costs that are 0 for the winner and 1 for
    the others; ties are split equally.

    Args:
        objective: The objective.
        costs: Costs of the training rows, shape (n, p).

    Example:
        >>> costs = 1 - np.repeat(np.eye(2), [8, 1], axis=0)
        >>> target_for(TrainingObjective("sum", "theory"), costs).deferral.margins
        (0.6666666666666666, 0.3333333333333333)
    """
    winners = winner_targets(-costs)
    wins = winners.sum(axis=0)
    if objective.reward == "ldam":
        return TrainingTarget(costs, config_for(costs), _ldam_trainer(wins))
    if objective.reward in ("winner", "rare winner"):
        weights = np.ones_like(wins)
        if objective.reward == "rare winner":
            counts = smoothed_win_counts(wins)
            weights = counts.min() / counts
        winner_costs = 1 - winners * weights
        return TrainingTarget(winner_costs, config_for(winner_costs, reward="complement"))
    if objective.margins == "equal":
        return TrainingTarget(costs, config_for(costs, reward=objective.reward))
    theory = config_for(costs, margins=objective.margins, reward=objective.reward).margins
    margins = np.asarray(theory) + objective.offset
    return TrainingTarget(costs, config_for(costs, margins=margins, reward=objective.reward))


def _ldam_trainer(wins: NDArray[np.float64]) -> type[DeferralTrainer]:
    torch = load_torch()
    from mildroute.deep.trainer import DeferralTrainer
    from mildroute.deep.training_data import COSTS
    from mildroute.losses.functional import ldam_loss

    counts = torch.from_numpy(wins)

    class LdamTrainer(DeferralTrainer):
        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,  # noqa: ARG002
        ) -> Any:
            outputs = model(**{name: value for name, value in inputs.items() if name != COSTS})
            loss = ldam_loss(
                outputs["logits"], -inputs[COSTS], counts, s=1.0, max_margin=_LDAM_MARGIN
            )
            return (loss, outputs) if return_outputs else loss

    return LdamTrainer
