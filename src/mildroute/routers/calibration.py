"""Scores put right on held-out rows: one factor and one shift per expert.

A penalty shrinks weights and so favours experts that win often; the more so, the rarer the specialist. What a router says of rows
that it has not seen shows by how much: the deferral loss of ``scale * scores + shift`` on them has p + 1 unknowns and is minimised
exactly. It sharpens the decision and makes the posterior mean what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from mildroute.routers.logistic import deferral_row_loss

__all__ = ["IDENTITY", "Calibration", "calibrate"]

_TOWARDS_IDENTITY = 1e-4
"""Weight of the squared distance from no change at all: what few rows cannot tell stays as it is."""


@dataclass(frozen=True)
class Calibration:
    """A factor for all scores and a shift for each expert, shape (p,) or a number.

    Example:
        >>> Calibration(2.0, np.array([0.0, 1.0])).apply(np.ones((1, 2)))
        array([[2., 3.]])
    """

    scale: float
    shift: Any

    def apply(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Calibrated scores, shape (n, p)."""
        return np.asarray(self.scale * scores + self.shift)


IDENTITY = Calibration(1.0, 0.0)
"""No change."""


def calibrate(
    scores: NDArray[np.float32], rewards: NDArray[np.float64], rho: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> Calibration:
    """The factor and shifts of lowest deferral loss on held-out scores.

    Args:
        scores: Scores of rows by a router that has not seen them, shape (n, p).
        rewards: Their rewards, shape (n, p), with a mean row sum of about 1.
        rho: Margins, shape (p,).
        sample_weight: Weight of each row, shape (n,), or none.

    Example:
        >>> scores = np.repeat(np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32), 50, axis=0)
        >>> rewards = (scores > 0.5) * 0.9 + (scores < 0.5) * 0.1
        >>> calibrate(scores, rewards, np.ones(2), None).scale > 1.5  # right in nine of ten cases, the scores were too timid
        True
    """
    held_out, loss = np.asarray(scores, dtype=np.float64, order="F"), deferral_row_loss(rewards, rho)
    share = np.full(len(scores), 1 / len(scores)) if sample_weight is None else sample_weight / sample_weight.sum()

    def value_and_gradient(unknown: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        stretched = np.exp(unknown[0]) * held_out
        losses, slopes = loss(stretched + unknown[1:])
        slopes *= share[:, None]
        gradient = np.array([(slopes * stretched).sum(), *slopes.sum(axis=0)])
        return float(share @ losses + _TOWARDS_IDENTITY * unknown @ unknown), gradient + 2 * _TOWARDS_IDENTITY * unknown

    found = minimize(value_and_gradient, np.zeros(scores.shape[1] + 1), jac=True, method="L-BFGS-B", options={"gtol": 1e-6}).x
    return Calibration(float(np.exp(found[0])), found[1:])
