"""The rows that routers learn from, checked once and passed on as one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._folds import cluster_codes

if TYPE_CHECKING:
    from mildroute.routers.cascade.features import SeenAnswers
    from mildroute.routers.feature_sets import FeatureSets

__all__ = ["FoldVectors", "Matrix", "Progress", "TrainingRows", "drop_zero_weight"]

# A two-dimensional array; for X, a scipy.sparse matrix is accepted too.
Matrix = NDArray[Any]
# Called with the number of completed steps, the total and a description of the next step.
Progress: TypeAlias = Callable[[int, int, str], None]


class FoldVectors(NamedTuple):
    """The vectors of all rows by an encoder that was not trained on one fold.

    Attributes:
        held_out: Indices of the rows of the fold.
        vectors: Vectors of all rows, shape (n, d).
        answers: Answers to all rows as features from a transformer not trained on the fold, or
            `None`.
    """

    held_out: NDArray[np.intp]
    vectors: Any
    answers: SeenAnswers | None = None


@dataclass(frozen=True)
class TrainingRows:
    """Checked training data; :meth:`~mildroute.routers.RouterMixin.training_rows` creates it.

    Attributes:
        X: Vectors, shape (n, d), dense or sparse.
        costs: Cost of each expert on each row, shape (n, p); without the prices if there are any.
        sample_weight: Weight of each row, shape (n,), or `None`.
        groups: Group of each row, shape (n,), or `None`.
        prices: Price of each expert on each row, shape (n, p), or `None`.
        clusters: Number of each row's cluster, from 0, shape (n,), or `None` if every row is its
            own; rows of a cluster, such as copies of a prompt, are held out together.
        experts: Names of the experts, or empty.
        folds: For each fold, vectors by an encoder that was not trained on it; `None` divides ``X``
            itself into folds.
        answers: Answers of all experts to all rows, for a cascade, or `None`.
        looks: Number of columns of costs and prices, the last ones, that are looks of a cascade.
        features: Features of these rows that another fit on them has already built, or `None`.
        data_hash: Hash of vectors and costs, or empty.

    Example:
        >>> rows = TrainingRows(np.eye(2), np.zeros((2, 2)), prices=np.full((2, 2), 0.5))
        >>> rows.at_price(2.0).costs
        array([[1., 1.],
               [1., 1.]])
    """

    X: Any
    costs: Matrix
    sample_weight: NDArray[np.float64] | None = None
    groups: Any = None
    prices: Matrix | None = None
    clusters: NDArray[np.intp] | None = None
    experts: tuple[str, ...] = ()
    folds: Sequence[FoldVectors] | None = None
    answers: SeenAnswers | None = None
    looks: int = 0
    features: FeatureSets | None = None
    data_hash: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the experts, or ``expert_0``, ``expert_1`` and so on."""
        return self.experts or tuple(f"expert_{index}" for index in range(self.costs.shape[1]))

    @property
    def dollars(self) -> Matrix:
        """Return the prices, or zeros if there are none, shape (n, p)."""
        if self.prices is not None:
            return self.prices
        return np.broadcast_to(np.zeros(self.costs.shape[1]), self.costs.shape)

    def costs_at(self, price_weight: float) -> Matrix:
        """Return costs that include the prices at a price weight, shape (n, p)."""
        return np.asarray(self.costs + price_weight * self.dollars)

    def at_price(self, price_weight: float) -> TrainingRows:
        """Return the rows with costs that include the prices at a price weight."""
        return replace(self, costs=self.costs_at(price_weight), prices=None)

    def take(self, rows: NDArray[np.intp], vectors: Any) -> TrainingRows:
        """Return some of the rows, with the vectors of another encoder."""
        return replace(
            self,
            X=vectors[rows],
            costs=self.costs[rows],
            sample_weight=None if self.sample_weight is None else self.sample_weight[rows],
            groups=None if self.groups is None else np.asarray(self.groups)[rows],
            prices=None if self.prices is None else self.prices[rows],
            clusters=(
                None if self.clusters is None else cluster_codes(self.clusters[rows], len(rows))
            ),
            folds=None,
            answers=None,
            features=None,
            data_hash="",
        )

    def with_weight(self) -> TrainingRows:
        """Return the rows with positive weight, because a router must not depend on the others."""
        if self.sample_weight is None or bool((self.sample_weight > 0).all()):
            return self
        return self.take(np.flatnonzero(self.sample_weight > 0), self.X)


def drop_zero_weight(
    X: Any, costs: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64] | None]:
    """Drop the rows with zero weight.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        costs: Shape (n, p).
        sample_weight: Weight of each row, shape (n,), or `None`.

    Returns:
        The same three arguments, restricted to rows with a positive weight.
    """
    rows = TrainingRows(X, costs, sample_weight).with_weight()
    return rows.X, rows.costs, rows.sample_weight
