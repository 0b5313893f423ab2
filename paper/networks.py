"""The networks that read raw inputs.

What they are and how they are trained, in the paper and on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._optional import load_torch
from mildroute.deep.config import DeferralConfig, config_for
from mildroute.exceptions import ArgumentError
from mildroute.routers._decision import smoothed_win_counts, winner_targets
from mildroute.routers.training_rows import Matrix

if TYPE_CHECKING:
    from mildroute.deep.models import Classifier
    from mildroute.deep.trainer import DeferralTrainer

__all__ = [
    "NETWORK_METHODS",
    "RECIPES",
    "NetworkMethod",
    "TrainingObjective",
    "TrainingRecipe",
    "TrainingTarget",
    "classifier_of",
    "lesson_of",
    "method_of_network",
    "recipe_of",
]


# What networks are trained for: the loss of each method, and how the scores of the trained
# network become a choice.


# Margin of the rarest winner in units of the scores, as in
# :class:`mildroute.routers.surrogate.LDAMRouter`.
_LDAM_MARGIN = 5.0


@dataclass(frozen=True)
class TrainingObjective:
    """What one training is for; methods with the same aim share the trained network.

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
    """A method: what it is, its aim, and how it decides.

    Args:
        what: In words.
        aim: What its network is trained for.
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
    "mild-decoded": NetworkMethod("the very network, largest posterior", _PRINTED, "consistent"),
    "mild-tuned": NetworkMethod(
        "the same margins plus an integer chosen by held-out rows", _PRINTED, tuned=True
    ),
    "mild-uniform": NetworkMethod(
        "sum reward, equal margins, largest score", TrainingObjective("sum")
    ),
    "mild-consistent": NetworkMethod(
        "the very network, largest posterior at a temperature that is fitted on held-out rows",
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
    "mild-mass-decoded": NetworkMethod("the very network, largest posterior", _MASS, "consistent"),
    "mild-mass-tuned": NetworkMethod(
        "the same margins plus an integer chosen by held-out rows", _MASS, tuned=True
    ),
    "mild-mass-consistent": NetworkMethod(
        "the very network, largest posterior at a temperature that is fitted on held-out rows",
        _MASS,
        "consistent",
        calibrated=True,
    ),
}


@dataclass(frozen=True)
class TrainingTarget:
    """An aim in the terms of a trainer.

    Args:
        costs: As the loss shall see them, shape (n, p).
        deferral: Margins and reward.
        trainer: A trainer with a loss of its own, or none for the deferral loss.

    Example:
        >>> lesson_of(TrainingObjective("winner"), np.array([[0.0, 0.4]])).costs
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


def lesson_of(aim: TrainingObjective, costs: Matrix) -> TrainingTarget:
    """Return the costs, margins and reward that train a network for an objective.

    Cross-entropy on the winner is the deferral loss of costs that are 0 for the winner and 1 for
    the others; ties are split equally.

    Args:
        aim: The aim.
        costs: Costs of the training rows, shape (n, p).

    Returns:
        Costs, margins and reward.

    Example:
        >>> costs = 1 - np.repeat(np.eye(2), [8, 1], axis=0)
        >>> lesson_of(TrainingObjective("sum", "theory"), costs).deferral.margins
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


# The networks that read raw inputs: what they are and how they are trained, in the paper and on
# two cores.


_DEBERTA, _TOKENS = "microsoft/deberta-v3-xsmall", 256
_SMALL_STEM, _SMALL_STAGES = 8, (16, 32, 64)


@dataclass(frozen=True)
class TrainingRecipe:
    """How a router is trained.

    Args:
        model: Name of the network.
        optimizer: Name of the optimizer.
        learning_rate: Its step.
        weight_decay: Its weight decay.
        batch_size: Rows of a step.
        epochs: Passes over the training rows.
        unstated: What the paper does not say, and what is taken; or how the recipe differs from the
            paper's.
        schedule: Whether the step stays ``"constant"`` or is ``"falling"`` linearly to zero.
        keep: The ``"last"`` state, or that of lowest ``"loss"`` on held-out rows.
        offsets: Integers that tuning adds to theory margins.

    Example:
        >>> RECIPES["resnet18"].epochs
        200
    """

    model: str
    optimizer: Literal["Adam", "AdamW"]
    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: int
    unstated: str = ""
    schedule: Literal["constant", "falling"] = "constant"
    keep: Literal["last", "loss"] = "last"
    offsets: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


# The networks by the name that a cell's method gives: the paper's two, and a small one for two
# cores. Results are stored under the name, so a recipe never changes under it: another recipe needs
# another name.
RECIPES: dict[str, TrainingRecipe] = {
    "resnet18": TrainingRecipe(
        "ResNet-18 for 32 x 32 images",
        "Adam",
        1e-3,
        1e-3,
        1024,
        200,
        "stem (3 x 3, stride 1), no schedule, no augmentation, a tenth of the rows held out",
    ),
    "deberta": TrainingRecipe(
        _DEBERTA,
        "AdamW",
        5e-5,
        0.01,
        32,
        5,
        f"batch size, weight decay (the optimizer's), {_TOKENS} tokens, no schedule, texts of like"
        " length in a batch, a tenth of the rows held out",
    ),
    "resnet-small": TrainingRecipe(
        "ResNet for 32 x 32 images, three stages of one block, 16, 32 and 64 channels",
        "Adam",
        1e-3,
        1e-3,
        32,
        5,
        "batches of 32 and 5 epochs of a falling step instead of 200 of a constant one, the state"
        " of lowest held-out loss instead of the last one, offsets 0 and 5 alone",
        schedule="falling",
        keep="loss",
        offsets=(0.0, 5.0),
    ),
}


def recipe_of(network: str) -> TrainingRecipe:
    """Return the recipe of a network.

    Args:
        network: Its name.

    Returns:
        The recipe.

    Example:
        >>> recipe_of("vgg")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: a network must be one of resnet18, ..., got 'vgg'.
    """
    if network not in RECIPES:
        raise ArgumentError(f"a network must be one of {', '.join(RECIPES)}, got {network!r}.")
    return RECIPES[network]


def classifier_of(network: str, experts: int) -> Classifier:
    """Build an untrained network with a label for each expert, and its reader.

    Args:
        network: Its name. ``"deberta"`` is downloaded where it is not there yet; the others start
            from random weights.
        experts: Number of the experts.

    Returns:
        The network and its reader.

    Example:
        >>> sum(weights.numel() for weights in classifier_of("resnet-small", 3).model.parameters())
        76363
    """
    recipe_of(network)
    names = [f"expert_{place}" for place in range(experts)]
    from mildroute.deep.models import Classifier, load_classifier, resnet18_32

    if network != "deberta":
        return Classifier(
            resnet18_32(names) if network == "resnet18" else _small_resnet(names), _pixel_reader()
        )
    try:
        return load_classifier(_DEBERTA, names, kind="text", max_tokens=_TOKENS)
    except OSError as missing:
        raise ArgumentError(
            f"{_DEBERTA} must be on this machine or on the hub, got: {missing}; fetch it: hf"
            f" download {_DEBERTA}"
        ) from missing


def _small_resnet(names: Sequence[str]) -> Any:
    from mildroute.deep.models import SmallResNet, SmallResNetConfig

    config = SmallResNetConfig(
        embedding_size=_SMALL_STEM,
        hidden_sizes=_SMALL_STAGES,
        depths=[1] * len(_SMALL_STAGES),
        layer_type="basic",
        downsample_in_first_stage=True,
        id2label=dict(enumerate(names)),
        label2id={name: place for place, name in enumerate(names)},
    )
    # Channels last: a third faster on a processor.
    return SmallResNet(config).to(memory_format=load_torch().channels_last)


def _pixel_reader() -> Any:
    """Build a reader that prepares each image once and not once an epoch.

    Thousands of small images fit in memory.
    """
    from mildroute.deep.models import SMALL_IMAGES
    from mildroute.deep.trainer import COSTS, ImageReader
    from mildroute.encoders.onnx_export import preparation_of, prepared

    names = {"pixels": "pixel_values", COSTS: COSTS}

    class PixelReader(ImageReader):
        def rows(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
            return [{"pixels": prepared(image, self.preparation)} for image in inputs]

        def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
            return {
                names[name]: load_torch().from_numpy(np.stack([row[name] for row in rows]))
                for name in rows[0]
            }

    return PixelReader(preparation_of(SMALL_IMAGES))
