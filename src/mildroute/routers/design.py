"""A feature matrix prepared for solving: centred, and turned so that a penalised problem on it is well conditioned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Design", "design_of"]

_LARGEST_ROTATION = 2048
"""Up to this many columns an eigenbasis costs less than the iterations it saves."""


@dataclass(frozen=True)
class Design:
    """Features in their own eigenbasis.

    Attributes:
        columns: Centred features times ``basis``, shape (n, r); sparse and wide ones stay as they are.
        mean: Mean of the features, shape (d,).
        basis: Directions kept, shape (d, r), or none where features stay as they are.
        variances: Variance of each column, shape (r,); largest first where there is a basis.

    Example:
        >>> design_of(np.array([[0.0, 1.0], [2.0, 1.0]])).variances.round(3)
        array([1.])
    """

    columns: Any
    mean: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    variances: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """Mean squared distance of a row from the mean; a penalty in units of it does not depend on the scale of the features."""
        return float(self.variances.sum()) or 1.0

    def leading(self, smallest: float) -> Design:
        """The directions whose variance is at least ``smallest``; features that stay as they are keep all columns."""
        if self.basis is None:
            return self
        rank = int((self.variances >= smallest).sum())
        return Design(self.columns[:, :rank], self.mean, self.basis[:, :rank], self.variances[:rank])

    def weights_of(self, solution: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the original features, shape (d, p), from those of the columns, shape (r, p)."""
        return solution if self.basis is None else self.basis @ solution


def design_of(features: Any, sample_weight: NDArray[np.float64] | None = None, dtype: type[np.floating[Any]] = np.float64) -> Design:
    """Prepare features of shape (n, d), dense or sparse; ``dtype`` is that of the columns, in which the problem is then solved.

    Example:
        >>> design_of(np.eye(3)).columns.shape
        (3, 2)
    """
    rows = features.shape[0]
    weights = np.full(rows, 1 / rows) if sample_weight is None else sample_weight / sample_weight.sum()
    if sparse.issparse(features) or features.shape[1] > _LARGEST_ROTATION:
        columns = features.astype(dtype)
        mean = np.zeros(features.shape[1])
        squares = columns.multiply(columns) if sparse.issparse(columns) else columns**2
        variances = np.asarray(weights @ squares).ravel().astype(np.float64)
        return Design(columns, mean, None, variances)
    dense = np.asarray(features, dtype=np.float64)
    mean = np.average(dense, axis=0, weights=weights)
    centred = dense - mean
    gram = centred.T @ (centred * weights[:, None])
    variances, basis = (part[..., ::-1] for part in np.linalg.eigh(gram))
    rounding = 1e-20 * float(weights @ np.square(dense).sum(axis=1)) + 1e-300
    rank = int((variances > max(1e-10 * variances.max(initial=0.0), rounding)).sum())
    columns = np.asfortranarray(centred @ basis[:, :rank], dtype=dtype)
    return Design(columns, mean, basis[:, :rank], variances[:rank])
