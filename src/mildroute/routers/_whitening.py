"""Centering and rotation of features, so that a penalized problem is well conditioned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

# Maximum number of columns at which an eigenbasis costs less than the iterations that it saves.
_LARGEST_ROTATION = 2048


@dataclass(frozen=True)
class WhitenedFeatures:
    """The features in their own eigenbasis; sparse and very wide features remain unchanged.

    Attributes:
        columns: Centered features times ``basis``, shape (n, r); the features themselves if
            ``basis`` is `None`.
        mean: Mean of the features, shape (d,).
        basis: Retained directions, shape (d, r), or `None` if the features remain unchanged.
        variances: Variance of each column, shape (r,); descending if there is a basis.
    """

    columns: Any
    mean: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    variances: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """Return the mean squared distance of a row from the mean.

        A penalty in this unit is independent of the scale of the features.
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

    ``dtype`` is the type of the columns, in which the problem is then solved.
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
