"""The deferral loss in NumPy, with its gradient, so that fitting a linear router needs no torch.

The mathematics is that of :func:`mildroute.losses.functional.deferral_loss`; tests keep the two
in agreement.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._linear_model import RowLoss

# Scores handled at once, chosen to fit a processor's cache.
_BLOCK_ELEMENTS = 1 << 17


def deferral_row_loss(rewards: NDArray[np.float64], margins: NDArray[np.float64]) -> RowLoss:
    """Return the deferral loss of each row and its gradient, as a function of the scores.

    The loss is ``sum_k rewards_k log sum_j exp((f_j - f_k) / margins_k)`` for scores f. One
    logsumexp serves all experts with the same margin, so equal margins cost no more than a softmax.

    Args:
        rewards: Weight of each expert on each row, shape (n, p), not negative.
        margins: Confidence margin of each expert, shape (p,), positive.

    Returns:
        A function of scores of shape (n, p), which computes in their dtype.
    """
    distinct, owner = np.unique(margins, return_inverse=True)
    mass = np.zeros((len(rewards), len(distinct)), order="F")
    for expert, node in enumerate(owner):
        mass[:, node] += rewards[:, expert]
    cached: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}

    def loss(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        kind = scores.dtype.name
        if kind not in cached:
            cached[kind] = (
                np.asarray(mass, dtype=kind, order="F"),
                np.asarray(rewards / margins, dtype=kind, order="F"),
            )
        losses, gradient = (
            np.empty(len(scores), dtype=kind),
            np.empty(scores.shape, dtype=kind, order="F"),
        )
        block = max(1, _BLOCK_ELEMENTS // scores.shape[1])
        for start in range(0, len(scores), block):
            part = slice(start, start + block)
            shares, pulls = (array[part] for array in cached[kind])
            losses[part], gradient[part] = _block(
                scores[part], shares, pulls, (1 / distinct).tolist()
            )
        return losses, gradient

    return loss


def _block(
    scores: NDArray[Any], mass: NDArray[Any], pulls: NDArray[Any], inverse: list[float]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return losses and gradient of a block of rows.

    ``mass`` contains the rewards of each distinct margin, and ``pulls`` rewards divided by margins.
    """
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
