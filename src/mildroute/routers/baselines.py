"""Routers that ignore the input, as baselines for all other routers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from mildroute._hashing import hash_rows, rehash
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.base import RouterMixin
from mildroute.routers.training_rows import Matrix, drop_zero_weight

__all__ = ["BestSingleRouter", "CheapestRouter", "MostExpensiveRouter", "RandomRouter"]


class _ConstantRouter(RouterMixin, BaseEstimator, ABC):
    """A router with the same scores on every row."""

    scores_: NDArray[np.float64]

    @abstractmethod
    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None: ...

    def _scores(self, X: Any) -> Matrix:
        return np.tile(self.scores_, (X.shape[0], 1))


class BestSingleRouter(_ConstantRouter):
    """A router that always takes the expert with the lowest mean cost on the training rows.

    Attributes:
        scores_: Minus the mean cost of each expert, shape (p,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> BestSingleRouter().fit([[0.0], [1.0]], [[0.1, 0.3], [0.6, 0.2]]).predict([[5.0]])
        array([1])
    """

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:  # noqa: ARG002
        self.scores_ = -np.average(costs, axis=0, weights=sample_weight)


class CheapestRouter(_ConstantRouter):
    """A router that always takes the expert with the lowest price.

    Args:
        prices: Price of each expert, shape (p,). By default, an expert's price is its lowest cost
            on any row, which it charges even for a perfect answer. Ties go to the highest index.

    Attributes:
        scores_: Minus the price of each expert, shape (p,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> CheapestRouter(prices=[3.0, 1.0]).fit([[0.0]], [[0.0, 1.0]]).predict([[5.0]])
        array([1])
    """

    def __init__(self, *, prices: Sequence[float] | NDArray[Any] | None = None) -> None:
        self.prices = prices

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        self.scores_ = -_prices(self.prices, drop_zero_weight(X, costs, sample_weight)[1])


class MostExpensiveRouter(_ConstantRouter):
    """A router that always takes the expert with the highest price.

    Args:
        prices: Price of each expert, shape (p,), as in :class:`CheapestRouter`.

    Attributes:
        scores_: Price of each expert, shape (p,).
        experts_: Names of the experts, shape (p,).

    Example:
        >>> MostExpensiveRouter().fit([[0.0], [1.0]], [[0.7, 0.1], [0.7, 1.1]]).predict([[5.0]])
        array([0])
    """

    def __init__(self, *, prices: Sequence[float] | NDArray[Any] | None = None) -> None:
        self.prices = prices

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        self.scores_ = _prices(self.prices, drop_zero_weight(X, costs, sample_weight)[1])


class RandomRouter(RouterMixin, BaseEstimator):
    """A router that draws an expert at random for each row.

    The draw depends only on the content of the row and the seed: the same row gets the same expert
    in any batch and order.

    Args:
        shares: Probability of each expert, shape (p,), up to a factor; equal by default. A mix of
            two experts with the cost of a third shows the score that this cost buys without
            looking at the input.
        random_state: Seed of the draws; `None` means 0.

    Attributes:
        shares_: Shares, shape (p,); they sum to 1.
        seed_: The seed used.
        experts_: Names of the experts, shape (p,).

    Example:
        >>> X = np.arange(1000.0)[:, None]
        >>> router = RandomRouter(shares=[1, 3]).fit(X, np.zeros((1000, 2)))
        >>> bool(0.7 < router.predict(X).mean() < 0.8)
        True
    """

    def __init__(
        self,
        *,
        shares: Sequence[float] | NDArray[Any] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.shares = shares
        self.random_state = random_state

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:  # noqa: ARG002
        shares = _of_each_expert(
            "shares",
            np.ones(costs.shape[1]) if self.shares is None else self.shares,
            costs.shape[1],
        )
        if bool((shares < 0).any()) or not shares.sum() > 0:
            raise ArgumentError(
                f"shares must not be negative or all zero, got {shares.tolist()}; give each expert"
                " a probability."
            )
        self.shares_ = shares / shares.sum()
        self.seed_ = int(self.random_state or 0)

    def _scores(self, X: Any) -> Matrix:
        # The largest u ** (1 / share), with u uniform, belongs to expert k with probability share_k
        # (Efraimidis and Spirakis, 2006).
        hashes = hash_rows(X, self.seed_)
        draws = np.stack(
            [
                rehash(hashes, np.full(len(hashes), expert, dtype=np.uint64))
                for expert in range(len(self.shares_))
            ],
            axis=1,
        )
        uniform = ((draws >> np.uint64(11)) + 0.5) * 2.0**-53
        scores = np.zeros_like(uniform)
        drawn = self.shares_ > 0
        scores[:, drawn] = uniform[:, drawn] ** (self.shares_.max() / self.shares_[drawn])
        return scores

    def _posterior(self, X: Any) -> Matrix:
        return np.tile(self.shares_, (X.shape[0], 1))


def _prices(prices: Any, costs: Matrix) -> NDArray[np.float64]:
    return (
        np.asarray(costs.min(axis=0))
        if prices is None
        else _of_each_expert("prices", prices, costs.shape[1])
    )


def _of_each_expert(name: str, values: Any, experts: int) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (experts,):
        raise ShapeError(f"{name} must be ({experts},), one per expert, got shape {array.shape}.")
    if not bool(np.isfinite(array).all()):
        raise ArgumentError(
            f"{name} must be finite, got {array.tolist()}; pass a number for each expert."
        )
    return array
