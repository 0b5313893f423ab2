"""The contract of routers: scikit-learn estimators over vectors and a matrix of costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)
from threadpoolctl import threadpool_limits

from mildroute._hashing import hash_of_data
from mildroute._optional import load_torch
from mildroute.exceptions import CostError, ShapeError
from mildroute.routers._decision import argmax_last, argsort_desc, chosen_costs

__all__ = [
    "Matrix",
    "NamedCosts",
    "RouterMixin",
    "drop_zero_weight",
    "expert_names",
    "fitting_threads",
    "named_costs",
    "posterior_of_costs",
]


# Costs that carry the names of their experts, so that a fitted router knows them.


class NamedCosts(np.ndarray):
    """A matrix with ``columns``, which routers read as names of the experts.

    Make one with :func:`named_costs`.

    What is computed from it is a plain array without names.
    """

    columns: tuple[str, ...] | None

    def __array_finalize__(self, _source: Any) -> None:
        """A view or a part of it has other columns, so it has no names."""
        self.columns = None


def named_costs(costs: Any, experts: Sequence[str]) -> NDArray[np.float64]:
    """Costs with the names of their experts.

    Args:
        costs: Shape (n, p).
        experts: p names.

    Returns:
        The same numbers; pass them as ``y`` to a router's ``fit``.

    Example:
        >>> from mildroute.routers.baselines import BestSingleRouter
        >>> BestSingleRouter().fit([[0.0]], named_costs([[0.0, 1.0]], ["small", "large"])).experts_
        array(['small', 'large'], dtype=object)
    """
    named = np.array(costs, dtype=np.float64).view(NamedCosts)
    if named.ndim != 2 or named.shape[1] != len(experts):
        raise ShapeError(
            f"costs must be (n, {len(experts)}), one column per name, got shape {named.shape}."
        )
    named.columns = tuple(str(expert) for expert in experts)
    return named


# Rows of weight zero are no rows: what was learned must not depend on them, nor on how many there
# are.


def drop_zero_weight(
    X: Any, costs: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64] | None]:
    """Drop the rows of weight zero.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        costs: Shape (n, p).
        sample_weight: Weight of each row, shape (n,), or none.

    Returns:
        The same three, of the rows with a positive weight.
    """
    if sample_weight is None or bool((sample_weight > 0).all()):
        return X, costs, sample_weight
    kept = np.flatnonzero(sample_weight > 0)
    return X[kept], costs[kept], sample_weight[kept]


# How many threads a fit may use: many small products are far slower on several threads than on
# one.


# Multiplications of one product from which sharing it among threads pays.
_WORTH_SHARING = 200_000_000


def fitting_threads(X: Any, experts: int) -> AbstractContextManager[object]:
    """Return a region with one thread for linear algebra, unless products are large.

    The products are those of X, shape (n, d), with weights (d, p).
    """
    rows, columns = X.shape
    return (
        nullcontext() if rows * columns * experts > _WORTH_SHARING else threadpool_limits(limits=1)
    )


# What every router shares: the scikit-learn contract over vectors and a matrix of costs.


# A two-dimensional array; where X is meant, a scipy.sparse matrix is welcome too.
Matrix = NDArray[Any]


_are_checked: ContextVar[bool] = ContextVar("are_checked", default=False)


@contextmanager
def checked_rows() -> Iterator[None]:
    """Fit routers inside another fit, on rows that it has checked and hashed.

    One fit of a frontier was 17 checks of the same costs.
    """
    token = _are_checked.set(True)
    try:
        yield
    finally:
        _are_checked.reset(token)


class RouterMixin:
    """Makes a scikit-learn estimator a router.

    A router implements ``_fit(X, costs, sample_weight)``, which learns from a checked X of shape
    (n, d) and costs of shape (n, p), and ``_scores(X)``, which returns a score for each expert,
    larger is better. The mixin checks input once, remembers the names of the experts and derives
    everything else.

    Example:
        >>> from sklearn.base import BaseEstimator
        >>> class FirstRouter(RouterMixin, BaseEstimator):
        ...     def _fit(self, X, costs, sample_weight):
        ...         self.scores_ = -np.arange(costs.shape[1], dtype=float)
        ...     def _scores(self, X):
        ...         return np.tile(self.scores_, (X.shape[0], 1))
        >>> FirstRouter().fit([[0.0], [1.0]], [[1, 0], [0, 1]]).predict([[5.0]])
        array([0])
    """

    # Whether ``predict`` and the others take a ``price_weight``, and ``fit`` takes ``prices``.
    supports_price_weight = False
    _learns_with_torch = False
    experts_: NDArray[np.object_]
    n_features_in_: int

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learn from what each expert cost on each row.

        Args:
            X: Vectors, shape (n, d), dense or sparse.
            y: Costs, shape (n, p), lower is better; column names of a data frame become the
                experts' names.
            sample_weight: Weight of each row, shape (n,), or none.

        Returns:
            The router itself.
        """
        X, costs, weights = self._check_fit(X, y, sample_weight)
        if self._learns_with_torch and costs.shape[1] > 1:
            load_torch()  # before its threads are limited
        with fitting_threads(X, costs.shape[1]):
            self._fit(X, costs, weights)
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """There are none; ``cross_val_predict`` asks for them, having made labels of the costs."""
        raise AttributeError(
            "a router has experts_, not classes_: for posteriors and scores, cross_val_predict"
            " replaces costs by labels, which would be learned instead; fit and predict fold by"
            " fold, or use method='predict'."
        )

    def decision_function(self, X: Any) -> Matrix:
        """Score of each expert, shape (n, p); larger is better."""
        return self._scores(self._check_predict(X))

    def predict_proba(self, X: Any) -> Matrix:
        """Posterior over experts, shape (n, p); rows sum to 1."""
        return self.posterior_unchecked(self._check_predict(X))

    def posterior_unchecked(self, X: Any) -> Matrix:
        """As ``predict_proba``, for vectors known to be sound.

        On one row, checking takes ten times as long as deciding.
        """
        return self._posterior(X)

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Index of the expert that should answer each row, shape (n,).

        Ties go to the highest index.
        """
        return argmax_last(self._utilities(self._check_predict(X)))

    def rank(self, X: Any) -> NDArray[np.intp]:
        """Experts of each row from best to worst, shape (n, p)."""
        return argsort_desc(self._utilities(self._check_predict(X)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean cost of the chosen experts, so that larger is better."""
        costs = check_costs(y)
        choice = self.predict(X)
        check_consistent_length(choice, costs)
        if costs.shape[1] != len(self.experts_):
            raise ShapeError(
                f"costs must be (n, {len(self.experts_)}), one column per expert of this router,"
                f" got shape {costs.shape}."
            )
        return -float(np.average(chosen_costs(costs, choice), weights=sample_weight))

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        raise NotImplementedError

    def _scores(self, X: Any) -> Matrix:
        raise NotImplementedError

    def _utilities(self, X: Any) -> Matrix:
        """What choice and ranking compare."""
        return self._scores(X)

    def _posterior(self, X: Any) -> Matrix:
        return posterior_of_costs(-self._scores(X))

    def _check_fit(
        self, X: Any, y: Any, sample_weight: Any, *, partial: bool = False
    ) -> tuple[Any, Matrix, NDArray[np.float64] | None]:
        if _are_checked.get():
            costs = np.asarray(y)
            self.experts_ = np.array([f"expert_{k}" for k in range(costs.shape[1])], dtype=object)
            self.n_features_in_, self.n_rows_, self.data_hash_ = X.shape[1], X.shape[0], ""
            return X, costs, sample_weight
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        names = expert_names(y)
        costs = check_costs(y, partial=partial)
        check_consistent_length(X, costs)
        self.experts_ = np.array(
            names or [f"expert_{k}" for k in range(costs.shape[1])], dtype=object
        )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        self.n_rows_, self.data_hash_ = X.shape[0], hash_of_data(X, costs)
        return X, costs, sample_weight

    def _check_predict(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )

    def __sklearn_tags__(self) -> Tags:
        """A router takes a matrix of costs and reads sparse vectors."""
        tags: Tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.target_tags.two_d_labels = True
        tags.input_tags.sparse = True
        return tags


def expert_names(y: Any) -> list[str] | None:
    """Column names of a pandas or polars data frame, or none for plain arrays."""
    columns = getattr(y, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def posterior_of_costs(costs: Matrix) -> Matrix:
    """The posterior that expected costs imply.

    Each expert in proportion to how far it is below the row's largest cost.

    Args:
        costs: Expected costs, shape (n, p).

    Returns:
        Shape (n, p), rows sum to 1; uniform where all experts cost the same.
    """
    gaps = costs.max(axis=1, keepdims=True) - costs
    total = gaps.sum(axis=1, keepdims=True)
    return np.where(total > 0, gaps / np.where(total > 0, total, 1), 1 / costs.shape[1])


def check_costs(y: Any, *, partial: bool = False) -> Matrix:
    """A matrix of finite costs; with NaN where an expert was not asked, if it may be partial."""
    if y is None:
        raise CostError(
            "a router requires y to be passed, but the target y is None; pass the (n, p) costs of"
            " the experts."
        )
    if sparse.issparse(y):
        raise ShapeError(
            "costs must be a dense (n, p) matrix, got a sparse one; call .toarray() on it."
        )
    costs = check_array(
        y, ensure_2d=False, dtype=np.float64, ensure_all_finite=False, input_name="y"
    )
    if costs.ndim != 2:
        raise ShapeError(
            f"costs must be (n, p), one column per expert, got shape {costs.shape}; a label is not"
            " enough to learn from."
        )
    is_bad = np.isinf(costs) if partial else ~np.isfinite(costs)
    bad = int(is_bad.sum())
    if bad:
        column = int(is_bad.any(axis=0).argmax())
        raise CostError(
            f"costs must be finite, got NaN or infinity {bad} times, first in expert {column}; drop"
            " those rows or impute them first."
        )
    # torch, which learns from them, wants arrays that may be written to
    return costs if costs.flags.writeable else costs.copy()
