"""The deferral loss in NumPy, with its gradient: all that a linear router needs to be fitted, so that fitting needs no torch.

The mathematics is that of :func:`mildroute.core.losses.deferral_loss`, and tests hold the two together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.solver import RowLoss

__all__ = ["deferral_row_loss"]

_BLOCK_ELEMENTS = 1 << 17
"""Scores handled at once: what fits a processor's cache."""


def deferral_row_loss(rewards: NDArray[np.float64], margins: NDArray[np.float64]) -> RowLoss:
    """Loss ``sum_k rewards_k log sum_j exp((f_j - f_k) / margins_k)`` of each row and its gradient, as a function of the scores f.

    One logsumexp serves all experts with the same margin, so equal margins cost no more than a softmax.

    Args:
        rewards: Weight of each expert on each row, shape (n, p), not negative.
        margins: Confidence margin of each expert, shape (p,), positive.

    Returns:
        A function of scores of shape (n, p); it computes in their dtype.

    Example:
        >>> loss = deferral_row_loss(np.array([[1.0, 0.0]]), np.ones(2))
        >>> loss(np.zeros((1, 2)))
        (array([0.69314718]), array([[-0.5,  0.5]]))
    """
    distinct, owner = np.unique(margins, return_inverse=True)
    mass = np.zeros((len(rewards), len(distinct)), order="F")
    for expert, node in enumerate(owner):
        mass[:, node] += rewards[:, expert]
    known: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}

    def loss(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        kind = scores.dtype.name
        if kind not in known:
            known[kind] = np.asarray(mass, dtype=kind, order="F"), np.asarray(rewards / margins, dtype=kind, order="F")
        losses, gradient = np.empty(len(scores), dtype=kind), np.empty(scores.shape, dtype=kind, order="F")
        block = max(1, _BLOCK_ELEMENTS // scores.shape[1])
        for start in range(0, len(scores), block):
            part = slice(start, start + block)
            shares, pulls = (array[part] for array in known[kind])
            losses[part], gradient[part] = _block(scores[part], shares, pulls, (1 / distinct).tolist())
        return losses, gradient

    return loss


def _block(scores: NDArray[Any], mass: NDArray[Any], pulls: NDArray[Any], inverse: list[float]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Losses and gradient of some rows; ``mass`` holds the rewards of each distinct margin, ``pulls`` rewards over margins."""
    below_best = scores - scores.max(axis=1, keepdims=True)
    losses = -np.einsum("np,np->n", pulls, below_best)
    gradient = -pulls
    for node, temperature in enumerate(inverse):
        exponentials = np.exp(below_best if temperature == 1 else below_best * temperature)
        totals = exponentials.sum(axis=1)
        losses += mass[:, node] * np.log(totals)
        exponentials *= (temperature * mass[:, node] / totals)[:, None]
        gradient += exponentials
    return losses, gradient
