"""A stored router that gives its opinion on inputs while requests wait."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from mildroute.encoders.text_router import TextRouter
from mildroute.errors import ArgumentError, ArtifactError, MildrouteError
from mildroute.evaluation.fitting import Target, operating_point
from mildroute.routers.artifact import load_router, read_manifest
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.operating import OperatingPoint
from mildroute.routers.row_hash import coins
from mildroute.routers.topics import TopicFeatures
from mildroute.serving.drift import Reference
from mildroute.serving.opinion import Opinion
from mildroute.serving.settings import EncoderRules
from mildroute.serving.targets import words_of
from mildroute.serving.vectors import VectorQueue

__all__ = ["Brain", "BusyError"]

_PROBES = ("", "What is 2 + 2?", "\U0001f600 " * 50)
_TARGETS_KEPT = 256
"""Targets of clients whose points are remembered; the one that was not asked for longest goes first."""
_TARGETS_WAITING = 8
"""Targets that may wait for their points: each takes 10 to 20 ms of one thread, and a client can make up as many as it likes."""


class BusyError(MildrouteError):
    """Too many targets that nobody has asked for before came at the same time.

    Example:
        >>> issubclass(BusyError, MildrouteError)
        True
    """


class Brain:
    """One artifact, loaded and tried.

    Args:
        router: A fitted router over texts.
        digest: Name of the artifact: the beginning of its weights' sha256.
        rules: How inputs become vectors.

    Attributes:
        experts: Names, in the router's order.
        default: For inputs that the router cannot judge: the best single expert of the training data, or the first expert where the
            artifact does not know it.
        knows_prices: Whether it can decide at any price weight, quality or budget.
        own: The operating point of the artifact, or none where it knows no prices.
        queue: Where inputs wait for their vectors.

    Example:
        >>> import asyncio
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> async def ask():
        ...     brain = Brain(router, "ab12", EncoderRules(budget=10.0))
        ...     opinion = await brain.opinion("sing a hymn", await brain.point(None), "request-1")
        ...     brain.close()
        ...     return opinion.ranking[0]
        >>> asyncio.run(ask())
        'expert_1'
    """

    def __init__(self, router: Any, digest: str, rules: EncoderRules) -> None:
        self._router, self.digest = router, digest
        self.experts: tuple[str, ...] = tuple(str(name) for name in router.experts_)
        self._inner = router.router_ if isinstance(router, TextRouter) else None
        self._frontier = self._inner if isinstance(self._inner, FrontierRouter) else None
        self._outlook = getattr(router, "outlook_", None)
        self._seed = int(getattr(self._inner, "random_state", None) or 0)
        self.knows_prices = self._frontier is not None
        self.own = self._own_point()
        self._pinned: dict[Target, OperatingPoint] = {}
        # A point, or why there is none.
        self._points: OrderedDict[Target, OperatingPoint | str] = OrderedDict()
        self._waiting: dict[Target, asyncio.Future[OperatingPoint | str]] = {}
        self._resolver = ThreadPoolExecutor(1, thread_name_prefix="mildroute-targets")
        self._defaults: dict[float | None, str] = {}
        self.default = self._default_at(None if self.own is None else self.own.price_weight)
        self.queue = VectorQueue(self._encoded, rules)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], rules: EncoderRules) -> Brain:
        """Read an artifact and try it on a few inputs; an ArtifactError says why it cannot serve."""
        manifest = read_manifest(folder)
        router: Any = load_router(folder)
        if not isinstance(router, TextRouter) and getattr(router, "tokenizer_", None) is None:
            raise ArtifactError(f"a gateway needs a router over texts, got a {type(router).__name__}; fit one with mildroute fit.")
        _take_one_thread(router)
        _take_precision(router)
        brain = cls(router, str(manifest["weights"]["sha256"])[:16], rules)
        brain.probe()
        return brain

    def probe(self) -> None:
        """Decide on a few inputs and refuse the artifact if that fails or gives no probabilities."""
        try:
            opinions = [self._opinion(row, self.own, "") for row in self._encoded(list(_PROBES))]
        except Exception as broken:
            self.close()
            raise ArtifactError(f"an artifact must be able to decide, got: {broken}; fit it again.") from broken
        sums = [sum(opinion.posterior) for opinion in opinions]
        if not np.allclose(sums, 1.0, atol=1e-6):
            self.close()
            raise ArtifactError(f"posteriors must add up to 1, got {sums}; fit the router again.")

    async def opinion(self, text: str, point: OperatingPoint | None, request_id: str) -> Opinion | None:
        """What the router thinks of an input at an operating point; none if it could not be had in time.

        Args:
            text: The input.
            point: From :meth:`point`.
            request_id: Seeds the coin between two vertices: the client's id of the request, or the text itself.
        """
        row = await self.queue.row(text)
        return None if row is None else self._opinion(row, point, request_id)

    async def opinions(self, texts: Sequence[str], point: OperatingPoint | None, request_ids: Sequence[str]) -> list[Opinion]:
        """Opinions on many inputs, however long it takes."""
        rows = await self.queue.rows(texts)
        return [self._opinion(row, point, request_id) for row, request_id in zip(rows, request_ids, strict=True)]

    async def point(self, target: Target | None) -> OperatingPoint | None:
        """The operating point that a target asks for, found once and remembered; none where the router knows no prices.

        Raises:
            ArgumentError: The router knows no prices, or the target cannot be reached.
            BusyError: Too many targets that nobody has asked for before wait already.
        """
        if target is None:
            return self.own
        found: OperatingPoint | str | None = self._pinned.get(target) or self._points.get(target)
        if found is None:
            found = await self._found(target)
        elif target in self._points:
            self._points.move_to_end(target)
        if isinstance(found, str):
            raise ArgumentError(found)
        return found

    def pin(self, target: Target) -> OperatingPoint:
        """Find the point of a target and never forget it: for presets, which must not wait behind what clients make up."""
        found = self._resolved(target)
        if isinstance(found, str):
            raise ArgumentError(found)
        self._pinned[target] = found
        return found

    @property
    def reference(self) -> Reference | None:
        """What held-out decisions looked like when the router was fitted, or none where the artifact does not know."""
        found = self._outlook
        if found is None or found.shares_ is None or found.confidence_counts_ is None:
            return None
        counts = found.confidence_counts_
        return Reference(found.shares_.tolist(), counts.tolist(), float(counts.sum()), None if self.own is None else self.own.vertices)

    def close(self) -> None:
        """Let the threads end."""
        self.queue.close()
        self._resolver.shutdown(wait=False, cancel_futures=True)

    def _encoded(self, texts: list[str]) -> Any:
        """A row for each text: its vector, or its posterior where a router reads texts itself."""
        if self._inner is None:
            return np.asarray(self._router.predict_proba(texts))
        return self._router.encoder_.transform(texts)

    def _opinion(self, row: Any, point: OperatingPoint | None, request_id: str) -> Opinion:
        """The same as ``TextRouter.explain_vectors`` at one row, and a quarter faster: no objects but this one, and plain numbers early."""
        vector = row if row.ndim == 2 else row[None, :]
        ends = self._ends(vector, point)
        vertices = tuple([(chance, self._order(posterior)) for chance, posterior in ends])
        posterior = ends[0][1] if len(ends) == 1 else _mean(ends)
        scores, dollars, is_far = None, None, False
        if self._outlook is not None:
            expected, paid = self._outlook.expected(vector)
            scores = tuple(expected[0].tolist())
            dollars = None if paid is None else tuple(paid[0].tolist())
            is_far = bool(self._outlook.is_far(vector)[0])
        coin = float(coins((request_id,), self._seed)[0]) if len(ends) > 1 else 0.0
        weight = None if point is None else point.price_weight
        return Opinion(
            self.experts,
            tuple(posterior),
            weight,
            scores,
            dollars,
            is_far,
            self.digest,
            vertices,
            coin,
            self._default_at(weight),
            point,
        )

    def _ends(self, vector: Any, point: OperatingPoint | None) -> list[tuple[float, list[float]]]:
        """Probability of each vertex, and the posterior that decides there."""
        if self._inner is None:
            return [(1.0, vector[0].tolist())]
        if self._frontier is None or point is None:
            return [(1.0, self._inner.posterior_unchecked(vector)[0].tolist())]
        return [(chance, posterior[0].tolist()) for chance, posterior in self._frontier.vertex_posteriors(vector, point)]

    def _order(self, posterior: list[float]) -> tuple[str, ...]:
        """Names from best to worst; of equals the last, as everywhere in the library."""
        lowest = [-value for value in posterior]
        names = self.experts
        return tuple([names[place] for place in sorted(range(len(lowest) - 1, -1, -1), key=lowest.__getitem__)])

    def _own_point(self) -> OperatingPoint | None:
        if self._frontier is None:
            return None
        return self._frontier.operating_point or self._at(float(self._frontier.price_weight))

    def _at(self, price_weight: float) -> OperatingPoint:
        """The point of a price weight without its intervals, which take milliseconds and nobody sees here."""
        curve = self._frontier.curve  # type: ignore[union-attr]
        nearest = int(np.abs(curve.weights - price_weight).argmin())
        return replace(
            OperatingPoint.at_weight(price_weight, len(self.experts)),
            score=float(1 - curve.errors[nearest]),
            dollars_per_1000=float(1000 * curve.dollars[nearest]),
            shares=tuple(curve.shares[nearest].tolist()),
        )

    def _resolved(self, target: Target) -> OperatingPoint | str:
        """The point, or why there is none."""
        if self._frontier is None:
            return f"this router knows no prices, so it takes no {target.kind}; fit it on a table with dollars."
        if target.kind == "price weight":
            return self._at(target.value)
        try:
            return operating_point(self._frontier, target)[0]
        except MildrouteError as error:
            return str(error)

    async def _found(self, target: Target) -> OperatingPoint | str:
        """The same, off the event loop and one at a time where it takes long."""
        if self._frontier is None or target.kind == "price weight":
            return self._kept(target, self._resolved(target))
        future = self._waiting.get(target)
        if future is None:
            if len(self._waiting) >= _TARGETS_WAITING:
                raise BusyError(
                    f"at most {_TARGETS_WAITING} new targets are looked up at a time, got {words_of(target)} besides; come again, or "
                    "ask for a preset."
                )
            future = asyncio.get_running_loop().run_in_executor(self._resolver, self._resolved, target)
            self._waiting[target] = future
            future.add_done_callback(lambda done: self._deliver(target, done))
        # Whoever leaves must not take the point from the others who wait for it.
        return await asyncio.shield(future)

    def _deliver(self, target: Target, done: asyncio.Future[OperatingPoint | str]) -> None:
        del self._waiting[target]
        if not done.cancelled() and done.exception() is None:
            self._kept(target, done.result())

    def _kept(self, target: Target, found: OperatingPoint | str) -> OperatingPoint | str:
        self._points[target] = found
        if len(self._points) > _TARGETS_KEPT:
            self._points.popitem(last=False)
        return found

    def _default_at(self, price_weight: float | None) -> str:
        """The best single expert at a price weight."""
        found = self._defaults.get(price_weight)
        if found is None:
            found = self.experts[0 if self._outlook is None else int(self._outlook.best_single(price_weight or 0.0))]
            if len(self._defaults) < _TARGETS_KEPT:
                self._defaults[price_weight] = found
        return found


def _mean(ends: list[tuple[float, list[float]]]) -> list[float]:
    (first, one), (second, other) = ends
    return [first * a + second * b for a, b in zip(one, other, strict=True)]


def _take_precision(router: Any) -> None:
    """Topics in the precision of the vectors: they are converted for each call otherwise, 14 of 128 microseconds of a decision."""
    if not isinstance(router, TextRouter):
        return
    precision = getattr(router.encoder_.transform([""]), "dtype", None)
    for part in getattr(router.router_, "routers_", (router.router_,)):
        topics = getattr(part, "topics_", None)
        if isinstance(topics, TopicFeatures) and precision == np.float32:
            topics.weights_ = topics.weights_.astype(np.float32)


def _take_one_thread(estimator: Any) -> None:
    """One thread a run: requests are many, and the queue has threads of its own."""
    if "threads" in estimator.get_params(deep=False):
        estimator.set_params(threads=1)
    inner = getattr(estimator, "encoder_", None)
    for part in getattr(estimator, "encoders_", [] if inner is None else [inner]):
        _take_one_thread(part)
