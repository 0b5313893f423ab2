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
    """A cost matrix with ``columns``, which routers read as the names of the experts.

    Create one with :func:`named_costs`.

    Arrays computed from it are plain arrays without names.
    """

    columns: tuple[str, ...] | None

    def __array_finalize__(self, _source: Any) -> None:
        """Drop the names: a view or a slice may have other columns."""
        self.columns = None


def named_costs(costs: Any, experts: Sequence[str]) -> NDArray[np.float64]:
    """Return costs that carry the names of their experts.

    Args:
        costs: Shape (n, p).
        experts: p names.

    Returns:
        The same numbers, to be passed as ``y`` to a router's ``fit``.

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


# Rows of weight zero count as absent: the fitted router must not depend on them or their number.


def drop_zero_weight(
    X: Any, costs: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64] | None]:
    """Drop the rows of weight zero.

    Args:
        X: Vectors, shape (n, d), dense or sparse.
        costs: Shape (n, p).
        sample_weight: Weight of each row, shape (n,), or `None`.

    Returns:
        The same three arguments, restricted to rows with a positive weight.
    """
    if sample_weight is None or bool((sample_weight > 0).all()):
        return X, costs, sample_weight
    weighted = np.flatnonzero(sample_weight > 0)
    return X[weighted], costs[weighted], sample_weight[weighted]


# Number of threads of a fit; many small products are far slower on several threads than on one.


# Multiplications in one product above which threads pay off.
_WORTH_SHARING = 200_000_000


def fitting_threads(X: Any, experts: int) -> AbstractContextManager[object]:
    """Return a context that limits linear algebra to one thread, unless products are large.

    The products are those of X, shape (n, d), with weights (d, p).
    """
    rows, columns = X.shape
    return (
        nullcontext() if rows * columns * experts > _WORTH_SHARING else threadpool_limits(limits=1)
    )


# The contract that every router shares: scikit-learn's, over vectors and a matrix of costs.


# A two-dimensional array; for X, a scipy.sparse matrix is accepted too.
Matrix = NDArray[Any]


_are_checked: ContextVar[bool] = ContextVar("are_checked", default=False)


@contextmanager
def checked_rows() -> Iterator[None]:
    """Fit routers inside another fit that has already checked and hashed the rows.

    Without this, one fit of a frontier checks the same costs 17 times.
    """
    token = _are_checked.set(True)
    try:
        yield
    finally:
        _are_checked.reset(token)


class RouterMixin:
    """A mixin that makes a scikit-learn estimator a router.

    A router implements ``_fit(X, costs, sample_weight)``, which learns from a checked X of shape
    (n, d) and costs of shape (n, p), and ``_scores(X)``, which returns a score for each expert; a
    larger score is better. The mixin checks the input once, remembers the names of the experts and
    derives everything else.

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

    # Whether ``predict`` and its siblings take a ``price_weight``, and ``fit`` takes ``prices``.
    supports_price_weight = False
    _learns_with_torch = False
    experts_: NDArray[np.object_]
    n_features_in_: int

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learn from the cost of each expert on each row.

        Args:
            X: Vectors, shape (n, d), dense or sparse.
            y: Costs, shape (n, p), lower is better; column names of a data frame become the
                experts' names.
            sample_weight: Weight of each row, shape (n,), or `None`.

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
        """Return no classes; ``cross_val_predict`` asks for them after encoding costs as labels."""
        raise AttributeError(
            "a router has experts_, not classes_: for posteriors and scores, cross_val_predict"
            " replaces costs by labels, which would be learned instead; fit and predict fold by"
            " fold, or use method='predict'."
        )

    def decision_function(self, X: Any) -> Matrix:
        """Return the score of each expert, shape (n, p); larger is better."""
        return self._scores(self._check_predict(X))

    def predict_proba(self, X: Any) -> Matrix:
        """Return the posterior over experts, shape (n, p); rows sum to 1."""
        return self.posterior_unchecked(self._check_predict(X))

    def posterior_unchecked(self, X: Any) -> Matrix:
        """Return the same as ``predict_proba``, without checking the vectors.

        On one row, checking takes ten times as long as deciding.
        """
        return self._posterior(X)

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the index of the expert that should answer each row, shape (n,).

        Ties go to the highest index.
        """
        return argmax_last(self._utilities(self._check_predict(X)))

    def rank(self, X: Any) -> NDArray[np.intp]:
        """Return the experts of each row from best to worst, shape (n, p)."""
        return argsort_desc(self._utilities(self._check_predict(X)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus the mean cost of the chosen experts, so that larger is better."""
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
        """Return the values that choice and ranking compare."""
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
        """Declare that a router takes a cost matrix and accepts sparse vectors."""
        tags: Tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.target_tags.two_d_labels = True
        tags.input_tags.sparse = True
        return tags


def expert_names(y: Any) -> list[str] | None:
    """Return the column names of a pandas or polars data frame, or `None` for plain arrays."""
    columns = getattr(y, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def posterior_of_costs(costs: Matrix) -> Matrix:
    """Return the posterior that expected costs imply.

    Each expert's share is proportional to how far its cost is below the row's largest cost.

    Args:
        costs: Expected costs, shape (n, p).

    Returns:
        Shape (n, p), rows sum to 1; uniform if all experts cost the same.
    """
    gaps = costs.max(axis=1, keepdims=True) - costs
    total = gaps.sum(axis=1, keepdims=True)
    return np.where(total > 0, gaps / np.where(total > 0, total, 1), 1 / costs.shape[1])


def check_costs(y: Any, *, partial: bool = False) -> Matrix:
    """Return a matrix of finite costs; if ``partial``, NaN marks experts that were not asked."""
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
    # torch needs arrays that may be written to
    return costs if costs.flags.writeable else costs.copy()
