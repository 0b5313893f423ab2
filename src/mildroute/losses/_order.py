"""The order of a row's experts; ties go to the highest index, as in the paper."""

from __future__ import annotations

import torch
from torch import Tensor


def argmax_last(values: Tensor) -> Tensor:
    """Return the column of each row's largest value; ties go to the highest column."""
    return values.shape[1] - 1 - values.flip(1).argmax(dim=1)


def argsort_desc(values: Tensor) -> Tensor:
    """Return the columns of each row by descending value; ties go to the highest column first."""
    return values.shape[1] - 1 - values.flip(1).argsort(dim=1, descending=True, stable=True)


def runner_up_score(scores: Tensor) -> Tensor:
    """Return the largest score among the other experts, for each expert.

    Args:
        scores: Router outputs, shape (n, p), p at least 2.
    """
    top = scores.topk(2, dim=1)
    best = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, top.indices[:, :1], True)
    return torch.where(best, top.values[:, 1:], top.values[:, :1])
