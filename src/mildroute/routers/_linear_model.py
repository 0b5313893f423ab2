"""Minimization of mean loss plus ``penalty * scale * |weights|^2`` of linear scores by L-BFGS."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from mildroute.routers._whitening import WhitenedFeatures

# Maps scores of shape (n, p) to the loss of each row, shape (n,), and its gradient, shape (n, p).
# The caller may write to the gradient.
RowLoss: TypeAlias = Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]

# Tolerances on the largest entry of the gradient, in preconditioned units: for an optimum, and for
# a solution that is only compared with other candidates.
OPTIMAL, ROUGH = 1e-6, 1e-4

# Rough solutions omit directions that the penalty shrinks below this share.
_NEGLIGIBLE = 0.05


@dataclass(frozen=True)
class LinearSolution:
    """An optimum of the penalized problem.

    Attributes:
        solution: The solver's own variables, from which a neighboring problem can start.
    """

    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]
    solution: NDArray[np.float64]
    objective: float
    gradient_norm: float
    iterations: int

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores of rows, shape (n, p)."""
        return np.asarray(features @ self.weights) + self.intercept


def minimize_linear(
    design: WhitenedFeatures,
    loss: RowLoss,
    experts: int,
    *,
    alpha: float,
    sample_weight: NDArray[np.float64] | None = None,
    start: NDArray[np.float64] | None = None,
    tolerance: float = OPTIMAL,
    max_iterations: int = 500,
) -> LinearSolution:
    """Minimize the problem by L-BFGS, in coordinates with similar curvature in all directions.

    Args:
        design: Prepared features of n rows.
        loss: Loss of each row as a function of the scores; convex for a global optimum.
        experts: Number of experts p.
        alpha: Weight of the squared norm of the weights, in units of the features' variance.
        sample_weight: Weight of each row, shape (n,).
        start: ``solution`` of a neighboring problem.
        tolerance: Largest entry of the gradient, in preconditioned units, at which the solver
            stops.
        max_iterations: Number of steps after which the solver gives up with a warning.
    """
    ridge = alpha * design.scale
    if tolerance > OPTIMAL:
        design = design.leading(_NEGLIGIBLE * 2 * ridge * 4 * experts)
    stretch = (
        1 / np.sqrt(design.variances / (4 * experts) + 2 * ridge + 1e-12 * design.scale)[:, None]
    )
    shape = (len(design.variances) + 1, experts)
    objective = _objective(design, loss, ridge * stretch**2, stretch, sample_weight, shape)
    first = np.zeros(shape)
    if start is not None:
        shared = min(len(start), len(first)) - 1
        first[:shared], first[-1] = start[:shared] / stretch[:shared], start[-1]
    options = {
        "maxiter": max_iterations,
        "maxcor": 20,
        "gtol": tolerance,
        "ftol": 1e-13 if tolerance <= OPTIMAL else 1e-7,
    }
    result = minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    if result.nit >= max_iterations and np.abs(result.jac).max() > ROUGH:
        warnings.warn(
            f"the solver stopped after {result.nit} steps; raise the penalty or check the costs.",
            RuntimeWarning,
            stacklevel=2,
        )
    variables = result.x.reshape(shape)
    solution = np.vstack([variables[:-1] * stretch, variables[-1:]])
    weights = design.weights_of(solution[:-1])
    intercept = solution[-1] - design.mean @ weights
    return LinearSolution(
        weights,
        intercept,
        solution,
        float(result.fun),
        float(np.abs(result.jac).max()),
        int(result.nit),
    )


def _objective(
    design: WhitenedFeatures,
    loss: RowLoss,
    ridge: NDArray[np.float64],
    stretch: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    shape: tuple[int, int],
) -> Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]:
    rows, kind = design.columns.shape[0], design.columns.dtype
    share = (
        np.full(rows, 1 / rows) if sample_weight is None else sample_weight / sample_weight.sum()
    )
    shares = share.astype(kind)

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        variables = flat.reshape(shape)
        weights = (variables[:-1] * stretch).astype(kind, copy=False)
        # In Fortran order, the following loops run along the rows of one expert after another.
        scores = np.asfortranarray((weights.T @ design.columns.T).T) + variables[-1].astype(kind)
        losses, steps = loss(scores)
        steps *= shares[:, None]
        gradient = np.vstack(
            [
                np.asarray(design.columns.T @ steps) * stretch + 2 * ridge * variables[:-1],
                steps.sum(axis=0),
            ]
        )
        return float(losses @ shares) + float((ridge * variables[:-1] ** 2).sum()), gradient.ravel()

    return value_and_gradient
