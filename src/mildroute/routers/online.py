"""Routers from partial costs: each row has observed costs of one, some or all experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import randomized_svd

from mildroute.exceptions import ArgumentError, CostError
from mildroute.routers._decision import argmax_last
from mildroute.routers._folds import assign_folds
from mildroute.routers._ridge import ridge
from mildroute.routers.base import RouterMixin, check_costs
from mildroute.routers.features import TopicFeatures
from mildroute.routers.training_rows import Matrix

__all__ = ["KnownExperts", "OnlineRouter", "impute_costs"]


# Penalties of the common part and of an expert's specific part, in rows; features have a total mean
# square of 1. Chosen on seeds 0 to 5 of five streams; a search by held-out error is no better there
# and worse on few rows. With 120 for an expert, routerdc7 gains 0.003 and RouterBench loses 0.002,
# and after 60 rows it can get stuck on a wrong expert.
_COMMON_PENALTY, _EXPERT_PENALTY = 20.0, 60.0
# Near-zero penalty of the intercepts.
_INTERCEPT_PENALTY = 0.01
# Number of columns above which principal axes are found by a randomized method.
_WIDE = 2048


class SharedRidge:
    """Moments of a ridge regression of costs with partial pooling.

    The cost of expert k is ``(common + specific_k) . x``. The common part is learned from
    all costs, the specific part of an expert from its own alone.
    The last column of x must be 1.

    Args:
        columns: Number of columns d.
        experts: Number of experts p.
    """

    def __init__(self, columns: int, experts: int) -> None:
        self.gram = np.zeros((experts, columns, columns))
        self.moments = np.zeros((experts, columns))
        self.squares = np.zeros(experts)
        self.counts = np.zeros(experts)

    def add(self, X: Matrix, costs: Matrix) -> None:
        """Add rows (n, d) with their costs (n, p), NaN for costs that were not observed."""
        for expert, column in enumerate(costs.T):
            at = ~np.isnan(column)
            rows, seen = X[at], column[at]
            self.gram[expert] += rows.T @ rows
            self.moments[expert] += rows.T @ seen
            self.squares[expert] += seen @ seen
            self.counts[expert] += len(seen)

    def without(self, other: SharedRidge) -> SharedRidge:
        """Return these moments minus those of ``other``."""
        rest = SharedRidge(self.gram.shape[1], len(self.gram))
        for name in vars(self):
            setattr(rest, name, getattr(self, name) - getattr(other, name))
        return rest

    def solve(self, common: float, specific: float) -> tuple[Matrix, Matrix, Matrix]:
        """Solve for the coefficients (p, d) and their covariance under noise of variance 1.

        The common part is eliminated block by block, so that the largest inverted matrix has d
        rows, not d (p + 1). The covariance of experts k and l is ``factors[k] factors[l]'``, plus
        ``inverses[k]`` if k = l.

        Returns:
            Coefficients (p, d), factors (p, d, d) and inverses (p, d, d).
        """
        columns = self.moments.shape[1]
        penalty = np.full(columns, specific)
        prior = np.full(columns, common)
        penalty[-1] = prior[-1] = _INTERCEPT_PENALTY
        inverses = np.linalg.inv(self.gram + np.diag(penalty))
        inverses = (inverses + inverses.transpose(0, 2, 1)) / 2
        # Shrinkage toward the common coefficients: the identity if the expert has no rows.
        shrinkage = np.eye(columns) - inverses @ self.gram
        schur = np.diag(prior) + (self.gram @ shrinkage).sum(axis=0)
        shared = np.linalg.inv((schur + schur.T) / 2)
        shared = (shared + shared.T) / 2
        reduced = self.moments - np.einsum("kde,ke->kd", self.gram @ inverses, self.moments)
        base = shared @ reduced.sum(axis=0)
        weights = shrinkage @ base + np.einsum("kde,ke->kd", inverses, self.moments)
        return weights, shrinkage @ np.linalg.cholesky(shared), inverses

    def noise(self, weights: Matrix) -> float:
        """Return the variance of observed costs around their expectation."""
        fitted = np.einsum("kd,kde,ke->", weights, self.gram, weights)
        residual = self.squares.sum() - 2 * (weights * self.moments).sum() + fitted
        return float(max(residual, 0.0) / max(self.counts.sum(), 1.0))


class OnlineRouter(RouterMixin, BaseEstimator):
    """An online router; each row may have the costs of one, some or all experts.

    Costs are NaN where an expert was not asked.

    Bayesian ridge regression of costs on principal components and topics of the vectors, with one
    part common to all experts and one part for each. ``predict`` takes the expert with the lowest
    expected cost. ``explore`` takes the one with the lowest optimistic cost, which is ``optimism``
    standard errors below its expectation, so that it tries experts about which little is known.

    Args:
        components: Principal components of the vectors.
        topics: Number of clusters of the vectors; soft memberships are additional features.
        common_penalty: Penalty of the common part, in rows.
        expert_penalty: Penalty of each expert's part, in rows.
        optimism: Standard errors below the expected cost at which ``explore`` compares experts.
        random_state: Seed of the clusters; `None` means 0.

    Attributes:
        center_: Subtracted from each vector, shape (d,).
        components_: Map of vectors to components, shape (d, c), scaled so that the mean square of
            all components together is 1.
        topics_: Clusters of vectors.
        topic_center_: Mean membership in each topic, shape (K,).
        topic_scale_: Factor of the memberships.
        weights_: Coefficients, shape (p, c + K + 1).
        factors_: Factors of the covariance of coefficients, shape (p, c + K + 1, c + K + 1).
        inverses_: Inverses in the same covariance, same shape.
        noise_: Variance of a cost around its expectation.
        gram_: Sums of products of features over the rows of each expert.
        moments_: Sums of products of features and costs, shape (p, c + K + 1).
        squares_: Sums of squares of costs, shape (p,).
        counts_: Number of observed costs of each expert, shape (p,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(400, 3))
        >>> costs = (X[:, :2] > 0).astype(float)
        >>> costs[np.arange(400), rng.integers(0, 2, 400)] = np.nan
        >>> router = OnlineRouter(random_state=0).fit(X, costs)
        >>> router.predict([[2.0, -2.0, 0.0], [-2.0, 2.0, 0.0]])
        array([1, 0])
    """

    supports_missing_costs = True
    supports_sample_weight = False

    def __init__(
        self,
        *,
        components: int = 64,
        topics: int = 100,
        common_penalty: float = _COMMON_PENALTY,
        expert_penalty: float = _EXPERT_PENALTY,
        optimism: float = 1.0,
        random_state: int | None = None,
    ) -> None:
        self.components = components
        self.topics = topics
        self.common_penalty = common_penalty
        self.expert_penalty = expert_penalty
        self.optimism = optimism
        self.random_state = random_state

    def _fit(self, X: Any, costs: Matrix, sample_weight: NDArray[np.float64] | None) -> None:  # noqa: ARG002
        self._check_parameters()
        self._learn_features(X)
        self._add(X, costs, SharedRidge(self._width(), costs.shape[1]))

    def partial_fit(self, X: Any, y: Any) -> OnlineRouter:
        """Update on more rows; the feature map stays as fitted on the first ones."""
        if not hasattr(self, "weights_"):
            return self.fit(X, y)
        costs = check_costs(y, partial=True)
        if costs.shape[1] != len(self.experts_):
            raise ArgumentError(
                f"costs must have one column for each of {len(self.experts_)} experts, got"
                f" {costs.shape[1]}; fit again to add an expert."
            )
        sums = SharedRidge(self._width(), costs.shape[1])
        sums.gram, sums.moments = self.gram_.copy(), self.moments_.copy()
        sums.squares, sums.counts = self.squares_.copy(), self.counts_.copy()
        return self._add(self._check_predict(X), costs, sums)

    def explore(self, X: Any) -> NDArray[np.intp]:
        """Return the expert with the lowest optimistic cost on each row, shape (n,)."""
        mean, errors = self.expected(X)
        return argmax_last(self.optimism * errors - mean)

    def expected(self, X: Any) -> tuple[Matrix, Matrix]:
        """Return the expected cost of each expert and its standard error, both (n, p)."""
        features = self._features(self._check_predict(X))
        spread = np.einsum("nd,kdc->nkc", features, self.factors_)
        own = np.einsum("nd,kde,ne->nk", features, self.inverses_, features, optimize=True)
        variance = self.noise_ * ((spread**2).sum(axis=2) + own)
        return features @ self.weights_.T, np.sqrt(np.maximum(variance, 0.0))

    def _scores(self, X: Any) -> Matrix:
        return -(self._features(X) @ self.weights_.T)

    def _check_parameters(self) -> None:
        for name, minimum in (
            ("components", 0),
            ("topics", 0),
            ("common_penalty", 1e-6),
            ("expert_penalty", 1e-6),
            ("optimism", 0),
        ):
            value = getattr(self, name)
            if not minimum <= value < np.inf:
                raise ArgumentError(f"{name} must be at least {minimum:g}, got {value!r:.40}.")

    def _learn_features(self, X: Any) -> None:
        seed = self.random_state or 0
        self.center_ = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        variances, axes = _principal_axes(X, self.center_, min(self.components, *X.shape), seed)
        total = float(variances.sum())
        self.components_ = axes / (np.sqrt(total) if total > 0 else 1.0)
        self.topics_ = None
        self.topic_center_, self.topic_scale_ = np.zeros(0), 1.0
        # Small clusters carry little information: with 3 rows each, a stream of seven experts cost
        # 0.003 more.
        clusters = min(self.topics, X.shape[0] // 20)
        if clusters > 1:
            self.topics_ = TopicFeatures(clusters=(clusters,), random_state=seed)
            memberships = self.topics_.fit_transform(X)
            self.topic_center_ = memberships.mean(axis=0)
            spread = np.sqrt(((memberships - self.topic_center_) ** 2).sum(axis=1).mean())
            self.topic_scale_ = float(1 / spread) if spread > 0 else 1.0

    def _width(self) -> int:
        return self.components_.shape[1] + len(self.topic_center_) + 1

    def _features(self, X: Any) -> Matrix:
        parts = [np.asarray(X @ self.components_) - self.center_ @ self.components_]
        if self.topics_ is not None:
            topics = np.asarray(self.topics_.memberships(X), dtype=np.float64)
            parts.append((topics - self.topic_center_) * self.topic_scale_)
        return np.hstack([*parts, np.ones((X.shape[0], 1))])

    def _add(self, X: Any, costs: Matrix, sums: SharedRidge) -> OnlineRouter:
        sums.add(self._features(X), costs)
        self.gram_, self.moments_ = sums.gram, sums.moments
        self.squares_, self.counts_ = sums.squares, sums.counts
        self.weights_, self.factors_, self.inverses_ = sums.solve(
            self.common_penalty, self.expert_penalty
        )
        self.noise_ = sums.noise(self.weights_)
        return self


def _principal_axes(
    X: Any, center: NDArray[np.float64], count: int, seed: int
) -> tuple[NDArray[np.float64], Matrix]:
    """Return variances along the first principal axes, and the axes, shape (d, count)."""
    if X.shape[1] > _WIDE:
        # Around the origin: rows as wide as these are sparse, and their mean is close to it.
        _, values, axes = randomized_svd(X, count, random_state=seed)
        return values**2 / X.shape[0], np.asarray(axes.T, dtype=np.float64)
    products = X.T @ X
    products = products if isinstance(products, np.ndarray) else products.toarray()
    covariance = products.astype(np.float64) / X.shape[0] - np.outer(center, center)
    values, axes = np.linalg.eigh(covariance)
    return np.maximum(values[::-1][:count], 0.0), axes[:, ::-1][:, :count].copy()


# Maximum weight of a residual: a little bias is better than one row that counts for hundreds.
_MAX_WEIGHT = 10.0
_FOLDS = 5
_FEWEST = 20


def impute_costs(
    X: Any,
    costs: Any,
    propensities: Any = None,
    groups: Any = None,
    *,
    max_weight: float = _MAX_WEIGHT,
    random_state: int | None = None,
) -> Matrix:
    """Return doubly robust costs of every expert on every row, for any router to learn from.

    A cost is the prediction of a regression on other rows plus, if the expert was asked, the
    residual divided by the probability of asking. Experts that were asked on all rows help to
    predict the others.

    Args:
        X: Vectors, shape (n, d).
        costs: Shape (n, p), NaN where an expert was not asked.
        propensities: Probability of asking each expert, shape (n, p); NaN if nothing was drawn at
            random, such as on a request that named its expert. If `None`, all are unknown, and an
            expert's probability is its share of the rows.
        groups: Rows of a group are not used to predict one another, shape (n,), or `None`.
        max_weight: Maximum weight of a residual.
        random_state: Seed of the folds.

    Returns:
        Shape (n, p); on rows where all experts were certain to be asked, the observed costs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, asked = rng.normal(size=(600, 2)), rng.random((600, 2)) < 0.5
        >>> costs = X + [0.0, 1.0]
        >>> found = impute_costs(X, np.where(asked, costs, np.nan), np.full((600, 2), 0.5))
        >>> abs((found - costs).mean(axis=0)) < 0.1
        array([ True,  True])
    """
    seen = check_costs(costs, partial=True)
    asked = ~np.isnan(seen)
    check_asked(asked)
    propensities = _propensities(asked, propensities)
    expected = _expected(X, seen, asked, propensities, groups, random_state)
    weights = np.where(asked, np.minimum(1 / np.where(asked, propensities, 1.0), max_weight), 0.0)
    return np.asarray(expected + weights * np.where(asked, seen - expected, 0.0))


def check_asked(asked: NDArray[np.bool_], names: Any = None) -> None:
    """Raise an error if an expert was asked too rarely to estimate its costs."""
    counts = asked.sum(axis=0)
    rarest = int(counts.argmin())
    if counts[rarest] < min(_FEWEST, len(asked)):
        name = rarest if names is None else repr(names[rarest])
        raise CostError(
            f"each expert must have been asked on at least {_FEWEST} rows, got {counts[rarest]} for"
            f" expert {name}; ask it more often (exploration, sampling, collect), or leave it out."
        )


def _propensities(asked: NDArray[np.bool_], given: Any) -> Matrix:
    if given is None:
        return np.broadcast_to(asked.mean(axis=0), asked.shape)
    propensities = np.asarray(given, dtype=np.float64)
    if propensities.shape != asked.shape:
        raise ArgumentError(
            f"propensities must have the shape of costs, {asked.shape}, got {propensities.shape}."
        )
    propensities = np.where(np.isnan(propensities), 1.0, propensities)
    if (
        (propensities < 0).any()
        or (propensities > 1 + 1e-6).any()
        or (asked & (propensities <= 0)).any()
    ):
        raise ArgumentError(
            "propensities must lie between 0 and 1, and above 0 where an expert was asked, got"
            f" {propensities.min():g} to {propensities.max():g}; check the log."
        )
    return propensities


def _expected(
    X: Any,
    costs: Matrix,
    asked: NDArray[np.bool_],
    propensities: Matrix,
    groups: Any,
    random_state: int | None,
) -> Matrix:
    """Return cross-fitted predictions of all costs, shape (n, p)."""
    template = OnlineRouter(random_state=random_state or 0)
    template._learn_features(X)
    features = template._features(X)
    # Rows of a group are held out together.
    codes = np.arange(len(costs)) if groups is None else np.unique(groups, return_inverse=True)[1]
    fold = assign_folds(int(codes.max()) + 1, _FOLDS, seed=random_state or 0)[codes]
    parts = []
    total = SharedRidge(features.shape[1], costs.shape[1])
    for current in range(fold.max() + 1):
        part = SharedRidge(features.shape[1], costs.shape[1])
        part.add(features[fold == current], costs[fold == current])
        total.add(features[fold == current], costs[fold == current])
        parts.append(part)
    expected = np.empty_like(costs)
    for current, part in enumerate(parts):
        weights, _, _ = total.without(part).solve(_COMMON_PENALTY, _EXPERT_PENALTY)
        expected[fold == current] = features[fold == current] @ weights.T
    always_asked = np.asarray((propensities >= 1).all(axis=0) & asked.all(axis=0))
    if always_asked.any() and not always_asked.all():
        _add_residuals(expected, costs, asked, always_asked, fold)
    return expected


def _add_residuals(
    expected: Matrix,
    costs: Matrix,
    asked: NDArray[np.bool_],
    always_asked: NDArray[np.bool_],
    fold: NDArray[np.intp],
) -> None:
    """Predict the other experts' residuals from those of the always-asked experts."""
    residuals = costs - expected
    for expert in np.flatnonzero(~always_asked):
        for current in range(fold.max() + 1):
            rows, at = asked[:, expert] & (fold != current), fold == current
            regression = ridge(residuals[rows][:, always_asked], residuals[rows][:, [expert]])
            expected[at, expert] += regression.predict(residuals[at][:, always_asked])[:, 0]


# Penalty of the predictions for known experts, in rows.
_KNOWN_PENALTY = 30.0
# Penalties of a new expert's regressions, in rows; ties go to the strongest.
_PENALTIES = (np.inf, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
# Minimum number of scored queries for components of vectors to be used: with 100 scored queries on
# the trio of MMLU, they lost 4% of the gain (seeds 0 to 4).
_COMPONENTS, _FEWEST_FOR_COMPONENTS = 32, 300
# Size of the candidate pool for scoring.
_CANDIDATES = 4000
# Standard errors by which a new expert's costs are raised after 100 scored queries; chosen on seeds
# 0 to 4 of MMLU and RouterBench.
_CAUTION = 0.6


@dataclass(frozen=True)
class KnownExperts:
    """The experts that were asked on all n rows of a table, as a reference for a new one.

    Their expected costs say more about a new expert than a vector does, and their residuals on a
    query help to predict the new expert's cost there.

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
            further: Vectors of rows on which these experts were not asked, shape (f, d), or `None`.
            groups: Group of each of the n rows, or `None`; topics learn from them.
            random_state: Seed of clusters and folds.
        """
        cost_matrix, seed = check_costs(costs), random_state or 0
        topics = TopicFeatures(random_state=seed)
        memberships = topics.fit_transform(X, groups=groups)
        center = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        _, axes = _principal_axes(X, center, min(X.shape[1], _WIDE // 4, len(cost_matrix)), seed)
        views = [np.asarray(X @ axes) - center @ axes, memberships]
        if further is not None:
            views[0] = np.vstack([views[0], np.asarray(further @ axes) - center @ axes])
            views[1] = np.vstack([memberships, topics.memberships(further)])
        views = [_scaled(view, len(cost_matrix)) for view in views]
        features = np.hstack([*views, np.ones((len(views[0]), 1))])
        expected = _cross_fitted(
            features, cost_matrix, assign_folds(len(cost_matrix), _FOLDS, seed=seed)
        )
        residuals = np.zeros_like(expected)
        residuals[: len(cost_matrix)] = cost_matrix - expected[: len(cost_matrix)]
        return cls(expected, residuals, views[0][:, :_COMPONENTS])

    def costs_of_new(self, costs: Any, *, caution: float = _CAUTION) -> NDArray[np.float64]:
        """Return the expected costs of a new expert on all rows, shape (n + f,).

        They are inflated by a multiple of their standard error, so that a little-known expert is
        rarely chosen; the multiple falls with the number of scored queries.

        Args:
            costs: Observed costs, NaN where the expert was not asked, shape (n + f,).
            caution: Standard errors after 100 scored queries; half as many after 400.
        """
        seen = np.asarray(costs, dtype=np.float64)
        asked = np.flatnonzero(~np.isnan(seen))
        check_asked(~np.isnan(seen)[:, None])
        experts = self.expected.shape[1]
        features = np.hstack([_standardized(self.expected), _standardized(self.residuals)])
        # At decision time no answers are known, so residuals are 0.
        features_at_decision = features.copy()
        features_at_decision[:, experts:] = 0.0
        estimate, variance, noise = _few_rows_ridge(
            features, asked, seen[asked], features_at_decision
        )
        if len(asked) >= _FEWEST_FOR_COMPONENTS:
            remainder = seen[asked] - estimate[asked]
            rest, more, noise = _few_rows_ridge(self.components, asked, remainder, self.components)
            estimate = estimate + rest
            variance = variance + more - 1 / len(asked)
        errors = np.sqrt(noise * variance)
        return np.asarray(estimate + caution * np.sqrt(100 / len(asked)) * errors)

    def order_queries(self, count: int, random_state: int | None = None) -> NDArray[np.intp]:
        """Return the rows of the table on which to score a new expert, in order.

        Each row is the one after which a regression on the expected costs of the other experts and
        on components would know the new expert's costs best, averaged over all rows, given the rows
        before it. In benchmarks/quality/new_expert.py, random rows did equally well.

        Args:
            count: Number of rows, at most those of the table.
            random_state: Seed of the candidate rows, if there are many.
        """
        rows = len(self.expected)
        candidates = np.random.default_rng(random_state or 0).permutation(rows)
        candidates = candidates[: max(_CANDIDATES, count)]
        features = np.hstack([_standardized(self.expected), self.components, np.ones((rows, 1))])
        penalty = np.ones(features.shape[1])
        penalty[self.expected.shape[1] :] = _EXPERT_PENALTY
        penalty[-1] = _INTERCEPT_PENALTY
        moments = features.T @ features / rows + 1e-9 * np.eye(len(penalty))
        return candidates[
            _greedy(features[candidates], penalty, np.linalg.cholesky(moments), count)
        ]


def _scaled(view: Matrix, rows: int) -> Matrix:
    """Center, and scale to a total mean square of 1, both measured on the first rows."""
    centered = view - view[:rows].mean(axis=0)
    spread = np.sqrt((centered[:rows] ** 2).sum(axis=1).mean())
    return np.asarray(centered / spread) if spread > 0 else centered


def _standardized(columns: Matrix) -> Matrix:
    return np.asarray((columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-9))


def _cross_fitted(features: Matrix, costs: Matrix, fold: NDArray[np.intp]) -> Matrix:
    """Return cross-fitted ridge predictions; extra rows are predicted from all training rows."""
    rows = len(costs)
    penalty = np.full(features.shape[1], _KNOWN_PENALTY)
    penalty[-1] = _INTERCEPT_PENALTY
    gram = features[:rows].T @ features[:rows] + np.diag(penalty)
    moments = features[:rows].T @ costs
    expected = np.empty((len(features), costs.shape[1]))
    expected[rows:] = features[rows:] @ np.linalg.solve(gram, moments)
    for current in range(fold.max() + 1):
        at = np.flatnonzero(fold == current)
        held = features[at]
        weights = np.linalg.solve(gram - held.T @ held, moments - held.T @ costs[at])
        expected[at] = held @ weights
    return expected


def _few_rows_ridge(
    columns: Matrix,
    asked: NDArray[np.intp],
    targets: NDArray[np.float64],
    features_at_decision: Matrix,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return predicted targets of all rows, with a penalty chosen by leave-one-out error.

    Also return the variance of predictions at ``features_at_decision``, in units of the noise, and
    the noise.
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

    ``root`` times its transpose is the second moment of the rows that the mean is taken over. All
    products are maintained by updates of rank one.
    """
    taken = np.empty(count, dtype=np.intp)
    covariance = features / penalty
    projected = covariance @ root
    leverage = (covariance * features).sum(axis=1)
    is_free = np.ones(len(features), dtype=bool)
    for step in range(count):
        gains = np.where(is_free, (projected**2).sum(axis=1) / (1 + leverage), -1.0)
        row = taken[step] = int(gains.argmax())
        is_free[row] = False
        direction = covariance[row].copy()
        change = features @ direction
        scale = 1 + leverage[row]
        leverage = leverage - change**2 / scale
        covariance -= np.outer(change / scale, direction)
        projected -= np.outer(change / scale, direction @ root)
    return taken
