"""The temperature that calibrates a fine-tuned network's posterior, which is overconfident."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from mildroute.deep.config import DeferralConfig
from mildroute.routers._deferral_loss import deferral_row_loss
from mildroute.routers.training_rows import Matrix

__all__ = ["fit_temperature"]

_MAX_LOG_TEMPERATURE = float(np.log(20.0))


def fit_temperature(scores: Matrix, rewards: Matrix, deferral: DeferralConfig) -> float:
    """Return the temperature with the lowest deferral loss on held-out rows.

    Args:
        scores: Shape (n, p).
        rewards: Shape (n, p), with row weights already multiplied in.
        deferral: The config, which holds the margins.

    Returns:
        Divisor of the scores, between 1/20 and 20; 1 if the rows carry no information.
    """
    if not rewards.any():
        return 1.0
    loss = deferral_row_loss(np.asarray(rewards, dtype=np.float64), np.asarray(deferral.margins))

    def penalized(log: float) -> float:
        # Regularize toward 1, so that a handful of rows has little effect.
        return float(loss(scores / np.exp(log))[0].mean() + log**2 / len(scores))

    return float(
        np.exp(
            minimize_scalar(
                penalized, bounds=(-_MAX_LOG_TEMPERATURE, _MAX_LOG_TEMPERATURE), method="bounded"
            ).x
        )
    )
