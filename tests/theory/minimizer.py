"""Minimisers of the conditional surrogate by an optimizer of its own.

NumPy formulas and SciPy, nothing of the package.

The surrogate of a posterior p and margins rho is ``sum_k p_k * comp_sum(log sum_j exp((f_j - f_k) /
rho_k))``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, root
from scipy.special import logsumexp

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Conditional:
    """The conditional surrogate of one input, as a function of the scores of all experts but the
    first, which is 0.
    """

    posterior: Vector
    margins: Vector
    tau: float = 1.0

    def surprises(self, free: Vector) -> tuple[Vector, Vector]:
        """Surprise of each expert, and S[k, j] = softmax_j(f / rho_k)."""
        scores = np.concatenate([[0.0], free])
        scaled = scores / self.margins[:, None]
        partition = logsumexp(scaled, axis=1)
        return partition - scores / self.margins, np.exp(scaled - partition[:, None])

    def value(self, free: Vector) -> float:
        surprise, _ = self.surprises(free)
        power = 1 - self.tau
        return float(
            self.posterior @ (surprise if power == 0 else np.expm1(power * surprise) / power)
        )

    def gradient(self, free: Vector) -> Vector:
        surprise, chain = self.surprises(free)
        flow = self.posterior / self.margins * np.exp((1 - self.tau) * surprise)
        return (flow @ chain - flow)[1:]

    def hessian(self, free: Vector) -> NDArray[np.float64]:
        surprise, chain = self.surprises(free)
        flow = self.posterior / self.margins**2 * np.exp((1 - self.tau) * surprise)
        slopes = chain - np.eye(len(chain))
        curvature = np.diag(flow @ chain) - (chain.T * flow) @ chain
        return (curvature + (1 - self.tau) * (slopes.T * flow) @ slopes)[1:, 1:]

    def minimiser(self) -> Vector:
        """Scores of the minimum, gradient below 1e-8.

        A trust region first, then the root of the gradient.
        """
        start = np.zeros(len(self.margins) - 1)
        near = minimize(
            self.value,
            start,
            method="trust-exact",
            jac=self.gradient,
            hess=self.hessian,
            options={"gtol": 1e-6},
        )
        exact = root(self.gradient, near.x, jac=self.hessian, tol=1e-13).x
        found: Vector = min(
            near.x, exact, key=lambda free: float(np.linalg.norm(self.gradient(free)))
        )
        return np.concatenate([[0.0], found])


def draw_conditionals(
    count: int, *, ratio: float, seed: int, tau: float = 1.0
) -> list[Conditional]:
    """Posteriors from a Dirichlet distribution, no entry below 1e-3, and margins from 1 to
    ``ratio``; 2 to 8 experts.
    """
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        experts = int(generator.integers(2, 9))
        posterior = np.maximum(generator.dirichlet(np.ones(experts)), 1.1e-3)
        drawn.append(
            Conditional(posterior / posterior.sum(), ratio ** generator.random(experts), tau)
        )
    return drawn
