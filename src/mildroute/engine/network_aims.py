"""What networks are trained for: the loss of each method, and how the scores of the trained network become a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mildroute.deep.config import DeferralConfig, config_for
from mildroute.errors import ArgumentError
from mildroute.routers.base import Matrix
from mildroute.routers.descent import load_torch
from mildroute.routers.rewards import THEORY, margins_of_wins, positive_wins, winner_shares

if TYPE_CHECKING:
    from mildroute.deep.trainer import DeferralTrainer

__all__ = ["NETWORK_METHODS", "Aim", "Lesson", "NetworkMethod", "lesson_of", "method_of_network"]

_LDAM_MARGIN = 5.0
"""Margin of the rarest winner in units of the scores, as in :class:`mildroute.routers.surrogates.LdamRouter`."""


@dataclass(frozen=True)
class Aim:
    """What one training is for; methods with the same aim share the trained network.

    Args:
        reward: ``"complement"``, ``"sum"`` or ``"gap"``; or a loss on the winner of each row alone: ``"winner"``, ``"rare winner"``,
            ``"ldam"``.
        margins: ``"equal"``, 1 for each, or ``"theory"``, the paper's, which sum to 1.
        offset: Added to theory margins.
        scale: Factor of equal margins.

    Example:
        >>> Aim("sum", "theory").offset
        0.0
    """

    reward: str
    margins: str = "equal"
    offset: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class NetworkMethod:
    """A method: what it is, its aim, and how it decides.

    Args:
        what: In words.
        aim: What its network is trained for.
        decision: ``"argmax"``, the largest score, or ``"consistent"``, the largest posterior.
        tuned: Whether the offset of the margins is chosen by held-out rows.
        selected: Whether reward and scale of the margins are chosen as :class:`mildroute.deep.DeepRouter` does by default.
        calibrated: Whether a temperature is fitted on held-out rows before scores are decoded.

    Example:
        >>> [aim.offset for aim in NETWORK_METHODS["mild-tuned"].aims((0.0, 5.0))]
        [0.0, 5.0]
    """

    what: str
    aim: Aim
    decision: str = "argmax"
    tuned: bool = False
    calibrated: bool = False
    selected: bool = False

    def aims(self, offsets: Sequence[float]) -> list[Aim]:
        """What networks are trained for, to take the best one of."""
        return [replace(self.aim, offset=offset) for offset in offsets] if self.tuned else [self.aim]


_PRINTED = Aim("sum", "theory")
NETWORK_METHODS: dict[str, NetworkMethod] = {
    "tdef": NetworkMethod("complement reward, equal margins", Aim("complement")),
    "mild": NetworkMethod("sum reward, theory margins, largest score", _PRINTED),
    "mild-decoded": NetworkMethod("the very network of MILD printed, largest posterior", _PRINTED, "consistent"),
    "mild-tuned": NetworkMethod("as printed, margins plus an integer chosen by held-out rows", _PRINTED, tuned=True),
    "mild-uniform": NetworkMethod("sum reward, equal margins, largest score", Aim("sum")),
    "mild-consistent": NetworkMethod(
        "the very network of MILD printed, largest posterior at a temperature that is fitted on held-out rows",
        _PRINTED,
        "consistent",
        calibrated=True,
    ),
    "mild-consistent-tuned": NetworkMethod(
        "the same with margins plus an integer chosen by held-out rows", _PRINTED, "consistent", tuned=True, calibrated=True
    ),
    "mildroute": NetworkMethod(
        "chosen as DeepRouter does by default: gap or complement reward with margins of 1, or sum reward with margins of 5, whichever pays "
        "least on held-out rows; largest posterior",
        Aim("gap"),
        "consistent",
        selected=True,
    ),
    "ce": NetworkMethod("cross-entropy on the winner", Aim("winner")),
    "weighted-ce": NetworkMethod("cross-entropy, rare winners weigh more", Aim("rare winner")),
    "ldam": NetworkMethod("rare winners must win by more", Aim("ldam")),
}
"""The methods by name, as in :data:`mildroute.engine.methods.METHODS`, for networks."""


@dataclass(frozen=True)
class Lesson:
    """An aim in the terms of a trainer.

    Args:
        costs: As the loss shall see them, shape (n, p).
        deferral: Margins and reward.
        trainer: A trainer with a loss of its own, or none for the deferral loss.

    Example:
        >>> lesson_of(Aim("winner"), np.array([[0.0, 0.4]])).costs
        array([[0., 1.]])
    """

    costs: Matrix
    deferral: DeferralConfig
    trainer: type[DeferralTrainer] | None = None


def method_of_network(name: str) -> NetworkMethod:
    """A method by name.

    Args:
        name: Name of the method.

    Returns:
        The method.

    Example:
        >>> method_of_network("mildroute-raw")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: a method of a network must be one of tdef, mild, ..., got 'mildroute-raw'.
    """
    if name not in NETWORK_METHODS:
        raise ArgumentError(f"a method of a network must be one of {', '.join(NETWORK_METHODS)}, got {name!r}.")
    return NETWORK_METHODS[name]


def lesson_of(aim: Aim, costs: Matrix) -> Lesson:
    """What the trainer needs to train a network for an aim.

    Cross-entropy on the winner is the deferral loss of costs that are 0 for the winner and 1 for the others; ties are split equally.

    Args:
        aim: The aim.
        costs: Costs of the training rows, shape (n, p).

    Returns:
        Costs, margins and reward.

    Example:
        >>> lesson_of(Aim("sum", "theory"), 1 - np.repeat(np.eye(2), [8, 1], axis=0)).deferral.margins
        (0.6666666666666666, 0.3333333333333333)
    """
    winners = winner_shares(-costs)
    wins = winners.sum(axis=0)
    if aim.reward == "ldam":
        return Lesson(costs, config_for(costs), _ldam_trainer(wins))
    if aim.reward in ("winner", "rare winner"):
        weights = positive_wins(wins).min() / positive_wins(wins) if aim.reward == "rare winner" else np.ones_like(wins)
        seen = 1 - winners * weights
        return Lesson(seen, config_for(seen, reward="complement"))
    margins = margins_of_wins(THEORY._replace(offset=aim.offset), wins) if aim.margins == "theory" else np.full_like(wins, aim.scale)
    return Lesson(costs, config_for(costs, margins=margins, reward=aim.reward))


def _ldam_trainer(wins: NDArray[np.float64]) -> type[DeferralTrainer]:
    torch = load_torch()
    from mildroute.core.losses import ldam_loss
    from mildroute.deep.trainer import COSTS, DeferralTrainer

    counts = torch.from_numpy(wins)

    class LdamTrainer(DeferralTrainer):
        def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:  # noqa: ARG002
            outputs = model(**{name: value for name, value in inputs.items() if name != COSTS})
            loss = ldam_loss(outputs["logits"], -inputs[COSTS], counts, s=1.0, max_margin=_LDAM_MARGIN)
            return (loss, outputs) if return_outputs else loss

    return LdamTrainer
