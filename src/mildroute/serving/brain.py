"""A stored router that gives its opinion on inputs while requests wait."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from mildroute.encoders.text_router import TextRouter
from mildroute.errors import ArgumentError, ArtifactError
from mildroute.routers.artifact import load_router, read_manifest
from mildroute.routers.frontier import FrontierRouter
from mildroute.serving.drift import Reference
from mildroute.serving.opinion import Opinion
from mildroute.serving.settings import EncoderRules
from mildroute.serving.vectors import VectorQueue

__all__ = ["Brain"]

_PROBES = ("", "What is 2 + 2?", "\U0001f600 " * 50)
_WEIGHTS_KEPT = 256


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
        knows_prices: Whether it can decide at any price weight.
        queue: Where inputs wait for their vectors.

    Example:
        >>> import asyncio
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> async def ask():
        ...     brain = Brain(router, "ab12", EncoderRules(budget=10.0))
        ...     opinion = await brain.opinion("sing a hymn", None)
        ...     brain.close()
        ...     return opinion.ranking[0]
        >>> asyncio.run(ask())
        'expert_1'
    """

    def __init__(self, router: Any, digest: str, rules: EncoderRules) -> None:
        self._router, self.digest = router, digest
        self.experts: tuple[str, ...] = tuple(str(name) for name in router.experts_)
        self._inner = router.router_ if isinstance(router, TextRouter) else None
        self._outlook = getattr(router, "outlook_", None)
        self.knows_prices = isinstance(self._inner, FrontierRouter)
        self._mixtures: dict[float, list[tuple[Any, float]]] = {}
        self.default = self.experts[self._best_single()]
        self.queue = VectorQueue(self._encoded, rules)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], rules: EncoderRules) -> Brain:
        """Read an artifact and try it on a few inputs; an ArtifactError says why it cannot serve."""
        manifest = read_manifest(folder)
        router: Any = load_router(folder)
        if not isinstance(router, TextRouter) and getattr(router, "tokenizer_", None) is None:
            raise ArtifactError(f"a gateway needs a router over texts, got a {type(router).__name__}; fit one with mildroute fit.")
        _take_one_thread(router)
        brain = cls(router, str(manifest["weights"]["sha256"])[:16], rules)
        brain.probe()
        return brain

    def probe(self) -> None:
        """Decide on a few inputs and refuse the artifact if that fails or gives no probabilities."""
        try:
            opinions = [self._opinion(row, None) for row in self._encoded(list(_PROBES))]
        except Exception as broken:
            self.close()
            raise ArtifactError(f"an artifact must be able to decide, got: {broken}; fit it again.") from broken
        sums = [sum(opinion.posterior) for opinion in opinions]
        if not np.allclose(sums, 1.0, atol=1e-6):
            self.close()
            raise ArtifactError(f"posteriors must add up to 1, got {sums}; fit the router again.")

    async def opinion(self, text: str, price_weight: float | None) -> Opinion | None:
        """What the router thinks of an input at a price weight; none if it could not be had in time."""
        row = await self.queue.row(text)
        return None if row is None else self._opinion(row, price_weight)

    async def opinions(self, texts: Sequence[str], price_weight: float | None) -> list[Opinion]:
        """Opinions on many inputs, however long it takes."""
        return [self._opinion(row, price_weight) for row in await self.queue.rows(texts)]

    def check_price_weight(self, price_weight: float | None) -> None:
        """Raise an ArgumentError if the router cannot decide at this price weight."""
        if price_weight is None:
            return
        if not self.knows_prices:
            raise ArgumentError("this router knows no prices, so it takes no price weight; fit it on a table with dollars.")
        if not (np.isfinite(price_weight) and price_weight >= 0):
            raise ArgumentError(f"a price weight must be finite and not negative, got {price_weight}.")

    @property
    def reference(self) -> Reference | None:
        """What held-out decisions looked like when the router was fitted, or none where the artifact does not know."""
        found = self._outlook
        if found is None or found.shares_ is None or found.confidence_counts_ is None:
            return None
        counts = found.confidence_counts_
        return Reference(found.shares_.tolist(), counts.tolist(), float(counts.sum()), self._weight(None))

    def close(self) -> None:
        """Let the threads end."""
        self.queue.close()

    def _encoded(self, texts: list[str]) -> Any:
        """A row for each text: its vector, or its posterior where a router reads texts itself."""
        if self._inner is None:
            return np.asarray(self._router.predict_proba(texts))
        return self._router.encoder_.transform(texts)

    def _opinion(self, row: Any, price_weight: float | None) -> Opinion:
        vector = row if row.ndim == 2 else row[None, :]
        posterior = self._posterior(vector, price_weight)
        scores, dollars, is_far = None, None, False
        if self._outlook is not None:
            expected, paid = self._outlook.expected(vector)
            scores = tuple(expected[0].tolist())
            dollars = None if paid is None else tuple(paid[0].tolist())
            is_far = bool(self._outlook.is_far(vector)[0])
        return Opinion(self.experts, tuple(posterior.tolist()), self._weight(price_weight), scores, dollars, is_far, self.digest)

    def _posterior(self, vector: Any, price_weight: float | None) -> Any:
        if self._inner is None:
            return vector[0]
        if not self.knows_prices:
            return self._inner.posterior_unchecked(vector)[0]
        weight = self._weight(price_weight) or 0.0
        mixture = self._mixtures.get(weight)
        if mixture is None:
            mixture = self._inner.mixture(weight)
            if len(self._mixtures) < _WEIGHTS_KEPT:
                self._mixtures[weight] = mixture
        return sum(part * router.posterior_unchecked(vector)[0] for router, part in mixture)

    def _weight(self, price_weight: float | None) -> float | None:
        if not self.knows_prices:
            return None
        return float(self._inner.price_weight if price_weight is None else price_weight)  # type: ignore[union-attr]

    def _best_single(self) -> int:
        return 0 if self._outlook is None else int(self._outlook.best_single(self._weight(None) or 0.0))


def _take_one_thread(estimator: Any) -> None:
    """One thread a run: requests are many, and the queue has threads of its own."""
    if "threads" in estimator.get_params(deep=False):
        estimator.set_params(threads=1)
    inner = getattr(estimator, "encoder_", None)
    for part in getattr(estimator, "encoders_", [] if inner is None else [inner]):
        _take_one_thread(part)
