"""Ridge regression of costs with a part common to all experts and a part for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from mildroute.routers.training_rows import Matrix

# Penalties of the common part and of an expert's specific part, in rows; features have a total mean
# square of 1. They were chosen on seeds 0 to 5 of five streams; a search by held-out error is no
# better there, and worse on few rows. With 120 for an expert, routerdc7 gains 0.003, RouterBench
# loses 0.002, and after 60 rows the router can get stuck on a wrong expert.
COMMON_PENALTY, EXPERT_PENALTY = 20.0, 60.0
# Near-zero penalty of the intercepts.
INTERCEPT_PENALTY = 0.01
# Number of columns above which principal axes are computed by a randomized method.
WIDE = 2048


class SharedRidge:
    """Moments of a ridge regression of costs with partial pooling.

    The cost of expert k is ``(common + specific_k) . x``. The common part is learned from all
    costs, and the specific part of an expert only from its own costs. The last column of x must be
    1.

    Args:
        columns: Number of columns d.
        experts: Number of experts p.
    """

    def __init__(self, columns: int, experts: int) -> None:
        self.gram = np.zeros((experts, columns, columns))
        self.moments = np.zeros((experts, columns))
        self.squares = np.zeros(experts)
        self.counts = np.zeros(experts)

    def add(self, X: Matrix, costs: Matrix) -> None:
        """Add rows (n, d) with their costs (n, p), NaN for costs that were not observed."""
        for expert, column in enumerate(costs.T):
            is_observed = ~np.isnan(column)
            rows, observed = X[is_observed], column[is_observed]
            self.gram[expert] += rows.T @ rows
            self.moments[expert] += rows.T @ observed
            self.squares[expert] += observed @ observed
            self.counts[expert] += len(observed)

    def without(self, other: SharedRidge) -> SharedRidge:
        """Return these moments minus those of ``other``."""
        difference = SharedRidge(self.gram.shape[1], len(self.gram))
        for name in vars(self):
            setattr(difference, name, getattr(self, name) - getattr(other, name))
        return difference

    def solve(self, common_penalty: float, expert_penalty: float) -> tuple[Matrix, Matrix, Matrix]:
        """Solve for the coefficients (p, d) and their covariance under noise of variance 1.

        The common part is eliminated block by block, so that the largest inverted matrix has d
        rows, not d (p + 1). The covariance of experts k and l is ``factors[k] factors[l]'``, plus
        ``inverses[k]`` if k = l.

        Returns:
            Coefficients (p, d), factors (p, d, d) and inverses (p, d, d).
        """
        columns = self.moments.shape[1]
        penalty = np.full(columns, expert_penalty)
        prior = np.full(columns, common_penalty)
        penalty[-1] = prior[-1] = INTERCEPT_PENALTY
        inverses = np.linalg.inv(self.gram + np.diag(penalty))
        inverses = (inverses + inverses.transpose(0, 2, 1)) / 2
        # Shrinkage toward the common coefficients: the identity if the expert has no rows.
        shrinkage = np.eye(columns) - inverses @ self.gram
        schur = np.diag(prior) + (self.gram @ shrinkage).sum(axis=0)
        shared = np.linalg.inv((schur + schur.T) / 2)
        shared = (shared + shared.T) / 2
        reduced = self.moments - np.einsum("kde,ke->kd", self.gram @ inverses, self.moments)
        base = shared @ reduced.sum(axis=0)
        weights = shrinkage @ base + np.einsum("kde,ke->kd", inverses, self.moments)
        return weights, shrinkage @ np.linalg.cholesky(shared), inverses

    def noise(self, weights: Matrix) -> float:
        """Return the variance of observed costs around their expectation."""
        fitted = np.einsum("kd,kde,ke->", weights, self.gram, weights)
        residual = self.squares.sum() - 2 * (weights * self.moments).sum() + fitted
        return float(max(residual, 0.0) / max(self.counts.sum(), 1.0))


def principal_axes(
    X: Any, center: NDArray[np.float64], count: int, seed: int
) -> tuple[NDArray[np.float64], Matrix]:
    """Return variances along the first principal axes, and the axes, shape (d, count)."""
    if X.shape[1] > WIDE:
        # Do not center: rows this wide are sparse, and their mean is close to the origin.
        _, values, axes = randomized_svd(X, count, random_state=seed)
        return values**2 / X.shape[0], np.asarray(axes.T, dtype=np.float64)
    products = X.T @ X
    products = products if isinstance(products, np.ndarray) else products.toarray()
    covariance = products.astype(np.float64) / X.shape[0] - np.outer(center, center)
    values, axes = np.linalg.eigh(covariance)
    return np.maximum(values[::-1][:count], 0.0), axes[:, ::-1][:, :count].copy()
