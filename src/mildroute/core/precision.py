"""Losses are sums of exponentials: they are computed in float32 or float64, also inside an autocast region."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

__all__ = ["full_precision", "no_autocast"]


def full_precision(scores: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Bring scores to at least float32, and the others to the dtype and device of the scores.

    Example:
        >>> [x.dtype for x in full_precision(torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.float64))]
        [torch.float32, torch.float32]
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return (scores, *(other.to(scores.device, scores.dtype) for other in others))


def no_autocast(scores: Tensor) -> AbstractContextManager[object]:
    """A region in which autocast is off for the device of the scores; costs nothing where it is off already.

    Example:
        >>> with torch.autocast("cpu", torch.bfloat16), no_autocast(torch.zeros(1)):
        ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
        torch.float32
    """
    device = scores.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
