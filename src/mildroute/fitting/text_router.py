"""Encoder and router as one estimator.

It maps raw inputs to experts, and one artifact stores both parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from mildroute.costs.clusters import find_clusters
from mildroute.costs.table import CostTable
from mildroute.encoders.answers import AnswerFeatures, see_answers
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.fitting.fold_vectors import fold_vectors
from mildroute.fitting.provenance import Provenance
from mildroute.fitting.routed_input import ExpectedResults, RoutedInput, routed_input
from mildroute.routers.base import RouterMixin
from mildroute.routers.cascade.features import SeenAnswers
from mildroute.routers.cascade.router import CascadeRouter
from mildroute.routers.frontier.folds import cut_vectors
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.random_split import request_draws
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target, check_price_weight
from mildroute.routers.mild import MildRouter
from mildroute.routers.out_of_distribution import OutcomeModel
from mildroute.routers.training_rows import Matrix, Progress, TrainingRows

__all__ = ["DEFAULT_ENCODER", "TextRouter"]

# Creates the default encoder of a router.
DEFAULT_ENCODER: Callable[[], Any] = ReducedEncoder

# Up to this many answers, each fold has its own transformer of answers, for the same reason that it
# has its own encoder (see ``fold_vectors``).
_MAX_REFIT_ANSWERS = 20_000


class TextRouter(BaseEstimator):
    """A router over raw inputs: texts, or any other inputs that its encoder reads.

    Args:
        encoder: Transformer from inputs to vectors; defaults to :data:`DEFAULT_ENCODER`.
        router: Router over vectors. Defaults to :class:`~mildroute.routers.CascadeRouter` if
            ``fit`` receives answers, to :class:`~mildroute.routers.FrontierRouter` if it receives
            prices, and otherwise to :class:`~mildroute.routers.MildRouter`.
        answer_features: Transformer of answers, for a router that looks at them; defaults to
            :class:`~mildroute.encoders.answers.AnswerFeatures`.

    Attributes:
        encoder_: The fitted encoder.
        answer_features_: The fitted transformer of answers, or `None`.
        logprob_experts_: Names of the experts whose log-probabilities were used in training; other
            experts' log-probabilities are ignored.
        router_: The fitted router over vectors.
        experts_: Names of the experts, shape (p,).
        provenance_: Training table and choices that depend on it, as plain values, or `None`.
        n_rows_: Number of training rows.
        data_hash_: Hash of the training data.
        outcome_model_: Model that predicts each expert's results and detects inputs that are out of
            distribution, or `None` for sparse vectors.

    Example:
        >>> texts = [f"what is {n} + 2" for n in range(60)]
        >>> texts += [f"write {n} lines of a poem" for n in range(60)]
        >>> costs = [[0, 1]] * 60 + [[1, 0]] * 60
        >>> TextRouter().fit(texts, costs).predict(["what is 99 + 3", "write a poem"])
        array([0, 1])
    """

    router_: Any
    provenance_: dict[str, Any] | None = None
    outcome_model_: OutcomeModel | None = None
    answer_features_: AnswerFeatures | None = None
    logprob_experts_: tuple[str, ...] = ()

    def __init__(
        self, *, encoder: Any = None, router: Any = None, answer_features: Any = None
    ) -> None:
        self.encoder = encoder
        self.router = router
        self.answer_features = answer_features

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
        answers: Sequence[Sequence[str]] | None = None,
        logprobs: Sequence[Any] | None = None,
        clusters: Any = None,
    ) -> TextRouter:
        """Fit the encoder on the inputs and the router on their vectors.

        Args:
            X: n inputs.
            y: As for every router: costs, shape (n, p), without the prices if those are passed.
            sample_weight: Weight of each row, shape (n,), or `None`.
            groups: Group of each row, shape (n,), or `None`.
            prices: Dollars, shape (n, p) or (p,), or `None`; only for routers that support prices.
            experts: p names; they default to the column names of a data frame ``y``.
            progress: Called with the steps done, the total and a short label of the next step, if
                the router reports progress; or `None`.
            answers: n texts from each of the p experts, for a router that may look at them; or
                `None`.
            logprobs: Mean log-probability of the tokens of each answer, shape (n,) for each of the
                p experts, NaN where unknown, `None` for an expert without any; or `None`.
            clusters: Cluster of each row, shape (n,); rows of a cluster are held out together.
                Defaults to the result of :func:`~mildroute.costs.clusters.find_clusters` for texts.

        Returns:
            The router itself.
        """
        if clusters is None and sample_weight is None:
            clusters = _cluster_texts(X, groups, y)
        default = MildRouter() if prices is None else FrontierRouter()
        default = default if answers is None else CascadeRouter()
        router: Any = default if self.router is None else clone(self.router)
        if not isinstance(router, RouterMixin):
            raise ArgumentError(
                f"router must derive from RouterMixin, got {type(router).__name__}; use one from"
                " mildroute.routers."
            )
        encoder = DEFAULT_ENCODER() if self.encoder is None else clone(self.encoder)
        vectors = encoder.fit_transform(X)
        rows = router.training_rows(
            vectors,
            y,
            sample_weight=sample_weight,
            groups=groups,
            prices=prices,
            experts=experts,
            clusters=clusters,
        )
        if router.supports_folds and sample_weight is None:
            rows = replace(rows, folds=fold_vectors(encoder, X, vectors, router, rows.clusters))
        features = None
        if answers is not None:
            if not router.supports_answers:
                raise ArgumentError(
                    f"{type(router).__name__} does not support answers; leave them out or use a"
                    " CascadeRouter."
                )
            features, rows = self._learn_answers(answers, logprobs, rows, router)
        router.fit_rows(rows, progress)
        self.encoder_ = encoder
        self.router_ = router
        self.answer_features_ = features
        self.logprob_experts_ = tuple(
            str(name)
            for name, values in zip(router.experts_, logprobs or (), strict=False)
            if values is not None and not np.isnan(np.asarray(values, dtype=np.float64)).all()
        )
        self.n_rows_ = router.n_rows_
        self.data_hash_ = router.data_hash_
        self.provenance_ = None
        self.outcome_model_ = None
        if not issparse(vectors):
            outcomes = router.outcome_rows or rows
            self.outcome_model_ = OutcomeModel().fit(
                vectors, outcomes.costs, sample_weight, outcomes.prices
            )
        return self

    def _learn_answers(
        self,
        answers: Sequence[Sequence[str]],
        logprobs: Sequence[Any] | None,
        rows: TrainingRows,
        router: RouterMixin,
    ) -> tuple[AnswerFeatures, TrainingRows]:
        """Return fitted answer features, and the rows with the answers that a cascade reads."""
        features = AnswerFeatures() if self.answer_features is None else clone(self.answer_features)
        values = [
            np.full(len(texts), np.nan) if each is None else np.asarray(each, dtype=np.float64)
            for texts, each in zip(
                answers, _logprobs_per_expert(logprobs, len(answers)), strict=True
            )
        ]
        features.fit([text for texts in answers for text in texts], logprobs=np.concatenate(values))
        seen = see_answers(features, answers, values)
        folds = rows.folds
        if len(answers) * len(seen.readings) <= _MAX_REFIT_ANSWERS:
            folds = folds or cut_vectors(rows.X, router.random_state, rows.clusters)
            all_rows = np.arange(len(seen.readings))
            folds = [
                fold._replace(
                    answers=features.refit_vectors(
                        answers, seen, np.setdiff1d(all_rows, fold.held_out)
                    )
                )
                for fold in folds
            ] or None
        return features, replace(rows, answers=seen, folds=folds)

    def set_provenance(self, provenance: Provenance) -> TextRouter:
        """Store what reports and the gateway show about the training table; return the router."""
        self.data_hash_ = provenance.data_hash
        self.provenance_ = provenance.to_plain()
        return self

    @property
    def provenance(self) -> Provenance | None:
        """Return the training table and the choices that depend on it, or `None` if unknown."""
        return None if self.provenance_ is None else Provenance.from_plain(self.provenance_)

    @property
    def target(self) -> Target | None:
        """Return the target that selected the operating point, or `None`."""
        return None if self.provenance is None else self.provenance.target

    @property
    def experts_(self) -> NDArray[np.object_]:
        """Return the names of the experts, shape (p,)."""
        experts: NDArray[np.object_] = self.router_.experts_
        return experts

    @property
    def n_experts(self) -> int:
        """Return the number of experts; any names after them are a cascade's looks."""
        return int(self.router_.n_experts)

    def see(
        self, answers: Sequence[Sequence[str] | None], logprobs: Sequence[Any] | None = None
    ) -> SeenAnswers:
        """Return the answers of the p experts in the form that the router reads.

        Args:
            answers: n texts from each expert, or `None` for one that was not called.
            logprobs: As for ``fit``.
        """
        if self.answer_features_ is None:
            raise ArgumentError(
                "this router was fitted without answers and looks at none; fit it with answers."
            )
        values = [
            values if name in self.logprob_experts_ else None
            for name, values in zip(
                self.experts_, _logprobs_per_expert(logprobs, self.n_experts), strict=False
            )
        ]
        return see_answers(self.answer_features_, answers, values)

    def see_table(self, table: CostTable) -> SeenAnswers | None:
        """Return a table's answers in the form that the router reads.

        Return `None` for a router without looks, and for a table that already has columns for them.
        """
        names = [str(name) for name in self.experts_]
        if self.n_experts == len(names) or set(names) <= set(table.experts):
            return None
        names = names[: self.n_experts]
        return self.see(
            [table.answers(name) for name in names], [table.logprobs(name) for name in names]
        )

    def with_looks(
        self, table: CostTable, seen: SeenAnswers | None = None, vectors: Any = None
    ) -> CostTable:
        """Return the table with a column for each look: its outcome with the table's answers.

        The table is unchanged if the router has no looks or the table already has the columns.

        Args:
            table: Table with the router's experts and their answers.
            seen: The answers as ``see_table`` returns them, if already computed.
            vectors: Vectors of the table's inputs, if already computed.
        """
        seen = self.see_table(table) if seen is None else seen
        if seen is None:
            return table
        router, experts = self.router_, [str(name) for name in self.experts_]
        table = table.select(experts[: self.n_experts])
        vectors = self.encoder_.transform(table.inputs) if vectors is None else vectors
        scores, rows = table.scores, np.arange(len(table))
        extended = table
        for index, name in enumerate(experts[self.n_experts :]):
            path = router.walk(np.full(len(rows), self.n_experts + index), vectors, seen)
            bills = [
                None if matrix is None else (matrix * path.is_called).sum(axis=1)
                for matrix in (table.dollars, table.latencies)
            ]
            extended = extended.with_expert(name, scores[rows, path.experts], *bills)
        return extended

    @property
    def operating_point(self) -> OperatingPoint | None:
        """Return the current operating point with its expected results, or `None`."""
        return self.router_.operating_point if self.router_.has_operating_points else None

    def predict(
        self,
        X: Any,
        price_weight: Any = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> NDArray[np.intp]:
        """Return the index of the expert that should answer each input, shape (n,).

        Args:
            X: n inputs.
            price_weight: Decide at this price weight instead of the operating point; only for a
                router with prices.
            point: Decide at this operating point.
            request_ids: Id of each request, which seeds the random draw of an operating point
                between two vertices; defaults to the input itself.
        """
        return self._call_router("predict", X, price_weight, point, request_ids)

    def predict_proba(
        self, X: Any, price_weight: Any = None, *, point: OperatingPoint | None = None
    ) -> Matrix:
        """Return the posterior over experts, shape (n, p)."""
        return self._call_router("predict_proba", X, price_weight, point)

    def decision_function(self, X: Any, price_weight: Any = None) -> Matrix:
        """Return the score of each expert, shape (n, p); larger is better."""
        return self._call_router("decision_function", X, price_weight)

    def rank(
        self,
        X: Any,
        price_weight: Any = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> NDArray[np.intp]:
        """Return the experts of each input from best to worst, shape (n, p).

        Arguments are as for ``predict``.
        """
        return self._call_router("rank", X, price_weight, point, request_ids)

    def explain(
        self,
        X: Any,
        price_weight: float | None = None,
        *,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
        default: str | None = None,
    ) -> list[RoutedInput]:
        """Return the decision for each input; the command line and the gateway use this method.

        Args:
            X: n texts.
            price_weight: As for ``predict``.
            point: As for ``predict``.
            request_ids: As for ``predict``.
            default: Expert for inputs unlike the training data; defaults to the best single expert
                on the training data.
        """
        check_is_fitted(self)
        if isinstance(X, str):
            raise ArgumentError("inputs must be a list of texts, got one text; put it into a list.")
        inputs = X if isinstance(X, list) else list(X)
        ids = inputs if request_ids is None else list(request_ids)
        if len(ids) != len(inputs):
            raise ShapeError(f"request_ids must be {len(inputs)}, one per input, got {len(ids)}.")
        if price_weight is not None:
            check_price_weight(price_weight)
        return self.explain_vectors(
            self.encoder_.transform(inputs), ids, price_weight, point=point, default=default
        )

    def explain_vectors(
        self,
        vectors: Any,
        request_ids: Sequence[str],
        price_weight: float | None = None,
        *,
        point: OperatingPoint | None = None,
        default: str | None = None,
    ) -> list[RoutedInput]:
        """Explain decisions like ``explain``, for encoded vectors, which are not checked."""
        names, router = tuple(str(name) for name in self.experts_), self.router_
        chosen, weight = None, None
        if router.has_operating_points:
            chosen = (
                point if price_weight is not None or point is not None else router.operating_point
            )
            weight = (
                float(router.price_weight if price_weight is None else price_weight)
                if chosen is None
                else chosen.price_weight
            )
            vertices = router.vertex_posteriors(
                vectors, chosen or OperatingPoint.at_weight(weight, len(names))
            )
        else:
            vertices = [(1.0, np.asarray(router.posterior_unchecked(vectors)))]
        expected = ExpectedResults(self.outcome_model_, vectors)
        fallback = (
            names.index(default)
            if default in names[: self.n_experts]
            else expected.best_single(weight, self.n_experts)
        )
        draws = (
            request_draws(request_ids, int(router.random_state or 0))
            if len(vertices) > 1
            else np.zeros(len(request_ids))
        )
        return [
            routed_input(
                names,
                row,
                [(chance, posterior[row]) for chance, posterior in vertices],
                float(draws[row]),
                chosen,
                weight,
                expected,
                fallback,
            )
            for row in range(len(request_ids))
        ]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the negative mean cost of the chosen experts, so that larger is better."""
        check_is_fitted(self)
        return float(self.router_.score(self.encoder_.transform(X), y, sample_weight))

    def _call_router(
        self,
        method: str,
        X: Any,
        price_weight: Any,
        point: OperatingPoint | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> Any:
        check_is_fitted(self)
        has_points = self.router_.has_operating_points
        supports_prices = self.router_.supports_prices
        arguments = {"price_weight": price_weight, "point": point, "request_ids": request_ids}
        for name, value in arguments.items():
            if value is not None and not (
                supports_prices if name == "price_weight" else has_points
            ):
                raise ArgumentError(
                    f"{type(self.router_).__name__} does not support {name}; fit with prices,"
                    " or leave it out."
                )
        inputs = X if isinstance(X, list) else list(X)
        if (
            has_points
            and method in ("predict", "rank")
            and request_ids is None
            and all(isinstance(text, str) for text in inputs)
        ):
            # Seed by the text itself, so that the command line and the gateway make the same
            # decision for the same text.
            arguments["request_ids"] = inputs
        return getattr(self.router_, method)(
            self.encoder_.transform(X),
            **{name: value for name, value in arguments.items() if value is not None},
        )

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: a router takes one column of inputs and a cost matrix."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required, tags.target_tags.multi_output, tags.target_tags.two_d_labels = (
            True,
            True,
            True,
        )
        return tags


def _logprobs_per_expert(logprobs: Sequence[Any] | None, n_experts: int) -> Sequence[Any]:
    if logprobs is not None and len(logprobs) != n_experts:
        raise ShapeError(
            f"logprobs must have one entry per expert, {n_experts}, got {len(logprobs)}."
        )
    return [None] * n_experts if logprobs is None else logprobs


def _cluster_texts(X: Any, groups: Any, costs: Any) -> NDArray[np.intp] | None:
    """Return the inputs' clusters, or `None` if they are not texts."""
    inputs = X if isinstance(X, list) else list(X)
    if not inputs or not all(isinstance(text, str) for text in inputs):
        return None
    scores = -np.asarray(costs, dtype=np.float64)
    return find_clusters(inputs, groups, scores=scores if scores.ndim == 2 else None).codes
