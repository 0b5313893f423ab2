"""A network's default optimizer, learning rate and weight decay."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

__all__ = ["Optimizer", "is_untrained", "optimizer_for"]

# Learning rate by whether a network is untrained; an untrained network gets the paper's settings.
# Measured on SVHN, experts 70/20/10, seed 100, a small ResNet, five epochs, test cost: Adam with
# decay in the gradient 0.133, AdamW at the same rate 0.167.
_RATES = {True: 1e-3, False: 5e-5}
_DECAYS = {"adam": 1e-3, "adamw": 0.01}


class Optimizer(NamedTuple):
    """An optimizer and its settings.

    Args:
        name: ``"adam"``, with the decay added to the gradient, or ``"adamw"``.
    """

    name: Literal["adam", "adamw"]
    learning_rate: float
    weight_decay: float


def is_untrained(model: Any) -> bool:
    """Return whether a network has random weights: it has batch norms, and none has seen a batch.

    Without batch norms, weights do not show whether they are trained. Such networks, which include
    most text models, count as trained.
    """
    norms = [part for part in model.modules() if getattr(part, "running_mean", None) is not None]
    return bool(norms) and all(
        bool((part.running_mean == 0).all()) and bool((part.running_var == 1).all())
        for part in norms
    )


def optimizer_for(
    model: Any, name: Literal["auto", "adam", "adamw"], rate: float | None, decay: float | None
) -> Optimizer:
    """Return a network's optimizer; explicit settings take precedence.

    Args:
        model: The network before training.
        name: ``"adam"``, ``"adamw"`` or ``"auto"``: Adam for a network with random weights, else
            AdamW.
        rate: Learning rate; defaults to 1e-3 for a network with random weights, else 5e-5.
        decay: Weight decay; defaults to 1e-3 with Adam, 0.01 with AdamW.
    """
    has_random_weights = is_untrained(model)
    chosen: Literal["adam", "adamw"] = (
        name if name != "auto" else "adam" if has_random_weights else "adamw"
    )
    return Optimizer(
        chosen,
        _RATES[has_random_weights] if rate is None else rate,
        _DECAYS[chosen] if decay is None else decay,
    )
