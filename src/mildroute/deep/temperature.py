"""One number that makes the posterior of a network mean what it says: fine-tuned networks are surer than they should be."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from mildroute.deep.config import DeferralConfig
from mildroute.routers.base import Matrix
from mildroute.routers.logistic import deferral_row_loss

__all__ = ["fit_temperature"]

_WIDEST = float(np.log(20.0))


def fit_temperature(scores: Matrix, rewards: Matrix, deferral: DeferralConfig) -> float:
    """The temperature of lowest deferral loss on rows that the network has not learnt from.

    Args:
        scores: Shape (n, p).
        rewards: Shape (n, p), weights of rows already in them.
        deferral: The margins.

    Returns:
        What to divide scores by, between 1/20 and 20; 1 where no row says anything.

    Example:
        >>> scores = np.tile([[4.0, 0.0]], (100, 1))
        >>> rewards = np.repeat(np.eye(2), [73, 27], axis=0)  # right in 73% of the cases, the scores say 98%
        >>> round(fit_temperature(scores, rewards, DeferralConfig((1.0, 1.0))))
        4
    """
    if not rewards.any():
        return 1.0
    loss = deferral_row_loss(np.asarray(rewards, dtype=np.float64), np.asarray(deferral.margins))

    def penalised(log: float) -> float:
        # What a handful of rows cannot tell stays as it is.
        return float(loss(scores / np.exp(log))[0].mean() + log**2 / len(scores))

    return float(np.exp(minimize_scalar(penalised, bounds=(-_WIDEST, _WIDEST), method="bounded").x))
