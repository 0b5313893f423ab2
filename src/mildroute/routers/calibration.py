"""Scores put right on held-out rows: one factor and one shift per expert.

A penalty shrinks weights and so favours experts that win often; the more so, the rarer the specialist. What a router says of rows
that it has not seen shows by how much: the deferral loss of ``scale * scores + shift`` on them has p + 1 unknowns and is minimised
exactly. It sharpens the decision and makes the posterior mean what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

if TYPE_CHECKING:
    from torch import Tensor

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
    scores: NDArray[np.float32], rewards: Tensor, rho: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> Calibration:
    """The factor and shifts of lowest deferral loss on held-out scores.

    Args:
        scores: Scores of rows by a router that has not seen them, shape (n, p).
        rewards: Their rewards, shape (n, p), with a mean row sum of about 1.
        rho: Margins, shape (p,).
        sample_weight: Weight of each row, shape (n,), or none.

    Example:
        >>> import torch
        >>> scores = np.repeat(np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32), 50, axis=0)
        >>> rewards = torch.from_numpy((scores > 0.5) * 0.9 + (scores < 0.5) * 0.1)
        >>> calibrate(scores, rewards.double(), np.ones(2), None).scale > 1.5  # right in nine of ten cases, the scores were too timid
        True
    """
    import torch

    from mildroute.core.surprise import row_losses

    held_out, margins = torch.from_numpy(scores.astype(np.float64)), torch.from_numpy(rho)
    share = np.full(len(scores), 1 / len(scores)) if sample_weight is None else sample_weight / sample_weight.sum()
    shares = torch.from_numpy(share)

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        unknown = torch.tensor(flat, requires_grad=True)
        loss = (row_losses(unknown[0].exp() * held_out + unknown[1:], rewards, margins, 1.0) * shares).sum()
        loss = loss + _TOWARDS_IDENTITY * (unknown**2).sum()
        (gradient,) = torch.autograd.grad(loss, unknown)
        return float(loss.detach()), gradient.numpy()

    found = minimize(value_and_gradient, np.zeros(scores.shape[1] + 1), jac=True, method="L-BFGS-B", options={"gtol": 1e-6}).x
    return Calibration(float(np.exp(found[0])), found[1:])
