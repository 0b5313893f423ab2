"""Prediction of a new expert's costs from those of the experts that were called on every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._folds import assign_folds
from mildroute.routers._shared_ridge import EXPERT_PENALTY, INTERCEPT_PENALTY, WIDE, principal_axes
from mildroute.routers.base import check_costs
from mildroute.routers.features import TopicFeatures
from mildroute.routers.imputation import FOLDS, check_asked
from mildroute.routers.training_rows import Matrix

__all__ = ["KnownExperts"]

# Penalty of the predictions for known experts, in rows.
_KNOWN_PENALTY = 30.0
# Penalties of a new expert's regressions, in rows; ties go to the strongest.
_PENALTIES = (np.inf, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
# Minimum number of scored queries at which components of vectors are used: with 100 scored queries
# on the trio of MMLU, they lost 4% of the gain (seeds 0 to 4).
_COMPONENTS, _FEWEST_FOR_COMPONENTS = 32, 300
# Maximum number of candidate rows for scoring.
_CANDIDATES = 4000
# Standard errors by which a new expert's costs are raised after 100 scored queries; chosen on seeds
# 0 to 4 of MMLU and RouterBench.
_CAUTION = 0.6


@dataclass(frozen=True)
class KnownExperts:
    """The experts that were called on all n rows of a table, as a reference for a new one.

    Their expected costs predict a new expert's costs better than a vector does, and their residuals
    on a query help to predict the new expert's cost there.

    Attributes:
        expected: Costs predicted by regressions on other rows, shape (n + f, q).
        residuals: Costs minus the expected ones, shape (n + f, q); 0 on the f rows of ``further``.
        components: Components of the vectors, shape (n + f, c).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(500, 2))
        >>> known = KnownExperts.learn(X, X + rng.normal(size=(500, 2)))
        >>> asked = known.order_queries(50)
        >>> costs = np.full(500, np.nan)
        >>> costs[asked] = X[asked].sum(axis=1)
        >>> bool(np.corrcoef(known.costs_of_new(costs), X.sum(axis=1))[0, 1] > 0.8)
        True
    """

    expected: Matrix
    residuals: Matrix
    components: Matrix

    @classmethod
    def learn(
        cls,
        X: Any,
        costs: Any,
        further: Any = None,
        groups: Any = None,
        random_state: int | None = None,
    ) -> KnownExperts:
        """Learn the expected costs of the experts of a table.

        Args:
            X: Vectors, shape (n, d), dense or sparse.
            costs: Shape (n, q), lower is better.
            further: Vectors of rows on which these experts were not called, shape (f, d), or
                `None`.
            groups: Group of each of the n rows, or `None`; topics learn from them.
            random_state: Seed of clusters and folds.
        """
        cost_matrix, seed = check_costs(costs), random_state or 0
        topics = TopicFeatures(random_state=seed)
        memberships = topics.fit_transform(X, groups=groups)
        center = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        _, axes = principal_axes(X, center, min(X.shape[1], WIDE // 4, len(cost_matrix)), seed)
        views = [np.asarray(X @ axes) - center @ axes, memberships]
        if further is not None:
            views[0] = np.vstack([views[0], np.asarray(further @ axes) - center @ axes])
            views[1] = np.vstack([memberships, topics.memberships(further)])
        views = [_scaled(view, len(cost_matrix)) for view in views]
        features = np.hstack([*views, np.ones((len(views[0]), 1))])
        expected = _cross_fitted(
            features, cost_matrix, assign_folds(len(cost_matrix), FOLDS, seed=seed)
        )
        residuals = np.zeros_like(expected)
        residuals[: len(cost_matrix)] = cost_matrix - expected[: len(cost_matrix)]
        return cls(expected, residuals, views[0][:, :_COMPONENTS])

    def costs_of_new(self, costs: Any, *, caution: float = _CAUTION) -> NDArray[np.float64]:
        """Return the expected costs of a new expert on all rows, shape (n + f,).

        They are raised by a multiple of their standard error, so that an expert with few scored
        queries is rarely chosen; the multiple falls with the number of scored queries.

        Args:
            costs: Observed costs, NaN where the expert was not called, shape (n + f,).
            caution: Standard errors after 100 scored queries; half as many after 400.
        """
        observed = np.asarray(costs, dtype=np.float64)
        asked = np.flatnonzero(~np.isnan(observed))
        check_asked(~np.isnan(observed)[:, None])
        experts = self.expected.shape[1]
        features = np.hstack([_standardized(self.expected), _standardized(self.residuals)])
        # There are no answers at decision time, so residuals are 0.
        features_at_decision = features.copy()
        features_at_decision[:, experts:] = 0.0
        estimate, variance, noise = _few_rows_ridge(
            features, asked, observed[asked], features_at_decision
        )
        if len(asked) >= _FEWEST_FOR_COMPONENTS:
            residuals = observed[asked] - estimate[asked]
            correction, added_variance, noise = _few_rows_ridge(
                self.components, asked, residuals, self.components
            )
            estimate = estimate + correction
            variance = variance + added_variance - 1 / len(asked)
        errors = np.sqrt(noise * variance)
        return np.asarray(estimate + caution * np.sqrt(100 / len(asked)) * errors)

    def order_queries(self, count: int, random_state: int | None = None) -> NDArray[np.intp]:
        """Return the rows of the table on which to score a new expert, in order.

        Given the rows before it, each row minimizes the mean variance of a regression of the new
        expert's costs on the expected costs of the other experts and on components. In
        benchmarks/quality/new_expert.py, random rows did equally well.

        Args:
            count: Number of rows, at most that of the table.
            random_state: Seed of the candidate rows, if there are many.
        """
        rows = len(self.expected)
        candidates = np.random.default_rng(random_state or 0).permutation(rows)
        candidates = candidates[: max(_CANDIDATES, count)]
        features = np.hstack([_standardized(self.expected), self.components, np.ones((rows, 1))])
        penalty = np.ones(features.shape[1])
        penalty[self.expected.shape[1] :] = EXPERT_PENALTY
        penalty[-1] = INTERCEPT_PENALTY
        moments = features.T @ features / rows + 1e-9 * np.eye(len(penalty))
        return candidates[
            _greedy(features[candidates], penalty, np.linalg.cholesky(moments), count)
        ]


def _scaled(view: Matrix, rows: int) -> Matrix:
    """Center columns and scale them to a total mean square of 1, measured on the first rows."""
    centered = view - view[:rows].mean(axis=0)
    spread = np.sqrt((centered[:rows] ** 2).sum(axis=1).mean())
    return np.asarray(centered / spread) if spread > 0 else centered


def _standardized(columns: Matrix) -> Matrix:
    return np.asarray((columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-9))


def _cross_fitted(features: Matrix, costs: Matrix, fold: NDArray[np.intp]) -> Matrix:
    """Return cross-fitted ridge predictions; extra rows are predicted from all training rows."""
    rows = len(costs)
    penalty = np.full(features.shape[1], _KNOWN_PENALTY)
    penalty[-1] = INTERCEPT_PENALTY
    gram = features[:rows].T @ features[:rows] + np.diag(penalty)
    moments = features[:rows].T @ costs
    expected = np.empty((len(features), costs.shape[1]))
    expected[rows:] = features[rows:] @ np.linalg.solve(gram, moments)
    for current in range(fold.max() + 1):
        held_out = np.flatnonzero(fold == current)
        part = features[held_out]
        weights = np.linalg.solve(gram - part.T @ part, moments - part.T @ costs[held_out])
        expected[held_out] = part @ weights
    return expected


def _few_rows_ridge(
    columns: Matrix,
    asked: NDArray[np.intp],
    targets: NDArray[np.float64],
    features_at_decision: Matrix,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Predict the targets of all rows, with a penalty chosen by leave-one-out error.

    Returns:
        The predictions, their variance at ``features_at_decision`` in units of the noise, and the
        noise.
    """
    center, level, rows = columns[asked].mean(axis=0), targets.mean(), len(asked)
    left_vectors, values, axes = np.linalg.svd(columns[asked] - center, full_matrices=False)
    moments = left_vectors.T @ targets
    errors = []
    for penalty in _PENALTIES:
        shrink = values**2 / (values**2 + penalty)
        leverage = np.minimum(1 / rows + left_vectors**2 @ shrink, 1 - 1e-6)
        residuals = (targets - level - left_vectors @ (shrink * moments)) / (1 - leverage)
        errors.append(float((residuals**2).mean()))
    best = int(np.argmin(errors))
    scale = values / (values**2 + _PENALTIES[best])
    fitted = level + (columns - center) @ axes.T @ (scale * moments)
    variance = 1 / rows + (((features_at_decision - center) @ axes.T) * scale) ** 2 @ np.ones(
        len(values)
    )
    return fitted, variance, errors[best]


def _greedy(
    features: Matrix, penalty: NDArray[np.float64], root: Matrix, count: int
) -> NDArray[np.intp]:
    """Choose rows one by one, each lowering the mean variance of a ridge regression the most.

    ``root`` times its transpose is the second moment of the rows over which the mean is taken. All
    products are maintained by updates of rank one.
    """
    chosen = np.empty(count, dtype=np.intp)
    covariance = features / penalty
    projected = covariance @ root
    leverage = (covariance * features).sum(axis=1)
    is_free = np.ones(len(features), dtype=bool)
    for step in range(count):
        gains = np.where(is_free, (projected**2).sum(axis=1) / (1 + leverage), -1.0)
        row = chosen[step] = int(gains.argmax())
        is_free[row] = False
        direction = covariance[row].copy()
        change = features @ direction
        scale = 1 + leverage[row]
        leverage = leverage - change**2 / scale
        covariance -= np.outer(change / scale, direction)
        projected -= np.outer(change / scale, direction @ root)
    return chosen
