"""The consistent decision in NumPy, so that a fitted router answers without torch; the theory is in :mod:`mildroute.core.decisions`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["comparable", "log_posterior", "log_softmax"]

_BLOCK_ELEMENTS = 1 << 20


def log_softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the softmax of each row.

    Example:
        >>> log_softmax(np.zeros((1, 2))).round(4)
        array([[-0.6931, -0.6931]])
    """
    below_best = values - values.max(axis=1, keepdims=True)
    return np.asarray(below_best - np.log(np.exp(below_best).sum(axis=1, keepdims=True)))


def log_posterior(scores: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the posterior that the scores of a router trained with these margins stand for.

    Args:
        scores: Shape (n, p).
        margins: Shape (p,), positive.

    Returns:
        Shape (n, p); minus infinity where a probability is too small for a float.

    Example:
        >>> np.exp(log_posterior(np.array([[0.0, 0.36687]]), np.array([2.0, 1.0]))).round(4)
        array([[0.6, 0.4]])
    """
    if np.ptp(margins) == 0:
        return log_softmax(scores / margins[0])
    block = max(1, _BLOCK_ELEMENTS // len(margins) ** 2)
    parts = [log_softmax(_log_masses(scores[start : start + block], margins)) for start in range(0, len(scores), block)]
    return np.vstack(parts) if parts else np.empty_like(scores)


def comparable(log_posteriors: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """What to rank by: experts equal but for rounding tie, and those too improbable to tell apart go by their scores.

    Args:
        log_posteriors: Shape (n, p).
        scores: Shape (n, p).

    Returns:
        Shape (n, p), finite.

    Example:
        >>> comparable(np.array([[0.0, -np.inf, -np.inf]]), np.array([[9.0, 1.0, 2.0]])).argsort(axis=1)
        array([[1, 2, 0]])
    """
    hopeless = -1e9 + scores - scores.max(axis=1, keepdims=True)
    return np.where(np.isneginf(log_posteriors), hopeless, log_posteriors.round(10))


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
