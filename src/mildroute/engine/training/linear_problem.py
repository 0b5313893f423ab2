"""The convex problem of a linear router, as sums over rows that may lie anywhere."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mildroute.engine.training.plans import LinearPlan, plan_margins
from mildroute.engine.training.shards import Rows
from mildroute.engine.training.statistics import Statistics, rewards_of
from mildroute.routers.logistic import deferral_row_loss

__all__ = ["LinearProblem", "Sums", "linear_problem"]

_BLOCK = 8192
"""Rows whose scores are computed at once: what fits a processor's cache."""


@dataclass(frozen=True)
class Sums:
    """Sums over rows at one point: of the losses, of the gradient by the weights (d, p) and by the intercept (p,).

    Example:
        >>> Sums(1, 0.5, np.zeros((2, 2)), np.zeros(2)).rows
        1
    """

    rows: int
    loss: float
    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]


@dataclass(frozen=True)
class LinearProblem:
    """Mean deferral loss + penalty * scale * |weights|^2, in coordinates in which curvature is about the same in every direction.

    The coordinates are those of :mod:`mildroute.routers.solver`, with an eigenbasis from a sample of the rows: they change the way to
    the optimum, not the optimum.

    Args:
        plan: Reward and penalty.
        known: Statistics of all rows.
        margins: Shape (p,).
        basis: Directions, shape (d, d).
        stretch: Length of each, shape (d,).

    Example:
        >>> LinearProblem.__name__
        'LinearProblem'
    """

    plan: LinearPlan
    known: Statistics
    margins: NDArray[np.float64]
    basis: NDArray[np.float64]
    stretch: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a point: one row for each direction, and one for the intercept."""
        return len(self.stretch) + 1, len(self.margins)

    @property
    def ridge(self) -> float:
        """Factor of the squared norm."""
        return self.plan.penalty * self.known.scale

    def weights_at(self, point: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights (d, p) and intercept (p,) of a point, for vectors as they come."""
        weights = self.basis @ (point[:-1] * self.stretch[:, None])
        return weights, point[-1] - self.known.mean @ weights

    def sums_at(self, point: NDArray[np.float64], parts: Iterable[Rows]) -> Sums:
        """What some rows contribute at a point; computed in float32, added up in float64."""
        weights, intercept = self.weights_at(point)
        # Experts before rows: what is done expert by expert then runs along memory.
        factors, shift = torch.from_numpy(weights.T.copy()).float(), torch.from_numpy(intercept[:, None]).float()
        rows, loss, by_weights, by_intercept = 0, 0.0, np.zeros(weights.shape), np.zeros(len(intercept))
        for part in parts:
            rewards = rewards_of(part.costs, self.plan.reward, self.known)
            for start in range(0, len(part.vectors), _BLOCK):
                block = slice(start, start + _BLOCK)
                vectors = _as_tensor(part.vectors[block])
                losses, steps = deferral_row_loss(rewards[block], self.margins)(torch.addmm(shift, factors, vectors.T).numpy().T)
                by_weights += (torch.from_numpy(np.ascontiguousarray(steps.T)) @ vectors).numpy().T
                by_intercept += steps.sum(axis=0, dtype=np.float64)
                loss += float(losses.sum(dtype=np.float64))
            rows += len(part.vectors)
        return Sums(rows, loss, by_weights, by_intercept)

    def value_and_gradient(self, point: NDArray[np.float64], parts: Sequence[Sums]) -> tuple[float, NDArray[np.float64]]:
        """Objective and gradient from the sums of all rows."""
        rows = sum(part.rows for part in parts)
        by_intercept = np.sum([part.intercept for part in parts], axis=0) / rows
        by_weights = np.sum([part.weights for part in parts], axis=0) / rows - np.outer(self.known.mean, by_intercept)
        ridge = self.ridge * self.stretch[:, None] ** 2
        value = sum(part.loss for part in parts) / rows + float((ridge * point[:-1] ** 2).sum())
        gradient = np.vstack([self.basis.T @ by_weights * self.stretch[:, None] + 2 * ridge * point[:-1], by_intercept])
        return value, gradient


def linear_problem(plan: LinearPlan, known: Statistics) -> LinearProblem:
    """The problem of a plan.

    Args:
        plan: What to train.
        known: Statistics of all rows.

    Returns:
        The problem.

    Example:
        >>> from mildroute.engine.training.statistics import statistics_of
        >>> known = statistics_of([Rows(np.eye(3), np.eye(3))], experts=3, stride=1)
        >>> linear_problem(LinearPlan(), known).shape
        (4, 3)
    """
    margins = plan_margins(plan.margins, known)
    centred = known.sample.vectors.astype(np.float64) - known.mean
    variances, basis = np.linalg.eigh(centred.T @ centred / len(centred))
    curvature = np.maximum(variances, 0.0) / (4 * len(margins)) + 2 * plan.penalty * known.scale
    return LinearProblem(plan, known, margins, basis, 1 / np.sqrt(curvature))


def _as_tensor(vectors: NDArray[np.floating]) -> torch.Tensor:
    with warnings.catch_warnings():
        # Shared memory must not be written to, of which torch warns; a wider copy is all that is made of it.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(vectors).float()
