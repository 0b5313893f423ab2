"""A router that thinks what it is told, and whoever holds it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mildroute import Target
from mildroute.decision.log import DecisionRecord
from mildroute.decision.prediction import Prediction
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.experts.config import ExpertFile, ExpertSpec
from mildroute.gateway.upstream.pool import CALLABLE_KINDS
from mildroute.routers.frontier.operating_point import OperatingPoint


class FakePredictor:
    """Ranks experts in the order in which they are given, or as a function of the text says."""

    def __init__(
        self,
        *experts: str,
        rank: Callable[[str], Sequence[str]] | None = None,
        has_prices: bool = True,
    ) -> None:
        self.experts, self.default, self.digest = experts, experts[-1], "fake"
        self.looks: dict[str, tuple[str, ...]] = {}
        self.look_characters = None
        self.without_looks = self
        self.logprob_experts: frozenset[str] = frozenset()
        self.n_experts, self.max_calls = len(experts), 1
        self.folder: Path | None = None
        self.method, self.own = "FakeRouter", None
        self._rank, self._knows_prices = rank, has_prices
        self.is_late, self.seconds = False, 0.0
        self.weights: list[float | None] = []
        self.targets: list[Target | None] = []
        self.request_ids: list[str] = []

    def default_at(self, _price_weight: float | None) -> str:
        return self.default

    async def apoint(self, target: Target | None) -> OperatingPoint | None:
        self.targets.append(target)
        if target is not None and not self._knows_prices:
            raise ArgumentError("this router knows no prices.")
        return None if target is None else OperatingPoint.at_weight(target.value, len(self.experts))

    async def apredict(
        self, text: str, point: OperatingPoint | None, request_id: str
    ) -> Prediction | None:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return None if self.is_late else self._predict_row(text, point, request_id)

    async def apredict_batch(
        self, texts: Sequence[str], point: OperatingPoint | None, request_ids: Sequence[str]
    ) -> list[Prediction]:
        return [
            self._predict_row(text, point, request_id)
            for text, request_id in zip(texts, request_ids, strict=True)
        ]

    def _predict_row(self, text: str, point: OperatingPoint | None, request_id: str) -> Prediction:
        price_weight = None if point is None else point.price_weight
        self.weights.append(price_weight)
        self.request_ids.append(request_id)
        order = list(self.experts if self._rank is None else self._rank(text))
        whole = sum(range(1, len(order) + 1))
        posterior = tuple((len(order) - order.index(name)) / whole for name in self.experts)
        scores, dollars = tuple(0.5 for _ in order), tuple(0.25 for _ in order)
        return Prediction(
            self.experts, posterior, price_weight, scores, dollars, router=self.digest, point=point
        )


class FakeManager:
    def __init__(self, predictor: FakePredictor | None) -> None:
        self.predictor, self.next_digest = predictor, "fresh"

    async def change_experts(self, names: frozenset[str], install: Callable[[], None]) -> None:  # noqa: ARG002
        install()

    async def watch(self, seconds: float | None = None) -> None: ...

    def close(self) -> None: ...

    async def reload(self, folder: Any = None) -> str:  # noqa: ARG002
        if not self.next_digest:
            raise ArtifactError("router.json must have schema 1.")
        if self.predictor is not None:
            self.predictor.digest = self.next_digest
        return self.next_digest


class KeptLog:
    """A log in memory."""

    def __init__(self) -> None:
        self.records: list[DecisionRecord] = []

    def write(self, record: DecisionRecord) -> None:
        self.records.append(record)

    def close(self) -> None: ...


def write_experts(path: Path, **urls: str | dict[str, Any]) -> None:
    """The same experts as a file."""
    specs = experts_at(**urls).experts
    experts = {spec.name: {"kind": spec.kind, **spec.settings} for spec in specs}
    path.write_text(json.dumps({"experts": experts}))


def experts_at(**urls: str | dict[str, Any]) -> ExpertFile:
    """Experts whose models are called ``<name>-model``.

    A mapping adds settings to an address under ``base_url``.
    """
    specs = []
    for name, given in urls.items():
        settings = {"base_url": given} if isinstance(given, str) else dict(given)
        kind = settings.pop("kind", "openai")
        if kind in CALLABLE_KINDS:
            settings.setdefault("model", f"{name}-model")
        specs.append(ExpertSpec(name, kind, settings))
    return ExpertFile(Path("experts.yaml"), tuple(specs))
