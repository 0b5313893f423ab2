"""Training objectives of networks: the loss of each method, and how scores become a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
        reward: ``"complement"``, ``"sum"`` or ``"gap"``; or a loss on the winner of each row alone:
            ``"winner"``, ``"rare winner"``, ``"ldam"``.
        margins: ``"equal"``, 1 for each; ``"theory"``, the paper's, which sum to 1; or
            ``"winner_counts"``, the same from how often each expert wins.
        offset: Added to margins that are not equal.
        scale: Factor of equal margins.

    Example:
        >>> TrainingObjective("sum", "theory").offset
        0.0
    """

    reward: str
    margins: str = "equal"
    offset: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class NetworkMethod:
    """A method: its description, its objective and its decision.

    Args:
        what: Description.
        aim: Objective of its network.
        decision: ``"argmax"``, the largest score, or ``"consistent"``, the largest posterior.
        tuned: Whether the offset of the margins is chosen by held-out rows.
        selected: Whether reward and scale of the margins are chosen as
            :class:`mildroute.deep.DeepRouter` does by default.
        calibrated: Whether a temperature is fitted on held-out rows before scores are decoded.

    Example:
        >>> [aim.offset for aim in NETWORK_METHODS["mild-tuned"].aims((0.0, 5.0))]
        [0.0, 5.0]
    """

    what: str
    aim: TrainingObjective
    decision: str = "argmax"
    tuned: bool = False
    calibrated: bool = False
    selected: bool = False

    def aims(self, offsets: Sequence[float]) -> list[TrainingObjective]:
        """Return the objectives to train networks for; the best network is taken."""
        return (
            [replace(self.aim, offset=offset) for offset in offsets] if self.tuned else [self.aim]
        )


# As for linear routers, the first methods count wins for the paper's m_k.
_PRINTED = TrainingObjective("sum", "winner_counts")


_MASS = TrainingObjective("sum", "theory")


# The methods by name, as in :data:`paper.problems.METHODS`, for networks.
NETWORK_METHODS: dict[str, NetworkMethod] = {
    "tdef": NetworkMethod("complement reward, equal margins", TrainingObjective("complement")),
    "mild": NetworkMethod("sum reward, theory margins of winner counts, largest score", _PRINTED),
    "mild-decoded": NetworkMethod("the same network, largest posterior", _PRINTED, "consistent"),
    "mild-tuned": NetworkMethod(
        "the same margins plus an integer chosen by held-out rows", _PRINTED, tuned=True
    ),
    "mild-uniform": NetworkMethod(
        "sum reward, equal margins, largest score", TrainingObjective("sum")
    ),
    "mild-consistent": NetworkMethod(
        "the same network, largest posterior at a temperature that is fitted on held-out rows",
        _PRINTED,
        "consistent",
        calibrated=True,
    ),
    "mild-consistent-tuned": NetworkMethod(
        "the same with margins plus an integer chosen by held-out rows",
        _PRINTED,
        "consistent",
        tuned=True,
        calibrated=True,
    ),
    "mildroute": NetworkMethod(
        "chosen as DeepRouter does by default: gap or complement reward with margins of 1, or sum"
        " reward with margins of 5, whichever pays least on held-out rows; largest posterior",
        TrainingObjective("gap"),
        "consistent",
        selected=True,
    ),
    "ce": NetworkMethod("cross-entropy on the winner", TrainingObjective("winner")),
    "weighted-ce": NetworkMethod(
        "cross-entropy, rare winners weigh more", TrainingObjective("rare winner")
    ),
    "ldam": NetworkMethod("rare winners must win by more", TrainingObjective("ldam")),
    "mild-mass": NetworkMethod("sum reward, theory margins of the paper's m_k", _MASS),
    "mild-mass-decoded": NetworkMethod("the same network, largest posterior", _MASS, "consistent"),
    "mild-mass-tuned": NetworkMethod(
        "the same margins plus an integer chosen by held-out rows", _MASS, tuned=True
    ),
    "mild-mass-consistent": NetworkMethod(
        "the same network, largest posterior at a temperature that is fitted on held-out rows",
        _MASS,
        "consistent",
        calibrated=True,
    ),
}


@dataclass(frozen=True)
class TrainingTarget:
    """An objective in the terms of a trainer.

    Args:
        costs: Costs for the loss, shape (n, p).
        deferral: Margins and reward.
        trainer: A trainer with its own loss; `None` means the deferral loss.

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

    Returns:
        The method.

    Example:
        >>> method_of_network("mildroute-raw")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: a method of a network must be one of tdef, mild, ...
    """
    if name not in NETWORK_METHODS:
        raise ArgumentError(
            f"a method of a network must be one of {', '.join(NETWORK_METHODS)}, got {name!r}."
        )
    return NETWORK_METHODS[name]


def target_for(aim: TrainingObjective, costs: Matrix) -> TrainingTarget:
    """Return the costs, margins and reward that train a network for an objective.

    Cross-entropy on the winner is the deferral loss of costs that are 0 for the winner and 1 for
    the others; ties are split equally.

    Args:
        aim: The objective.
        costs: Costs of the training rows, shape (n, p).

    Returns:
        Costs, margins and reward.

    Example:
        >>> costs = 1 - np.repeat(np.eye(2), [8, 1], axis=0)
        >>> target_for(TrainingObjective("sum", "theory"), costs).deferral.margins
        (0.6666666666666666, 0.3333333333333333)
    """
    winners = winner_targets(-costs)
    wins = winners.sum(axis=0)
    if aim.reward == "ldam":
        return TrainingTarget(costs, config_for(costs), _ldam_trainer(wins))
    if aim.reward in ("winner", "rare winner"):
        weights = (
            smoothed_win_counts(wins).min() / smoothed_win_counts(wins)
            if aim.reward == "rare winner"
            else np.ones_like(wins)
        )
        seen = 1 - winners * weights
        return TrainingTarget(seen, config_for(seen, reward="complement"))
    if aim.margins == "equal":
        margins = np.full_like(wins, aim.scale)
    else:
        shares = config_for(costs, margins=aim.margins, reward=aim.reward).margins
        margins = np.asarray(shares) + aim.offset
    return TrainingTarget(costs, config_for(costs, margins=margins, reward=aim.reward))


def _ldam_trainer(wins: NDArray[np.float64]) -> type[DeferralTrainer]:
    torch = load_torch()
    from mildroute.deep.trainer import COSTS, DeferralTrainer
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
