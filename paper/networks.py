"""The networks that read raw inputs, and how they are trained in the paper and on two cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mildroute._optional import load_torch
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.deep.models import Classifier

__all__ = [
    "RECIPES",
    "TrainingRecipe",
    "classifier_of",
    "recipe_of",
]


_DEBERTA, _TOKENS = "microsoft/deberta-v3-xsmall", 256
_SMALL_STEM, _SMALL_STAGES = 8, (16, 32, 64)


@dataclass(frozen=True)
class TrainingRecipe:
    """The training recipe of a network.

    Args:
        model: Name of the network.
        optimizer: Name of the optimizer.
        learning_rate: Its step.
        weight_decay: Its weight decay.
        batch_size: Rows of a step.
        epochs: Passes over the training rows.
        unstated: Choices that the paper does not state, or differences to the paper's recipe.
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
    from mildroute.encoders.image_models import prepare_image, read_preparation

    names = {"pixels": "pixel_values", COSTS: COSTS}

    class PixelReader(ImageReader):
        def rows(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
            return [{"pixels": prepare_image(image, self.preparation)} for image in inputs]

        def batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
            return {
                names[name]: load_torch().from_numpy(np.stack([row[name] for row in rows]))
                for name in rows[0]
            }

    return PixelReader(read_preparation(SMALL_IMAGES))
