"""Optimizer, learning rate and decay where their user leaves them open: by whether a network knows something already."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

__all__ = ["Optimizer", "is_untrained", "optimizer_for"]

# Untrained networks get what the ledger's are trained with. Measured on SVHN, experts 70/20/10, seed 100, a small ResNet, five epochs,
# test cost: Adam with decay in the gradient .133, AdamW at the same rate .167.
_RATES = {True: 1e-3, False: 5e-5}
_DECAYS = {"adam": 1e-3, "adamw": 0.01}


class Optimizer(NamedTuple):
    """How the weights of a network move.

    Args:
        name: ``"adam"``, with decay as a part of the gradient, or ``"adamw"``.
        learning_rate: Largest step.
        weight_decay: Decay of the weights.

    Example:
        >>> Optimizer("adam", 1e-3, 1e-3).name
        'adam'
    """

    name: Literal["adam", "adamw"]
    learning_rate: float
    weight_decay: float


def is_untrained(model: Any) -> bool:
    """Whether a network starts from random weights: it has batch norms, and none of them has seen a batch.

    The weights of a network without batch norms, as most for texts, do not tell; it counts as trained.

    Args:
        model: A network of torch.

    Example:
        >>> from mildroute.deep.resnet import resnet18_32
        >>> is_untrained(resnet18_32(2))
        True
    """
    seen = [part for part in model.modules() if getattr(part, "running_mean", None) is not None]
    return bool(seen) and all(bool((part.running_mean == 0).all()) and bool((part.running_var == 1).all()) for part in seen)


def optimizer_for(model: Any, name: Literal["auto", "adam", "adamw"], rate: float | None, decay: float | None) -> Optimizer:
    """What a network is trained with; what is given is taken.

    Args:
        model: The network as it starts.
        name: ``"adam"``, ``"adamw"`` or ``"auto"``: Adam for a network with random weights, else AdamW.
        rate: Learning rate, or none: 1e-3 for a network with random weights, else 5e-5.
        decay: Weight decay, or none: 1e-3 with Adam, .01 with AdamW.

    Returns:
        All three.

    Example:
        >>> from mildroute.deep.resnet import resnet18_32
        >>> optimizer_for(resnet18_32(2), "auto", None, None)
        Optimizer(name='adam', learning_rate=0.001, weight_decay=0.001)
        >>> optimizer_for(resnet18_32(2), "adamw", 0.1, None)
        Optimizer(name='adamw', learning_rate=0.1, weight_decay=0.01)
    """
    untrained = is_untrained(model)
    chosen: Literal["adam", "adamw"] = name if name != "auto" else "adam" if untrained else "adamw"
    return Optimizer(chosen, _RATES[untrained] if rate is None else rate, _DECAYS[chosen] if decay is None else decay)
