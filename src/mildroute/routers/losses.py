"""Losses by name: some of ours, and those that other distributions register."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from mildroute.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GROUP", "LossOfCosts", "loss_named", "loss_names"]

GROUP = "mildroute.losses"
"""Entry-point group under which other distributions register losses."""

LossOfCosts: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"
"""Scores and costs of the training rows, both of shape (n, p), to the loss of each row, shape (n,); written in torch."""


def loss_names() -> list[str]:
    """All names that :func:`loss_named` knows.

    Example:
        >>> {"cross-entropy", "gap", "tdef"} <= set(loss_names())
        True
    """
    return sorted({*_BUILT_IN, *(point.name for point in importlib.metadata.entry_points(group=GROUP))})


def loss_named(name: str) -> LossOfCosts:
    """A loss.

    Args:
        name: One of :func:`loss_names`; our own come first.

    Returns:
        The function.

    Example:
        >>> import torch
        >>> loss_named("gap")(torch.zeros(1, 2), torch.tensor([[0.0, 0.5]]))  # half of log 2
        tensor([0.3466])
        >>> loss_named("vibes")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: loss must be one of cross-entropy, gap, ..., got 'vibes'; ...
    """
    return _BUILT_IN[name] if name in _BUILT_IN else _of_plug_in(name)


@functools.cache  # a router asks in each fold, and going through all that is installed takes longer than a small fit
def _of_plug_in(name: str) -> LossOfCosts:
    points = tuple(importlib.metadata.entry_points(group=GROUP, name=name))
    if len(points) != 1:
        way_out = "uninstall all but one distribution that registers it" if points else f"register it under the entry-point group {GROUP!r}"
        raise ArgumentError(f"loss must be one of {', '.join(loss_names())}, got {name!r:.80}; {way_out}.")
    try:
        loss: LossOfCosts = points[0].load()
    except (ImportError, AttributeError) as broken:
        raise ArgumentError(f"loss {name!r} must be a function, got {points[0].value!r}, which fails: {broken}.") from broken
    if not callable(loss):
        raise ArgumentError(f"loss {name!r} must be a function of scores and costs, got {points[0].value!r}; correct the entry point.")
    return loss


def _cross_entropy(scores: Tensor, costs: Tensor) -> Tensor:
    """On the cheapest expert of each row, ties split equally."""
    from mildroute.core.losses import cross_entropy

    return cross_entropy(scores, -costs, reduction="none")


def _gap(scores: Tensor, costs: Tensor) -> Tensor:
    """Logistic, each expert weighted by how far it is below the row's largest cost."""
    from mildroute.core.losses import tdef_loss
    from mildroute.core.rewards import gap_rewards

    return tdef_loss(scores, gap_rewards(costs), reduction="none")


def _tdef(scores: Tensor, costs: Tensor) -> Tensor:
    """Logistic, each expert weighted by one minus its cost."""
    from mildroute.core.losses import tdef_loss

    return tdef_loss(scores, 1 - costs / costs.max().clamp_min(1.0), reduction="none")


_BUILT_IN: dict[str, LossOfCosts] = {"cross-entropy": _cross_entropy, "gap": _gap, "tdef": _tdef}
