"""Plug-in routing with a neural network: predict what each expert will cost, take the lowest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mildroute.routers.base import Matrix, RouterMixin
from mildroute.routers.batches import Batches, batches_of
from mildroute.routers.descent import Arrays, Schedule, load_torch, mean_paid
from mildroute.routers.network import forward, layer_sizes, start_layers, train_layers
from mildroute.routers.row_weights import positive_rows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MlpRegressionRouter"]


class MlpRegressionRouter(RouterMixin, BaseEstimator):
    """A multi-layer perceptron that regresses every expert's cost; the lowest expected cost is chosen.

    Trained with Adam on the squared error, stopped by the deferral loss on a tenth of the rows. It starts at the mean costs, so the
    best single expert is what it falls back to. Fitting needs torch, prediction does not.

    Args:
        hidden_sizes: Units of each hidden layer.
        learning_rate: Step of Adam.
        weight_decay: Weight of the squared norm in the gradient.
        max_epochs: Passes over the rows at most.
        random_state: Seed of the start, the split and the order of rows; none is 0.

    Attributes:
        weights_: Weights of each layer, of shapes (d, h), ..., (h, p).
        biases_: Bias of each layer, of shapes (h,), ..., (p,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.random.default_rng(0).normal(size=(400, 2))
        >>> costs = np.stack([np.abs(X[:, 0]) > 0.7, np.abs(X[:, 0]) <= 0.7], axis=1).astype(float)
        >>> router = MlpRegressionRouter(hidden_sizes=(16,), learning_rate=0.02).fit(X, costs)
        >>> router.predict([[0.0, 0.0], [2.0, 0.0], [-2.0, 0.0]])
        array([0, 1, 1])
    """

    _learns_with_torch = True

    def __init__(
        self,
        *,
        hidden_sizes: Sequence[int] = (128,),
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        max_epochs: int = 100,
        random_state: int | None = None,
    ) -> None:
        self.hidden_sizes = hidden_sizes
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.random_state = random_state

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        sizes = layer_sizes(self.hidden_sizes)
        schedule = Schedule(self.learning_rate, self.weight_decay, self.max_epochs, int(self.random_state or 0))
        X, costs, sample_weight = positive_rows(X, costs, sample_weight)
        weights = np.ones(len(costs)) if sample_weight is None else sample_weight / sample_weight.mean()
        mean = np.average(costs, axis=0, weights=weights)
        if costs.shape[1] == 1:
            self.weights_, self.biases_ = [np.zeros((X.shape[1], 1))], [mean]
            return
        batches, unit = batches_of(X), float(costs.std()) or 1.0
        start = start_layers([X.shape[1], *sizes, costs.shape[1]], schedule.seed)
        layers = _train(batches, (costs - mean) / unit, mean / unit, weights, start, schedule)
        layers[0], layers[1] = batches.for_raw_rows(layers[0], layers[1])
        layers[-2], layers[-1] = unit * layers[-2], unit * layers[-1] + mean
        self.weights_, self.biases_ = layers[::2], layers[1::2]

    def _scores(self, X: Any) -> Matrix:
        return -forward([array for layer in zip(self.weights_, self.biases_, strict=True) for array in layer], X)


def _train(
    batches: Batches,
    targets: Matrix,
    mean: NDArray[np.float64],
    weights: NDArray[np.float64],
    start: Arrays,
    schedule: Schedule,
) -> Arrays:
    """Layers that map standard rows to targets, which are costs minus their mean."""
    torch = load_torch()

    def row_loss(outputs: Tensor, rows: NDArray[np.intp]) -> Tensor:
        errors = (outputs - torch.from_numpy(targets[rows].astype(np.float32))).square().mean(dim=1)
        return errors * torch.from_numpy(weights[rows].astype(np.float32))

    def risk(outputs: NDArray[Any], rows: NDArray[np.intp]) -> float:
        return mean_paid(-outputs - mean, targets[rows] + mean, weights[rows])

    return train_layers(batches, row_loss, risk, start, schedule)
