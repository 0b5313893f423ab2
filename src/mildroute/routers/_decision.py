"""The consistent decision in NumPy, so that a fitted router predicts without torch.

The theory is in :mod:`mildroute.losses.decision`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK_ELEMENTS = 1 << 20


def log_softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the softmax of each row."""
    below_best = values - values.max(axis=1, keepdims=True)
    return np.asarray(below_best - np.log(np.exp(below_best).sum(axis=1, keepdims=True)))


def log_posterior(scores: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log posterior implied by scores of a router trained with these margins.

    Returns:
        Shape (n, p); minus infinity where a probability is too small for a float.
    """
    if np.ptp(margins) == 0:
        return log_softmax(scores / margins[0])
    block = max(1, _BLOCK_ELEMENTS // len(margins) ** 2)
    parts = [
        log_softmax(_log_masses(scores[start : start + block], margins))
        for start in range(0, len(scores), block)
    ]
    return np.vstack(parts) if parts else np.empty_like(scores)


def break_ties(
    log_posteriors: NDArray[np.float64], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the values to rank experts by.

    Experts equal up to rounding tie; experts too improbable to tell apart rank by score.
    """
    by_score = -1e9 + scores - scores.max(axis=1, keepdims=True)
    return np.where(np.isneginf(log_posteriors), by_score, log_posteriors.round(10))


def _log_masses(scores: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = np.arange(len(scores))
    home = scores.argmax(axis=1)
    below_best = scores - scores[rows, home][:, None]
    others = below_best.copy()
    others[rows, home] = -np.inf
    best_other = np.zeros_like(scores)
    best_other[rows, home] = others.max(axis=1) / margins[home]
    exponents = below_best[:, :, None] / margins - best_other[:, None, :]
    diagonal = np.arange(len(margins))
    exponents[:, diagonal, diagonal] = -np.inf
    jumps = np.exp(exponents)
    totals = jumps.sum(axis=1)
    log_others = best_other + np.log(totals)
    log_leave = log_others - np.logaddexp(log_others, below_best / margins)
    system = -jumps / totals[:, None, :]
    system[rows, home] = 0
    system[:, diagonal, diagonal] = 1
    start = np.zeros_like(scores)
    start[rows, home] = 1
    visits = np.linalg.solve(system, start[:, :, None])[:, :, 0].clip(min=0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(margins) + np.log(visits) - log_leave)
