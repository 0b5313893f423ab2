"""The linear model.

Preconditioned L-BFGS for the convex problem, the loss with its gradient, and calibration.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

# A feature matrix prepared for the solver: centered and rotated so that a penalized problem on it
# is well conditioned.


# Up to this many columns an eigenbasis costs less than the iterations it saves.
_LARGEST_ROTATION = 2048


@dataclass(frozen=True)
class WhitenedFeatures:
    """The features in their own eigenbasis; sparse and very wide features stay as they are.

    Attributes:
        columns: Centered features times ``basis``, shape (n, r); the features themselves if
            ``basis`` is `None`.
        mean: Mean of the features, shape (d,).
        basis: Directions kept, shape (d, r), or `None` if the features stay as they are.
        variances: Variance of each column, shape (r,); descending if there is a basis.
    """

    columns: Any
    mean: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    variances: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """Return the mean squared distance of a row from the mean.

        A penalty in this unit does not depend on the scale of the features.
        """
        return float(self.variances.sum()) or 1.0

    def leading(self, smallest: float) -> WhitenedFeatures:
        """Keep the directions whose variance is at least ``smallest``.

        Features without a basis keep all columns.
        """
        if self.basis is None:
            return self
        rank = int((self.variances >= smallest).sum())
        return WhitenedFeatures(
            self.columns[:, :rank], self.mean, self.basis[:, :rank], self.variances[:rank]
        )

    def weights_of(self, solution: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return weights of the original features (d, p) from those of the columns (r, p)."""
        return solution if self.basis is None else self.basis @ solution


def whiten(
    features: Any,
    sample_weight: NDArray[np.float64] | None = None,
    dtype: type[np.floating[Any]] = np.float64,
) -> WhitenedFeatures:
    """Prepare features of shape (n, d), dense or sparse.

    ``dtype`` is the type of the columns; the problem is then solved in it.
    """
    rows = features.shape[0]
    weights = (
        np.full(rows, 1 / rows) if sample_weight is None else sample_weight / sample_weight.sum()
    )
    if sparse.issparse(features) or features.shape[1] > _LARGEST_ROTATION:
        columns = features.astype(dtype)
        mean = np.zeros(features.shape[1])
        squares = columns.multiply(columns) if sparse.issparse(columns) else columns**2
        variances = np.asarray(weights @ squares).ravel().astype(np.float64)
        return WhitenedFeatures(columns, mean, None, variances)
    dense = np.asarray(features, dtype=np.float64)
    mean = np.average(dense, axis=0, weights=weights)
    centered = dense - mean
    gram = centered.T @ (centered * weights[:, None])
    variances, basis = (part[..., ::-1] for part in np.linalg.eigh(gram))
    rounding = 1e-20 * float(weights @ np.square(dense).sum(axis=1)) + 1e-300
    rank = int((variances > max(1e-10 * variances.max(initial=0.0), rounding)).sum())
    columns = np.asfortranarray(centered @ basis[:, :rank], dtype=dtype)
    return WhitenedFeatures(columns, mean, basis[:, :rank], variances[:rank])


# The convex problem of a linear router, solved to optimality: mean loss + penalty * scale *
# |weights|^2.


# Maps scores of shape (n, p) to the loss of each row, shape (n,), and its gradient, shape (n, p).
# The caller may write to the gradient.
RowLoss: TypeAlias = Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]

# Largest entry of the gradient, in preconditioned units: at an optimum, and for a solution that is
# only compared with other candidates.
OPTIMAL, ROUGH = 1e-6, 1e-4

# Rough solutions leave out directions that the penalty shrinks below this share.
_NEGLIGIBLE = 0.05


@dataclass(frozen=True)
class LinearSolution:
    """An optimum of the penalized problem.

    Attributes:
        solution: The solver's own variables, to start a neighboring problem from.
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
    """Minimize by L-BFGS in coordinates in which curvature is similar in all directions.

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
        # Transposed, so that the following loops run along the rows of one expert after another.
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


# The deferral loss in NumPy, with its gradient, so that fitting a linear router needs no torch.
#
# The mathematics is that of :func:`mildroute.losses.functional.deferral_loss`; tests keep the two
# in agreement.


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
        A function of scores of shape (n, p); it computes in their dtype.
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

    ``mass`` holds the rewards of each distinct margin, ``pulls`` rewards over margins.
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


# Calibration of scores on held-out rows: one factor for all, one shift per expert.
#
# A penalty shrinks weights and thereby favors experts that win often, and the more so the rarer a
# specialist wins. Scores of unseen rows show by how much: the deferral loss of
# ``scale * scores + shift`` on them has p + 1 unknowns and is minimized exactly. This sharpens the
# decision and calibrates the posterior.


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

    def value_and_gradient(unknown: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        stretched = np.exp(unknown[0]) * held_out
        losses, slopes = loss(stretched + unknown[1:])
        slopes *= share[:, None]
        gradient = np.array([(slopes * stretched).sum(), *slopes.sum(axis=0)])
        return (
            float(share @ losses + _TOWARDS_IDENTITY * unknown @ unknown),
            gradient + 2 * _TOWARDS_IDENTITY * unknown,
        )

    optimum = minimize(
        value_and_gradient,
        np.zeros(scores.shape[1] + 1),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-6},
    ).x
    return Calibration(float(np.exp(optimum[0])), optimum[1:])
