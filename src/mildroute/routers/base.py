"""The contract of routers: scikit-learn estimators over vectors and a matrix of costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
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
from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.routers._folds import cluster_codes
from mildroute.routers._order import argmax_last, argsort_desc, chosen_costs
from mildroute.routers.training_rows import FoldVectors, Matrix, Progress, TrainingRows

if TYPE_CHECKING:
    from mildroute.routers.cascade.features import SeenAnswers
    from mildroute.routers.feature_sets import FeatureSets

__all__ = ["RouterMixin", "check_costs", "expert_names", "fitting_threads", "posterior_of_costs"]

# Multiplications in one product above which threads pay off. Many small products are far slower
# with several threads than with one.
_MIN_PRODUCT_FOR_THREADS = 200_000_000


def fitting_threads(X: Any, experts: int) -> AbstractContextManager[object]:
    """Return a context that limits linear algebra to one thread, unless products are large.

    The products are those of X, shape (n, d), with weights (d, p).
    """
    rows, columns = X.shape
    if rows * columns * experts > _MIN_PRODUCT_FOR_THREADS:
        return nullcontext()
    return threadpool_limits(limits=1)


class RouterMixin:
    """A mixin that makes a scikit-learn estimator a router.

    A router implements ``_fit(X, costs, sample_weight)``, which learns from a checked X of shape
    (n, d) and costs of shape (n, p), and ``_scores(X)``, which returns a score for each expert; a
    larger score is better. A router that also uses groups, prices or clusters implements
    ``_fit_rows(rows, progress)`` instead. The mixin checks the input once, remembers the names of
    the experts and derives everything else.

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

    # Whether ``fit`` takes prices, and ``predict`` and related methods a ``price_weight``.
    supports_prices = False
    # Whether ``fit`` takes the weight of each row.
    supports_sample_weight = True
    # Whether costs may be NaN for experts that were not called.
    supports_missing_costs = False
    # Whether the router measures itself on folds, for which an encoder may provide other vectors.
    supports_folds = False
    # Whether the router may look at answers before it decides.
    supports_answers = False
    # Whether the router can be operated at a point that a target selects.
    has_operating_points = False
    # Whether ``cross_val_posterior()`` returns posteriors that were kept during ``fit``.
    keeps_held_out_posterior = False
    # Whether one parameter search serves all price weights of a grid.
    searches_once_for_all_prices = False
    random_state: int | None = None
    experts_: NDArray[np.object_]
    n_features_in_: int
    n_rows_: int
    data_hash_: str

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        prices: Any = None,
        experts: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from the cost of each expert on each row.

        Args:
            X: Vectors, shape (n, d), dense or sparse.
            y: Costs, shape (n, p), lower is better; without the prices if those are passed.
            sample_weight: Weight of each row, shape (n,), or `None`.
            groups: Group of each row (task, subject, tenant), shape (n,), or `None`; ignored by
                routers without topics, and not needed to predict.
            prices: Price of each expert, shape (p,), or on each row, shape (n, p), or `None`; the
                cost of an expert is then ``y`` plus a price weight times its price. Only for
                routers with ``supports_prices``, which take the price weight at prediction.
            experts: p names. They default to the column names if ``y`` is a data frame, and to
                ``expert_0``, ``expert_1`` and so on otherwise.
            progress: Called with the number of completed steps, the total and a description of the
                next step; ignored by routers that fit in one step.

        Returns:
            The router itself.
        """
        rows = self.training_rows(
            X, y, sample_weight=sample_weight, groups=groups, prices=prices, experts=experts
        )
        return self.fit_rows(rows, progress)

    def training_rows(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        prices: Any = None,
        experts: Sequence[str] | None = None,
        clusters: Any = None,
        folds: Sequence[FoldVectors] | None = None,
        answers: SeenAnswers | None = None,
    ) -> TrainingRows:
        """Check the arguments of ``fit`` and return them as one value.

        Args:
            X: As for ``fit``.
            y: As for ``fit``.
            sample_weight: As for ``fit``.
            groups: As for ``fit``.
            prices: As for ``fit``.
            experts: As for ``fit``.
            clusters: Cluster of each row, shape (n,), or `None`; rows of a cluster, such as copies
                of a prompt, are held out and resampled together.
            folds: For each fold, vectors of all rows by an encoder that was not trained on the
                fold, because an encoder's vectors of its training rows differ from those of new
                rows. By default, ``X`` itself is divided into folds. Only for routers with
                ``supports_folds``.
            answers: Answers of all experts to all rows. Only for routers with
                ``supports_answers``.
        """
        for name, value, is_supported, remedy in (
            ("prices", prices, self.supports_prices, "add them to the costs, or use"),
            ("sample_weight", sample_weight, self.supports_sample_weight, "omit it, or use"),
            ("folds", folds, self.supports_folds, "omit them, or use"),
            ("answers", answers, self.supports_answers, "omit them, or use"),
        ):
            if value is not None and not is_supported:
                other = "CascadeRouter" if name == "answers" else "FrontierRouter"
                raise ArgumentError(
                    f"{type(self).__name__} cannot take {name}; {remedy} a {other}."
                )
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        costs = check_costs(y, partial=self.supports_missing_costs)
        check_consistent_length(X, costs)
        if groups is not None and len(groups) != len(costs):
            raise ShapeError(f"groups must be ({len(costs)},), one per row, got {len(groups)}.")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        return TrainingRows(
            X,
            costs,
            sample_weight,
            groups,
            None if prices is None else check_prices(prices, costs.shape),
            cluster_codes(clusters, len(costs)),
            _check_names(expert_names(y) if experts is None else experts, costs.shape),
            folds,
            answers,
            data_hash=hash_of_data(X, costs),
        )

    def fit_rows(self, rows: TrainingRows, progress: Progress | None = None) -> Self:
        """Learn from rows that :meth:`training_rows` has checked.

        Args:
            rows: The training data.
            progress: As for ``fit``.

        Returns:
            The router itself.
        """
        experts = rows.costs.shape[1]
        self._remember(rows)
        self.n_features_in_ = rows.X.shape[1]
        if self._learns_with_torch and experts > 1:
            load_torch()  # before its threads are limited
        with fitting_threads(rows.X, experts):
            self._fit_rows(rows, progress)
        return self

    def with_selected_parameters(self) -> Self:
        """Return an unfitted copy whose ``"cv"`` parameters are set to the selected values."""
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        selected = {
            name: vars(self).get(f"{name}_", value)
            for name, value in parameters.items()
            if isinstance(value, str) and value == "cv"
        }
        copy: Self = clone(self).set_params(**selected)
        return copy

    def check_repeated_fits(self) -> None:
        """Raise an error if the router takes too long to be fitted for each of many prices."""

    def shared_features(
        self,
        rows: TrainingRows,  # noqa: ARG002
        built: dict[str, FeatureSets],  # noqa: ARG002
    ) -> FeatureSets | None:
        """Return features that routers with the same settings can share, or `None`.

        Args:
            rows: The training rows.
            built: Features that routers of the same class have already built on these rows, by
                setting; new ones are added.
        """
        return None

    @property
    def classes_(self) -> NDArray[Any]:
        """Raise an error; ``cross_val_predict`` reads ``classes_`` once costs became labels."""
        raise AttributeError(
            "a router has experts_, not classes_: for posteriors and scores, cross_val_predict"
            " replaces costs with labels, which the router would learn instead; fit and predict"
            " fold by fold, or use method='predict'."
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

    def posteriors_at(
        self, X: Any, price_weights: Sequence[float] | NDArray[np.float64]
    ) -> Iterator[Matrix]:
        """Yield the posterior at each of several price weights, without checking the vectors.

        Only for routers with ``supports_prices``.
        """
        router: Any = self
        return (router.posterior_unchecked(X, float(weight)) for weight in price_weights)

    @property
    def outcome_rows(self) -> TrainingRows | None:
        """Return rows with a column for each of ``experts_``, which may include looks.

        `None` means that the rows passed to ``fit`` already have these columns.
        """
        return None

    @property
    def n_experts(self) -> int:
        """Return the number of experts."""
        return len(self.experts_)

    def _remember(self, rows: TrainingRows) -> None:
        """Store the names of the experts, the number of rows and their hash."""
        self.experts_ = np.array(rows.names, dtype=object)
        self.n_rows_ = len(rows.costs)
        self.data_hash_ = rows.data_hash

    @property
    def _learns_with_torch(self) -> bool:
        return False

    def _fit_rows(self, rows: TrainingRows, progress: Progress | None) -> None:  # noqa: ARG002
        self._fit(rows.X, rows.costs, rows.sample_weight)

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:
        raise NotImplementedError

    def _scores(self, X: Any) -> Matrix:
        raise NotImplementedError

    def _utilities(self, X: Any) -> Matrix:
        """Return the values by which experts are chosen and ranked."""
        return self._scores(X)

    def _posterior(self, X: Any) -> Matrix:
        return posterior_of_costs(-self._scores(X))

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


def _check_names(names: Sequence[str] | None, shape: tuple[int, ...]) -> tuple[str, ...]:
    if names is None:
        return ()
    if len(names) != shape[1]:
        raise ShapeError(
            f"experts must be {shape[1]} names, one for each column of the costs, got {len(names)}."
        )
    return tuple(str(name) for name in names)


def check_prices(prices: Any, shape: tuple[int, ...]) -> Matrix:
    """Return the price of each expert on each row, given those or one price per expert.

    Args:
        prices: Shape (n, p) or (p,).
        shape: Shape of the costs.
    """
    array = np.asarray(prices, dtype=np.float64)
    if array.shape not in (shape, shape[1:]):
        raise ShapeError(
            f"prices must be {shape} or ({shape[1]},), got shape {array.shape}; one column per"
            " expert."
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        worst = array.ravel()[np.argmax(~(np.isfinite(array) & (array >= 0)).ravel())]
        raise CostError(f"prices must be finite and not negative, got {worst}; impute them first.")
    return np.broadcast_to(array, shape)


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
    """Return a matrix of finite costs; if ``partial``, NaN marks experts that were not called."""
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
            f"costs must be (n, p), one column per expert, got shape {costs.shape}; labels are not"
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
    # torch requires writable arrays.
    return costs if costs.flags.writeable else costs.copy()
