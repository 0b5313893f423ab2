"""A stored router that predicts for one input at a time, at any of its operating points."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
from scipy import sparse

from mildroute.decision.drift import DriftReference
from mildroute.decision.prediction import Prediction, rank_experts
from mildroute.decision.prompt import truncate
from mildroute.decision.settings import EncoderConfig
from mildroute.exceptions import ArgumentError, ArtifactError, MildrouteError
from mildroute.fitting.targets import operating_point, without_looks
from mildroute.fitting.text_router import TextRouter
from mildroute.persistence.artifact import load_router, read_manifest
from mildroute.routers.cascade.router import CascadeRouter
from mildroute.routers.features import TopicFeatures
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.random_split import request_draws
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.frontier.target import Target

__all__ = ["Predictor"]

# Inputs on which a router is tested before it is used.
_PROBES = ("", "What is 2 + 2?", "\U0001f600 " * 50)
# Maximum seconds of an encoder that is better called directly than on a thread of its own, because
# handing a text over takes milliseconds on a busy machine.
_QUICK_SECONDS = 0.002
# Maximum number of targets whose points are cached; the least recently used one is dropped first.
_MAX_TARGETS = 256


class Predictor:
    """A loaded router that was tested on a few inputs.

    Args:
        router: A router over texts.
        sha256: Digest of its artifact.
        config: Settings of the encoder, of which only ``max_chars`` matters here.

    Attributes:
        digest: The first 16 digits of the artifact's digest, for logs and metrics.
        experts: Names of the experts, followed by those of a cascade's first stages.
        n_experts: Number of experts; the names after them are stages.
        default: Expert for inputs that the router cannot judge: the best single expert of the
            training data, or the first expert if the artifact does not record it.
        has_prices: Whether the router can decide at any price weight, quality or budget.
        own: The artifact's operating point; ``None`` if the router has no prices.
        looks: Experts that each first stage of a cascade calls, by the name of the stage.
        max_calls: Maximum number of experts that are called for one request.
        logprob_experts: Experts on whose log-probabilities the cascade was trained.
        look_characters: Number of leading characters of an answer that a cascade reads; ``None``
            means all of it.
        folder: Folder of the artifact; ``None`` if it was not read from one.
        method: Name of the method, as recorded in the artifact.
    """

    def __init__(self, router: Any, sha256: str, config: EncoderConfig | None = None) -> None:
        self._router = router
        self._config = config or EncoderConfig()
        self.folder: Path | None = None
        self.method = type(getattr(router, "router_", router)).__name__
        self.sha256 = sha256
        self.digest = sha256[:16]
        self.experts: tuple[str, ...] = tuple(str(name) for name in router.experts_)
        self._inner = router.router_ if isinstance(router, TextRouter) else None
        self._frontier = self._inner if isinstance(self._inner, FrontierRouter) else None
        self._cascade = self._inner if isinstance(self._inner, CascadeRouter) else None
        self.n_experts = len(self.experts) if self._cascade is None else self._cascade.n_experts
        features = getattr(router, "answer_features_", None)
        self.look_characters = None if features is None else features.max_characters
        self.max_calls = 1 if self._cascade is None else self._cascade.max_calls
        self.looks = {
            name: self.asked(self.stage_of(name)) for name in self.experts[self.n_experts :]
        }
        self.logprob_experts = frozenset(getattr(router, "logprob_experts_", ()))
        self._outcome_model = getattr(router, "outcome_model_", None)
        self._seed = int(getattr(self._inner, "random_state", None) or 0)
        self.has_prices = self._frontier is not None
        self.own = self._own_point()
        self._pinned: dict[Target, OperatingPoint] = {}
        # A point, or the reason why there is none.
        self._points: OrderedDict[Target, OperatingPoint | str] = OrderedDict()
        self._defaults: dict[float | None, str] = {}
        self.default = self.default_at(None if self.own is None else self.own.price_weight)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        config: EncoderConfig | None = None,
        sha256: str | None = None,
    ) -> Self:
        """Read an artifact and test it on a few inputs.

        Raises:
            ArtifactError: The artifact cannot decide on texts, or its digest differs.
        """
        manifest = read_manifest(folder)
        sha256 = sha256 or str(manifest["sha256"])
        router: Any = load_router(folder, digest=sha256)
        if not isinstance(router, TextRouter) and getattr(router, "tokenizer_", None) is None:
            raise ArtifactError(
                f"decisions need a router over texts, got a {type(router).__name__}; fit one with"
                " mildroute fit."
            )
        _use_one_thread(router)
        predictor = cls(router, sha256, config)
        predictor.folder = Path(folder)
        predictor.method = str(manifest.get("selection") or predictor.method)
        _match_precision(router, predictor.probe())
        return predictor

    @cached_property
    def without_looks(self) -> Self:
        """The predictor that decides at the same targets without reading answers.

        If the router is not a cascade, this is the predictor itself.
        """
        return self._sibling(without_looks(self._router)) if self.looks else self

    def _sibling(self, router: Any) -> Self:
        """Return a predictor of another router with the same digest and encoder."""
        return type(self)(router, self.sha256, self._config)

    def probe(self) -> Any:
        """Decide on a few inputs; refuse the artifact if that fails or returns no probabilities.

        Returns:
            The dtype of the inputs' vectors.
        """
        try:
            rows = self.encode(list(_PROBES))
            predictions = [self.predict_row(row, self.own, "") for row in rows]
            if self.looks:
                self._try_looks(predictions[0].row)
                plain = self.without_looks
                plain.predict_row(predictions[0].row, plain.own, "")
        except Exception as error:
            self.close()
            raise ArtifactError(
                f"an artifact must be able to decide, got: {error}; fit it again."
            ) from error
        sums = [sum(prediction.posterior) for prediction in predictions]
        if not np.allclose(sums, 1.0, atol=1e-6):
            self.close()
            raise ArtifactError(f"posteriors must add up to 1, got {sums}; fit the router again.")
        return getattr(rows, "dtype", None)

    def _try_looks(self, row: Any) -> None:
        """Run every stage; each may only continue with earlier ones, so that a request ends."""
        stages = [] if self._cascade is None else self._cascade.stages_
        for index, stage in enumerate(stages):
            self.step(index, row, dict.fromkeys(self.asked(index), "A"), {})
            if any(then >= index for then in stage["then"]):
                raise ArtifactError(f"stage {index} must continue with earlier ones only")

    def encode(self, texts: list[str]) -> Any:
        """Return a row for each text.

        The row is its vector, or its posterior if the router reads texts itself.
        """
        if self._inner is None:
            return np.asarray(self._router.predict_proba(texts))
        return self._router.encoder_.transform(texts)

    @cached_property
    def encodes_quickly(self) -> bool:
        """Return whether encoding a short text takes less than two milliseconds."""
        seconds = []
        for number in range(5):
            began = perf_counter()
            self.encode([f"{_PROBES[1]} {number}"])
            seconds.append(perf_counter() - began)
        return min(seconds) < _QUICK_SECONDS

    def predict(self, text: str, point: OperatingPoint | None, coin_key: str) -> Prediction:
        """Return the router's view of an input at an operating point.

        Args:
            text: The input.
            point: Operating point, from :meth:`point`.
            coin_key: Seed of the coin between two vertices: the request's id, or the text itself.
        """
        (row,) = self.encode([truncate(text, self._config.max_chars)])
        return self.predict_row(row, point, coin_key)

    def predict_row(self, row: Any, point: OperatingPoint | None, coin_key: str) -> Prediction:
        """Return the router's view of an encoded input."""
        return self.predict_rows([row], point, [coin_key])[0]

    def predict_rows(
        self, rows: Sequence[Any], point: OperatingPoint | None, coin_keys: Sequence[str]
    ) -> list[Prediction]:
        """Return the router's view of encoded inputs; 16 together take as long as two or three.

        The results are those of ``TextRouter.explain_vectors``. This method is faster, because it
        creates no other objects and converts arrays to plain numbers early.

        Args:
            rows: Rows from :meth:`encode`.
            point: Operating point, from :meth:`point`.
            coin_keys: Seeds of the coins between two vertices.
        """
        vectors = _stack(rows)
        ends = self._ends(vectors, point)
        scores: list[Any] = [None] * len(rows)
        dollars: list[Any] = scores
        outside = [False] * len(rows)
        if self._outcome_model is not None:
            expected, paid = self._outcome_model.expected(vectors)
            # The model also has columns for a cascade's stages, even if they are not used.
            count = len(self.experts)
            scores = expected[:, :count].tolist()
            dollars = dollars if paid is None else paid[:, :count].tolist()
            outside = self._outcome_model.is_out_of_distribution(vectors).tolist()
        coins = (
            request_draws(coin_keys, self._seed).tolist() if len(ends) > 1 else [0.0] * len(rows)
        )
        weight = None if point is None else point.price_weight
        default = self.default_at(weight)
        return [
            Prediction(
                self.experts,
                tuple(ends[0][1][index] if len(ends) == 1 else _mean(ends, index)),
                weight,
                None if scores[index] is None else tuple(scores[index]),
                None if dollars[index] is None else tuple(dollars[index]),
                outside[index],
                self.digest,
                tuple([(chance, rank_experts(self.experts, each[index])) for chance, each in ends]),
                coins[index],
                default,
                point,
                vectors[index : index + 1] if self.looks else None,
                tuple([tuple(each[index]) for _, each in ends]) if len(ends) > 1 else (),
            )
            for index in range(len(rows))
        ]

    def _ends(
        self, vectors: Any, point: OperatingPoint | None
    ) -> list[tuple[float, list[list[float]]]]:
        """Return the probability of each vertex, and the posteriors that decide there."""
        if self._inner is None:
            return [(1.0, vectors.tolist())]
        if self._frontier is None or point is None:
            return [(1.0, self._inner.posterior_unchecked(vectors).tolist())]
        return [
            (chance, posterior.tolist())
            for chance, posterior in self._frontier.vertex_posteriors(vectors, point)
        ]

    def stage_of(self, look: str) -> int:
        """Return the index of the first stage of a cascade with this name."""
        index = self.experts.index(look) - self.n_experts
        return self._cascade.looks_[index]  # type: ignore[union-attr]

    def second_call_rate(self, look: str) -> float:
        """Return the share of held-out rows on which a stage called further experts."""
        stage = self._cascade.stages_[self.stage_of(look)]  # type: ignore[union-attr]
        return float(stage["second_call_rate"])

    def asked(self, stage: int) -> tuple[str, ...]:
        """Return the experts whose answers a stage reads."""
        asked = self._cascade.stages_[stage]["ask"]  # type: ignore[union-attr]
        return tuple([self.experts[index] for index in asked])

    def step(
        self,
        stage: int,
        row: Any,
        answers: Mapping[str, str],
        logprobs: Mapping[str, float | None],
    ) -> str | int:
        """Return the next step after a stage's answers, as the library decides it.

        Args:
            stage: Index from :meth:`stage_of` or from an earlier step.
            row: Vector of the input, from the prediction.
            answers: Text of each answer, by expert.
            logprobs: Mean log-probability of each answer's tokens, by expert; ``None`` if unknown.

        Returns:
            The expert whose answer to return, which may have to be called first, or the index of
            the stage to continue with.
        """
        names = self.experts[: self.n_experts]
        texts = [[answers[name]] if name in answers else None for name in names]
        means = [logprobs.get(name) for name in names]
        seen = self._router.see(texts, [None if value is None else [value] for value in means])
        vector = row if row.ndim == 2 else row[None, :]
        index = int(self._cascade.step(stage, vector, seen)[0])  # type: ignore[union-attr]
        return self.experts[index] if index < self.n_experts else index - self.n_experts

    def point(self, target: Target | None) -> OperatingPoint | None:
        """Return the operating point of a target, which is computed once and cached.

        Returns:
            The point; ``None`` if the router has no prices and the target is ``None``.

        Raises:
            ArgumentError: The router has no prices, or the target cannot be reached.
        """
        if target is None:
            return self.own
        result = self._cached_point(target)
        if result is None:
            result = self._resolve(target)
            self._cache_point(target, result)
        if isinstance(result, str):
            raise ArgumentError(result)
        return result

    def pin(self, target: Target) -> OperatingPoint:
        """Compute the point of a target and keep it regardless of the size of the cache.

        Presets are pinned, so that they never wait behind targets that clients make up.
        """
        if self.without_looks is not self:
            self.without_looks.pin(target)
        result = self._resolve(target)
        if isinstance(result, str):
            raise ArgumentError(result)
        self._pinned[target] = result
        return result

    def _cached_point(self, target: Target) -> OperatingPoint | str | None:
        """Return a cached point, or the reason why there is none; ``None`` if not cached."""
        pinned = self._pinned.get(target)
        if pinned is not None or target not in self._points:
            return pinned
        self._points.move_to_end(target)
        return self._points[target]

    def _cache_point(self, target: Target, result: OperatingPoint | str) -> None:
        # A price weight is not cached: it takes microseconds and would evict qualities and budgets,
        # which take milliseconds.
        if target.kind == "price weight":
            return
        self._points[target] = result
        if len(self._points) > _MAX_TARGETS:
            self._points.popitem(last=False)

    def _resolve(self, target: Target) -> OperatingPoint | str:
        """Compute the point of a target, or the reason why there is none."""
        if self._frontier is None:
            return (
                f"this router knows no prices, so it takes no {target.kind}; fit it on a table with"
                " dollars."
            )
        if target.kind == "price weight":
            return self._at(target.value)
        try:
            return operating_point(self._frontier, target)[0]
        except MildrouteError as error:
            return str(error)

    def _own_point(self) -> OperatingPoint | None:
        if self._frontier is None:
            return None
        return self._frontier.operating_point or self._at(float(self._frontier.price_weight))

    def _at(self, price_weight: float) -> OperatingPoint:
        """Return the point of a price weight without its intervals, which take milliseconds."""
        curve = self._frontier.curve  # type: ignore[union-attr]
        nearest = int(np.abs(curve.weights - min(price_weight, curve.weights[-1])).argmin())
        return replace(
            OperatingPoint.at_weight(price_weight, len(self.experts)),
            score=float(1 - curve.errors[nearest]),
            dollars_per_1000=float(1000 * curve.dollars[nearest]),
            shares=tuple(curve.shares[nearest].tolist()),
        )

    def default_at(self, price_weight: float | None) -> str:
        """Return the best single expert at a price weight."""
        expert = self._defaults.get(price_weight)
        if expert is not None:
            return expert
        index = 0
        if self._outcome_model is not None:
            index = int(self._outcome_model.best_single(price_weight or 0.0, self.n_experts))
        expert = self.experts[index]
        if len(self._defaults) < _MAX_TARGETS:
            self._defaults[price_weight] = expert
        return expert

    @property
    def reference(self) -> DriftReference | None:
        """The router's choices on held-out rows; ``None`` if the artifact lacks them."""
        model = self._outcome_model
        if model is None or model.shares_ is None or model.confidence_counts_ is None:
            return None
        counts = model.confidence_counts_
        return DriftReference(
            model.shares_.tolist(),
            counts.tolist(),
            float(counts.sum()),
            None if self.own is None else self.own.vertices,
        )

    def close(self) -> None:
        """Release the resources of the predictor."""


def _mean(ends: Sequence[tuple[float, list[list[float]]]], index: int) -> list[float]:
    (first, one), (second, other) = ends
    return [first * a + second * b for a, b in zip(one[index], other[index], strict=True)]


def _stack(rows: Sequence[Any]) -> Any:
    """Return a matrix of rows, dense or sparse."""
    if len(rows) == 1:
        return rows[0] if rows[0].ndim == 2 else rows[0][None, :]
    return np.stack(rows) if rows[0].ndim == 1 else sparse.vstack(rows, format="csr")


def _match_precision(router: Any, precision: Any) -> None:
    """Store topics in the precision of the vectors.

    Otherwise each call converts them, which takes 14 of the 128 microseconds of a decision.
    """
    if not isinstance(router, TextRouter):
        return
    for part in getattr(router.router_, "routers_", (router.router_,)):
        topics = getattr(part, "topics_", None)
        if isinstance(topics, TopicFeatures) and precision == np.float32:
            topics.weights_ = topics.weights_.astype(np.float32)


def _use_one_thread(estimator: Any) -> None:
    """Limit each call to one thread, because the queue calls the router from its own threads."""
    if "threads" in estimator.get_params(deep=False):
        estimator.set_params(threads=1)
    inner = getattr(estimator, "encoder_", None)
    for part in getattr(estimator, "encoders_", [] if inner is None else [inner]):
        _use_one_thread(part)
