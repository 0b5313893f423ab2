"""Matrix factorization: experts and inputs embedded in one small space, as in RouteLLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator

from mildroute._optional import load_torch
from mildroute.exceptions import ArgumentError
from mildroute.routers._mlp import (
    Arrays,
    StandardizedBatches,
    TrainingConfig,
    batches_of,
    holdout_split,
    mean_chosen_cost,
    train_adam,
)
from mildroute.routers.base import RouterMixin
from mildroute.routers.training_rows import Matrix, drop_zero_weight

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MatrixFactorizationRouter"]


class MatrixFactorizationRouter(RouterMixin, BaseEstimator):
    """A factorized score for each expert (after Ong et al., 2024).

    The score of expert k is ``sum(mixing * embedding_k * (x @ projection + offset)) + bias_k``.

    Training uses Adam on which of two experts costs less: the logistic loss of the difference of
    their scores, weighted by the difference of their costs, over all pairs. It stops by the
    deferral loss on a tenth of the rows. Fitting needs torch, prediction does not.

    Args:
        n_components: Dimension of the space.
        learning_rate: Learning rate of Adam.
        weight_decay: Weight of the squared norm in the gradient.
        max_epochs: Maximum number of passes over the rows.
        random_state: Seed of the start, the split and the order of rows; `None` means 0.

    Attributes:
        projection_: Shape (d, n_components).
        offset_: Shape (n_components,).
        embeddings_: Embedding of each expert, shape (p, n_components).
        mixing_: Shape (n_components,).
        bias_: Shape (p,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.random.default_rng(0).normal(size=(400, 2))
        >>> costs = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)
        >>> router = MatrixFactorizationRouter(n_components=4, learning_rate=0.02).fit(X, costs)
        >>> router.predict([[-1.0, 0.0], [1.0, 0.0]])
        array([0, 1])
    """

    _learns_with_torch = True

    def __init__(
        self,
        *,
        n_components: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-5,
        max_epochs: int = 100,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.random_state = random_state

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        if self.n_components < 1:
            raise ArgumentError(
                f"n_components must be at least 1, got {self.n_components}; 64 is a usual value."
            )
        schedule = TrainingConfig(
            self.learning_rate, self.weight_decay, self.max_epochs, int(self.random_state or 0)
        )
        X, costs, sample_weight = drop_zero_weight(X, costs, sample_weight)
        weights = (
            np.ones(len(costs)) if sample_weight is None else sample_weight / sample_weight.mean()
        )
        batches = batches_of(X)
        parameters = _start(X.shape[1], self.n_components, costs, weights, schedule.seed)
        if costs.shape[1] > 1:
            parameters = _train(batches, costs, weights, parameters, schedule)
        parameters[0], parameters[1] = batches.for_raw_rows(parameters[0], parameters[1])
        self.projection_, self.offset_, self.embeddings_, self.mixing_, self.bias_ = parameters

    def _scores(self, X: Any) -> Matrix:
        return _forward(
            [self.projection_, self.offset_, self.embeddings_, self.mixing_, self.bias_], X
        )

    def _posterior(self, X: Any) -> Matrix:
        """Return the softmax of the scores.

        If pairwise odds follow the scores, this is each expert's chance to be preferred over all.
        """
        return np.asarray(softmax(self._scores(X), axis=1))


def _start(
    columns: int, n_components: int, costs: Matrix, weights: NDArray[np.float64], seed: int
) -> Arrays:
    """Return factors whose product is zero, and a bias that prefers the best single expert."""
    random = np.random.default_rng(seed)
    projection = random.normal(size=(columns, n_components)) / np.sqrt(columns)
    embeddings = random.normal(size=(costs.shape[1], n_components))
    mean = np.average(costs, axis=0, weights=weights)
    bias = (mean.mean() - mean) / (float(costs.std()) or 1.0)
    return [projection, np.zeros(n_components), embeddings, np.zeros(n_components), bias]


def _train(
    batches: StandardizedBatches,
    costs: Matrix,
    weights: NDArray[np.float64],
    start: Arrays,
    schedule: TrainingConfig,
) -> Arrays:
    torch = load_torch()
    seen, held_out = holdout_split(len(costs), schedule.seed)
    judged = batches.take(held_out)
    unit = float(np.average(_total_advantages(costs), weights=weights)) or 1.0

    def loss(factors: Sequence[Tensor], rows: NDArray[np.intp]) -> Tensor:
        projection, offset, embeddings, mixing, bias = factors
        hidden = torch.addmm(offset, torch.from_numpy(batches.take(rows)), projection)
        scores = torch.addmm(bias, hidden * mixing, embeddings.T)
        pairs = torch.nn.functional.softplus(scores[:, None, :] - scores[:, :, None])
        stakes = _advantages(costs[rows]) * (weights[rows] / unit)[:, None, None]
        mean_loss: Tensor = (pairs * torch.from_numpy(stakes.astype(np.float32))).sum() / len(rows)
        return mean_loss

    def risk(factors: Arrays) -> float:
        return mean_chosen_cost(_forward(factors, judged), costs[held_out], weights[held_out])

    return train_adam(start, loss, risk, seen, schedule)


def _advantages(costs: Matrix) -> NDArray[np.float64]:
    """Return how much cheaper expert j is than expert k, or zero if it is not, at [row, j, k]."""
    return np.maximum(costs[:, None, :] - costs[:, :, None], 0)


def _total_advantages(costs: Matrix) -> NDArray[np.float64]:
    """Return the sum of the advantages of each row, shape (n,), without forming the pairs."""
    return np.asarray(
        np.sort(costs, axis=1) @ (2.0 * np.arange(costs.shape[1]) - costs.shape[1] + 1)
    )


def _forward(factors: Sequence[NDArray[Any]], X: Any) -> Matrix:
    projection, offset, embeddings, mixing, bias = factors
    return np.asarray(((np.asarray(X @ projection) + offset) * mixing) @ embeddings.T + bias)
