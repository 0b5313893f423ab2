"""Calibration of scores on held-out rows, with one factor for all and one shift per expert.

A penalty shrinks weights and thereby favors experts that win often, the more so the more rarely a
specialist wins. Scores of held-out rows reveal by how much: the deferral loss of
``scale * scores + shift`` on them has p + 1 unknowns and is minimized exactly. This sharpens the
decision and calibrates the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from mildroute.routers._deferral_loss import deferral_row_loss

# Weight of the squared distance from the identity, so that few rows change little.
_TOWARDS_IDENTITY = 1e-4


@dataclass(frozen=True)
class Calibration:
    """A factor for all scores and a shift for each expert, shape (p,) or a number."""

    scale: float
    shift: Any

    def apply(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return calibrated scores, shape (n, p)."""
        return np.asarray(self.scale * scores + self.shift)


# The identity.
IDENTITY = Calibration(1.0, 0.0)


def calibrate(
    scores: NDArray[np.float32],
    rewards: NDArray[np.float64],
    rho: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
) -> Calibration:
    """Return the factor and shifts with the lowest deferral loss on held-out scores.

    Args:
        scores: Scores of rows by a router that was not trained on them, shape (n, p).
        rewards: Their rewards, shape (n, p), with a mean row sum of about 1.
        rho: Margins, shape (p,).
        sample_weight: Weight of each row, shape (n,), or `None`.
    """
    held_out, loss = (
        np.asarray(scores, dtype=np.float64, order="F"),
        deferral_row_loss(rewards, rho),
    )
    share = (
        np.full(len(scores), 1 / len(scores))
        if sample_weight is None
        else sample_weight / sample_weight.sum()
    )

    def value_and_gradient(variables: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        stretched = np.exp(variables[0]) * held_out
        losses, slopes = loss(stretched + variables[1:])
        slopes *= share[:, None]
        gradient = np.array([(slopes * stretched).sum(), *slopes.sum(axis=0)])
        return (
            float(share @ losses + _TOWARDS_IDENTITY * variables @ variables),
            gradient + 2 * _TOWARDS_IDENTITY * variables,
        )

    optimum = minimize(
        value_and_gradient,
        np.zeros(scores.shape[1] + 1),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-6},
    ).x
    return Calibration(float(np.exp(optimum[0])), optimum[1:])
