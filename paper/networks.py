"""The networks of the paper, and how it trains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.deep.models import Classifier

__all__ = ["RECIPES", "TrainingRecipe", "classifier_of", "recipe_of"]

_DEBERTA = "microsoft/deberta-v3-xsmall"
_TOKENS = 256


@dataclass(frozen=True)
class TrainingRecipe:
    """The training recipe of a network. The step size is constant, and the last state is kept.

    Args:
        model: Name of the network.
        optimizer: Name of the optimizer.
        learning_rate: Step size.
        weight_decay: Weight decay.
        batch_size: Number of rows per step.
        epochs: Number of passes over the training rows.
        unstated: Our choices where the paper does not say.
        offsets: Whole numbers that tuning adds to theory margins.

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
    offsets: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


# The networks by the name that a cell's method uses. Results are stored under that name, so a
# changed recipe needs a new one.
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
        f"batch size, weight decay (the optimizer's default), {_TOKENS} tokens, no schedule, texts"
        " of similar length in a batch, a tenth of the rows held out",
    ),
}


def recipe_of(network: str) -> TrainingRecipe:
    """Return the recipe of a network.

    Args:
        network: Name of the network.

    Example:
        >>> recipe_of("vgg")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: a network must be one of resnet18, deberta, got 'vgg'.
    """
    if network not in RECIPES:
        raise ArgumentError(f"a network must be one of {', '.join(RECIPES)}, got {network!r}.")
    return RECIPES[network]


def classifier_of(network: str, experts: int) -> Classifier:
    """Return a network to train, with a label for each expert, and the reader of its inputs.

    Args:
        network: Name of the network. ``"deberta"`` starts from published weights, which are
            downloaded unless they are cached; ``"resnet18"`` starts from random ones.
        experts: Number of experts.

    Example:
        >>> sum(weights.numel() for weights in classifier_of("resnet18", 3).model.parameters())
        11170371
    """
    from mildroute.deep.models import load_classifier

    recipe_of(network)
    names = [f"expert_{index}" for index in range(experts)]
    if network != "deberta":
        return load_classifier(None, names, kind="image")
    try:
        return load_classifier(_DEBERTA, names, kind="text", max_tokens=_TOKENS)
    except OSError as missing:
        raise ArgumentError(
            f"{_DEBERTA} must be on this machine or on the hub, got: {missing}; fetch it: hf"
            f" download {_DEBERTA}"
        ) from missing
