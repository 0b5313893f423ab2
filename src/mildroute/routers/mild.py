"""The default router: linear, convex, consistent, and selected on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from mildroute.exceptions import ArgumentError, MarginError, ShapeError
from mildroute.routers._cross_validation import ALPHAS
from mildroute.routers._decision import break_ties, log_posterior
from mildroute.routers._folds import CV, assign_folds, count_folds, count_units
from mildroute.routers._held_out_metrics import held_out_metrics
from mildroute.routers._linear_model import minimize_linear
from mildroute.routers._mlp import fit_network, forward
from mildroute.routers._rewards import MARGIN_RULES, margins_by
from mildroute.routers._ridge import ridge
from mildroute.routers._search import (
    REGRESSION,
    SearchSpace,
    best_single,
    constant_scores,
    evaluate_fixed,
    margin_specs,
    search,
)
from mildroute.routers._search_result import SearchResult, select_one_se, to_cv_results
from mildroute.routers._whitening import whiten
from mildroute.routers.base import RouterMixin
from mildroute.routers.feature_sets import FeatureSet, FeatureSets, build_feature_sets
from mildroute.routers.features import TopicFeatures
from mildroute.routers.training_rows import Matrix, Progress, TrainingRows

__all__ = ["MildRouter"]

_CHOICES = {
    "reward": ("cv", "gap", "complement", "sum"),
    "margins": ("cv", "theory", "winner_counts", "uniform"),
    "decision": ("consistent", "argmax"),
    "features": ("cv", "raw", "topics", "groups", "both"),
}


class MildRouter(RouterMixin, BaseEstimator):
    """A router by margin-based imbalanced learning to defer; its defaults need no tuning.

    The router solves the paper's regularized convex problem to optimality on raw vectors or topic
    features. Every parameter set to ``"cv"`` is selected inside ``fit`` by cross-validated deferral
    loss. The best single expert, cost regression and TDEF are among the candidates, and a simpler
    candidate within one standard error is preferred, so the router is no worse than any of them on
    held-out rows. The same held-out rows calibrate the scores with one factor and one shift per
    expert, because the penalty shrinks the scores of rare specialists too much.

    Args:
        reward: ``"gap"``, ``"complement"``, ``"sum"`` or ``"cv"``.
        margins: ``"uniform"``; ``"theory"``, the paper's, which are proportional to the cube roots
            of the summed reward distribution and sum to 1, with equal feature norms X_k, as for
            linear scores; ``"winner_counts"``, the same with the number of wins of each expert; an
            array of shape (p,); or ``"cv"``, which tries equal margins and powers of the wins, with
            a mean of 1.
        decision: ``"consistent"`` (largest posterior) or ``"argmax"`` (largest score, the paper's
            rule).
        alpha: Weight of the squared norm, in units of the features' variance and of the mean of
            margins selected by name, or ``"cv"``.
        features: ``"raw"`` vectors, ``"topics"``, ``"groups"`` (only the topics of the training
            groups), ``"both"``, or ``"cv"``.
        topics: The transformer that computes topic features. Defaults to clusterings of sizes 10,
            20, 40 and 80, and the groups passed to ``fit``.
        hidden_layer_sizes: Units of each hidden layer of a network on the raw vector, or `None` for
            a linear router. A network is stopped early by held-out deferral loss. It uses no
            penalty, and the gap reward and equal margins if those are ``"cv"``.
        cv: Number of folds, or pairs of train and test rows that test each row once.
        random_state: Seed of the folds, clusterings and networks; the same seed gives the same
            router.

    Attributes:
        experts_: Names of the experts, shape (p,).
        weights_: Weights of the raw vector, shape (d, p); zero if it is not used.
        topic_weights_: Weights of the topics, shape (K, p), or `None`.
        intercept_: Shape (p,).
        layers_: Weights and biases of the network in alternation, or `None`.
        margins_: Shape (p,).
        alpha_: The penalty used; infinite for the best single expert, and 0 for cost regression,
            which has one penalty per contrast.
        features_: The features used; ``"none"`` for the best single expert, ``"average"`` for the
            mean of raw vectors and topics.
        reward_: The reward used, or ``"regression"``.
        gradient_norm_: Largest entry of the gradient at the optimum.
        cv_results_: The candidates tried, as columns.
        selection_: Description of the selected candidate and the reason.
        validation_: Cost on held-out rows with 95% intervals, along with those of the best single
            expert and the oracle, or `None`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 4))
        >>> costs = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)
        >>> router = MildRouter(random_state=0).fit(X, costs)
        >>> router.score(X, costs) > -0.1
        True
    """

    keeps_held_out_posterior = True
    searches_once_for_all_prices = True
    _transient = ("_held_out",)
    _held_out: tuple[SearchSpace, SearchResult] | None = None
    weights_: NDArray[np.float64] | None
    topic_weights_: NDArray[np.float64] | None
    topics_: TopicFeatures | None
    layers_: list[NDArray[np.float64]] | None

    def __init__(
        self,
        *,
        reward: str = "cv",
        margins: str | Sequence[float] | NDArray[np.float64] = "cv",
        decision: Literal["consistent", "argmax"] = "consistent",
        alpha: float | Literal["cv"] = "cv",
        features: str = "cv",
        topics: TopicFeatures | None = None,
        hidden_layer_sizes: Sequence[int] | None = None,
        cv: CV = 5,
        random_state: int | None = None,
    ) -> None:
        self.reward = reward
        self.margins = margins
        self.decision = decision
        self.alpha = alpha
        self.features = features
        self.topics = topics
        self.hidden_layer_sizes = hidden_layer_sizes
        self.cv = cv
        self.random_state = random_state

    def fit_rows(self, rows: TrainingRows, progress: Progress | None = None) -> Self:
        """Learn from rows that :meth:`training_rows` has checked."""
        self._check_parameters()
        return super().fit_rows(rows, progress)

    @property
    def _learns_with_torch(self) -> bool:
        return self.hidden_layer_sizes is not None

    def _fit_rows(self, rows: TrainingRows, progress: Progress | None) -> None:  # noqa: ARG002
        has_weight = None if rows.sample_weight is None else rows.sample_weight > 0
        rows = rows.with_weight()
        if self.hidden_layer_sizes is not None and rows.costs.shape[1] > 1:
            self._fit_network(rows.X, rows.costs, rows.sample_weight)
        else:
            self._fit_linear(rows, rows.features or self.feature_sets(rows), has_weight)

    @classmethod
    def from_coefficients(
        cls,
        *,
        experts: Sequence[str],
        margin_values: NDArray[np.float64],
        rows: int,
        selection: str,
        weights: NDArray[np.float64] | None = None,
        intercept: NDArray[np.float64] | None = None,
        layers: list[NDArray[np.float64]] | None = None,
        gradient_norm: float = float("nan"),
        **parameters: Any,
    ) -> MildRouter:
        """Return a fitted router from coefficients that were trained elsewhere.

        Args:
            experts: p names.
            margin_values: Margins of the loss, shape (p,).
            rows: Number of training rows.
            selection: Description of the training.
            weights: Weights of a linear router, shape (d, p).
            intercept: Intercept of a linear router, shape (p,).
            layers: Weights and biases of a network in alternation, instead of those of a linear
                router.
            gradient_norm: Gradient norm at the end of the optimization.
            **parameters: Constructor parameters; ``reward`` and ``alpha`` are required.
        """
        router = cls(**parameters)
        first = weights if layers is None else layers[0]
        router.experts_ = np.array(experts, dtype=object)
        router.n_features_in_ = np.asarray(first).shape[0]
        router.n_rows_, router.data_hash_ = rows, ""
        router.weights_, router.layers_ = weights, layers
        router.intercept_ = np.zeros(len(experts)) if intercept is None else intercept
        router.topics_, router.topic_weights_ = None, None
        router.margins_, router.reward_ = margin_values, router.reward
        router.features_ = "raw" if layers is None else "network"
        router.alpha_ = float(router.alpha) if layers is None else 0.0
        router.gradient_norm_, router.selection_ = gradient_norm, selection
        router.cv_results_, router.validation_, router._held_out = {}, None, None
        return router

    def _fit_linear(
        self, rows: TrainingRows, views: FeatureSets, has_weight: NDArray[np.bool_] | None
    ) -> None:
        costs = rows.costs
        weights = rows.sample_weight
        clusters = rows.clusters
        problem = self._problem(views.features, costs, weights, has_weight, clusters)
        candidates = self._candidates(problem)
        choice = select_one_se(candidates, weights, clusters)
        self.cv_results_ = to_cv_results(candidates, weights, clusters)
        self.selection_ = choice.reason
        self.validation_ = self._validation(candidates[0], choice.taken, problem)
        self._held_out = (problem, choice.taken)
        self._finish(problem, choice.taken, views, rows.X.shape[1])
        if isinstance(self.margins, str) and self.margins in MARGIN_RULES:
            self._scale_scores(1 / costs.shape[1])

    def _validation(
        self, single: SearchResult, taken: SearchResult, problem: SearchSpace
    ) -> dict[str, dict[str, float]] | None:
        """Return held-out metrics if there was more than one candidate.

        The best single expert is the first candidate of a search.
        """
        if not problem.views or single.view != "none":
            return None
        return held_out_metrics(
            taken.paid, single.paid, problem.costs, problem.sample_weight, problem.clusters
        )

    def cross_val_posterior(self) -> Matrix:
        """Return out-of-fold posteriors of the training rows, shape (n, p).

        Only available after a search in this process.
        """
        if self._held_out is None:
            raise ArgumentError(
                "held-out posteriors are available only from a linear router that was fitted in"
                " this process; fit it again."
            )
        problem, taken = self._held_out
        if np.isnan(taken.paid).any():
            taken = evaluate_fixed(problem, taken)
        return np.exp(log_posterior(taken.scores.astype(np.float64), taken.rho))

    def _check_parameters(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if isinstance(value, str) and value not in allowed:
                raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, got {value!r}.")
        if self.alpha != "cv" and not (isinstance(self.alpha, int | float) and self.alpha > 0):
            raise ArgumentError(f"alpha must be positive or 'cv', got {self.alpha!r}.")
        count_folds(self.cv)

    def feature_sets(self, rows: TrainingRows) -> FeatureSets:
        """Build the features that a fit on these rows would build."""
        units = count_units(rows.clusters, rows.X.shape[0])
        if rows.costs.shape[1] == 1 or units < 2 * count_folds(self.cv):
            return FeatureSets({}, {})
        view_names: tuple[FeatureSet, ...] = ("groups", "topics", "raw")
        if self.features != "cv":
            view_names = (cast("FeatureSet", self.features),)
        topics = (
            TopicFeatures(random_state=self.random_state or 0)
            if self.topics is None
            else self.topics
        )
        return build_feature_sets(rows.X, rows.groups, view_names, topics, rows.clusters)

    def shared_features(
        self, rows: TrainingRows, built: dict[str, FeatureSets]
    ) -> FeatureSets | None:
        """Return features that routers with the same settings can share.

        Topics do not depend on the costs and take two thirds of the time at 300 rows.
        """
        if self.features not in built:
            built[self.features] = self.feature_sets(rows)
        return built[self.features]

    def with_selected_parameters(self) -> Self:
        """Return an unfitted copy with the settings that the search selected.

        If the search did not select a surrogate loss, the copy uses a default one.
        """
        copy: Self = clone(self)
        if self.reward_ == REGRESSION or self.features_ == "none":
            features = "raw" if self.features != "topics" else "topics"
            copy.set_params(reward="gap", features=features, alpha=1e-2, margins="uniform")
            return copy
        margins: Any = self.margins
        if isinstance(margins, str):
            margins = "uniform" if np.ptp(self.margins_) == 0 else self.margins_
        copy.set_params(
            reward=self.reward_, features=self.features_, alpha=self.alpha_, margins=margins
        )
        return copy

    def check_repeated_fits(self) -> None:
        """Raise an error for a network, which takes too long to be fitted many times."""
        if self.hidden_layer_sizes is not None:
            raise ArgumentError(
                "a frontier is fitted many times, which"
                f" hidden_layer_sizes={self.hidden_layer_sizes!r} makes too slow; use"
                " hidden_layer_sizes=None."
            )

    def _problem(
        self,
        views: dict[FeatureSet, Any],
        costs: Matrix,
        weights: NDArray[np.float64] | None,
        has_weight: NDArray[np.bool_] | None = None,
        clusters: NDArray[np.intp] | None = None,
    ) -> SearchSpace:
        fixed = None if isinstance(self.margins, str) else self._custom_margins(costs.shape[1])
        fold = (
            assign_folds(len(costs), self.cv, self.random_state, has_weight, clusters)
            if views
            else np.zeros(len(costs), dtype=np.intp)
        )
        return SearchSpace(
            views=views,
            costs=costs,
            fold=fold,
            decision=self.decision,
            rewards=("gap", "complement", "sum") if self.reward == "cv" else (self.reward,),
            margins=(
                {"given": None}
                if fixed is not None
                else margin_specs(str(self.margins), costs.shape)
            ),
            fixed_margins=fixed,
            alphas=ALPHAS if self.alpha == "cv" else (float(self.alpha),),
            sample_weight=weights,
            clusters=clusters,
        )

    def _custom_margins(self, experts: int) -> NDArray[np.float64]:
        margins = np.asarray(self.margins, dtype=np.float64)
        if margins.shape != (experts,):
            raise ShapeError(
                f"margins must be ({experts},), one per expert, got shape {margins.shape}."
            )
        if not (np.isfinite(margins).all() and (margins > 0).all()):
            raise MarginError(
                f"margins must be positive and finite, got {margins.tolist()}; raise the offset or"
                " the scale."
            )
        return margins

    def _candidates(self, problem: SearchSpace) -> list[SearchResult]:
        if not problem.views:
            return [best_single(problem)]
        if (
            len(problem.views) * len(problem.rewards) * len(problem.margins) * len(problem.alphas)
            > 1
        ):
            return search(problem)
        (view,), (reward,), (margins,) = problem.views, problem.rewards, problem.margins
        unknown = np.full(len(problem.costs), np.nan)
        empty = np.zeros(problem.costs.shape, dtype=np.float32)
        return [
            SearchResult(
                view,
                reward,
                margins,
                problem.alphas[0],
                unknown,
                empty,
                problem.rho(margins, reward),
            )
        ]

    def _fit_network(self, X: Any, costs: Matrix, weights: NDArray[np.float64] | None) -> None:
        problem = self._problem({}, costs, weights)
        margins = next(iter(problem.margins))
        self.features_, self.reward_, self.alpha_ = "network", problem.rewards[0], 0.0
        rule = problem.margins[margins]
        self.margins_ = (
            problem.rho(margins, self.reward_)
            if rule is None
            else margins_by(rule, problem.reward(self.reward_), weights)
        )
        self.weights_, self.topics_, self.topic_weights_, self.intercept_ = (
            None,
            None,
            None,
            np.zeros(costs.shape[1]),
        )
        self.layers_ = fit_network(
            X,
            costs,
            problem.reward(self.reward_),
            self.margins_,
            hidden_layer_sizes=tuple(self.hidden_layer_sizes or ()),
            decision=self.decision,
            weights=weights,
            seed=self.random_state or 0,
        )
        self.cv_results_, self.gradient_norm_, self._held_out, self.validation_ = (
            {},
            float("nan"),
            None,
            None,
        )
        self.selection_ = (
            f"a network with hidden layers {tuple(self.hidden_layer_sizes or ())},"
            f" {self.reward_} reward, {margins} margins: as configured"
        )

    def _finish(
        self, problem: SearchSpace, taken: SearchResult, views: FeatureSets, width: int
    ) -> None:
        """Solve the selected problem on all rows and store the coefficients for prediction."""
        self.features_, self.reward_, self.alpha_ = taken.view, taken.reward, float(taken.alpha)
        self.margins_, self.topics_, self.topic_weights_, self.weights_, self.layers_ = (
            taken.rho,
            None,
            None,
            None,
            None,
        )
        if taken.view == "none":
            self.intercept_, self.gradient_norm_ = (
                constant_scores(problem, taken.reward, np.ones(len(problem.costs), dtype=bool)),
                0.0,
            )
            return
        if taken.reward == REGRESSION:
            self._finish_regression(problem, taken, views, width)
            return
        features = problem.views[taken.view]
        loss = problem.loss_of(taken.reward, taken.rho)(np.arange(len(problem.costs)))
        design = whiten(features, problem.sample_weight)
        fit = minimize_linear(
            design,
            loss,
            problem.experts,
            alpha=taken.alpha,
            sample_weight=problem.sample_weight,
        )
        scale = taken.calibration.scale
        self.intercept_, self.gradient_norm_ = (
            scale * fit.intercept + taken.calibration.shift,
            fit.gradient_norm,
        )
        self.topics_ = views.topics.get(taken.view)
        raw = width if taken.view in ("raw", "both") else 0
        if raw:
            self.weights_ = (
                scale * fit.weights[:raw] * (views.vector_scale if taken.view == "both" else 1.0)
            )
        if self.topics_ is not None:
            self.topic_weights_ = scale * fit.weights[raw:]

    def _scale_scores(self, unit: float) -> None:
        """Multiply scores and margins by a unit, which changes neither decisions nor posteriors.

        The search works in units of the mean margin; the paper's margins sum to 1.
        """
        self.margins_, self.intercept_ = unit * self.margins_, unit * self.intercept_
        if self.weights_ is not None:
            self.weights_ = unit * self.weights_
        if self.topic_weights_ is not None:
            self.topic_weights_ = unit * self.topic_weights_

    def _finish_regression(
        self, problem: SearchSpace, taken: SearchResult, views: FeatureSets, width: int
    ) -> None:
        """Regress costs on all rows; the calibrated scores are minus the expected costs."""
        names: tuple[FeatureSet, ...] = (
            ("raw", "topics") if taken.view == "average" else (taken.view,)
        )
        factor = -taken.calibration.scale / problem.cost_unit / len(names)
        self.intercept_, self.gradient_norm_ = (
            taken.calibration.shift + np.zeros(problem.experts),
            0.0,
        )
        for name in names:
            fit = ridge(
                problem.views[name],
                problem.costs,
                problem.sample_weight,
                contrasts=True,
                clusters=problem.clusters,
            )
            self.intercept_ = self.intercept_ + factor * fit.intercept
            raw = width if name in ("raw", "both") else 0
            if raw:
                self.weights_ = (
                    factor * fit.weights[:raw] * (views.vector_scale if name == "both" else 1.0)
                )
            if name in views.topics:
                self.topics_, self.topic_weights_ = views.topics[name], factor * fit.weights[raw:]

    def _scores(self, X: Any) -> Matrix:
        if self.layers_ is not None:
            return forward(self.layers_, X)
        scores = np.tile(self.intercept_, (X.shape[0], 1))
        if self.weights_ is not None:
            scores += np.asarray(X @ self.weights_.astype(X.dtype, copy=False))
        if self.topics_ is not None and self.topic_weights_ is not None:
            scores += self.topics_.memberships(X) @ self.topic_weights_
        return scores

    def _utilities(self, X: Any) -> Matrix:
        scores = self._scores(X)
        if self.decision == "argmax" or np.ptp(self.margins_) == 0:
            return scores
        return break_ties(log_posterior(scores, self.margins_), scores)

    def _posterior(self, X: Any) -> Matrix:
        return np.exp(log_posterior(self._scores(X), self.margins_))
