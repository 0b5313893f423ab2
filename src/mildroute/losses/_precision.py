"""The precision of losses: sums of exponentials need float32 or more, even under autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(scores: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Convert scores to at least float32, and the others to the scores' dtype and device."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return (scores, *(other.to(scores.device, scores.dtype) for other in others))


def no_autocast(scores: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast is off on the scores' device.

    If it is already off, the context does nothing.
    """
    device = scores.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
