"""The services that a gateway is built from."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mildroute._fit import Target
from mildroute.experts.config import ExpertFile
from mildroute.routers.operating_point import OperatingPoint
from mildroute.serving.auth.keys import KeyStore
from mildroute.serving.auth.limits import UsageLimiter
from mildroute.serving.config import GatewayConfig
from mildroute.serving.observability.decision_log import DecisionRecord
from mildroute.serving.observability.tracing import Tracing
from mildroute.serving.routing.policy import Decision
from mildroute.serving.routing.predictor import Prediction

__all__ = ["FeedbackSink", "GatewayServices", "MetricsProtocol", "NullSink", "PredictorHolder", "PredictorProtocol", "RecordSink"]


class PredictorProtocol(Protocol):
    """A router that gives opinions; :class:`~mildroute.serving.routing.predictor.Predictor` is one."""

    digest: str
    experts: tuple[str, ...]

    def default_at(self, price_weight: float | None) -> str:
        """Who answers what the router cannot judge, at a price weight."""

    async def point(self, target: Target | None) -> OperatingPoint | None:
        """Where to decide, none where it knows no prices; an ArgumentError if it cannot, a TooManyTargetsError if it cannot now."""

    async def predict(self, text: str, point: OperatingPoint | None, request_id: str) -> Prediction | None:
        """In time, or none."""

    async def predict_batch(self, texts: Sequence[str], point: OperatingPoint | None, request_ids: Sequence[str]) -> list[Prediction]:
        """However long it takes."""


class PredictorHolder(Protocol):
    """Holds a router and replaces it; :class:`~mildroute.serving.routing.reload.PredictorManager` is one."""

    @property
    def predictor(self) -> PredictorProtocol:
        """The one in use; an ArtifactError if there is none."""

    async def reload(self, folder: Any = None) -> str:
        """Replace it; an ArtifactError if the new one is bad."""

    async def try_reload(self) -> bool:
        """Replace it; false, and a line in the log, if the new one is bad."""

    async def watch(self, seconds: float) -> None:
        """Replace it whenever its folder has changed."""

    def close(self) -> None:
        """End."""


class RecordSink(Protocol):
    """Takes records; :class:`~mildroute.serving.observability.decision_log.DecisionLog` is one."""

    def write(self, record: DecisionRecord) -> None:
        """Write one down."""

    def close(self) -> None:
        """End."""


class FeedbackSink(Protocol):
    """Takes feedback; :class:`~mildroute.serving.observability.feedback.FeedbackLog` is one."""

    def write(self, decision_id: Any, score: Any, client: str, detail: Any = None) -> bool:
        """Write one down; an ArgumentError for what a client got wrong, false if it could not be kept."""

    def close(self) -> None:
        """End."""


class MetricsProtocol(Protocol):
    """Counts what happens; :class:`~mildroute.serving.observability.metrics.GatewayMetrics` is one."""

    def decided(self, decision: Decision, prediction: Prediction | None, seconds: float) -> None:
        """A decision."""

    def answered(self, record: DecisionRecord, added: float | None = None) -> None:
        """The end of a request."""

    def fallback(self, expert: str, why: str) -> None:
        """An expert that failed."""

    def refused(self, status: int, code: str | None) -> None:
        """A request that was refused before a decision."""

    def watch(self, *, in_flight: Callable[[], float] | None = None, circuits: Callable[[], Mapping[str, str]] | None = None) -> None:
        """Where to ask for the requests under way and the states of circuits."""

    def render(self) -> tuple[bytes, str]:
        """All figures, and the type of that content."""


class NullSink:
    """Counts nothing and keeps nothing: for a gateway without metrics or without a log.

    Example:
        >>> NullSink().render()
        (b'', 'text/plain; version=0.0.4; charset=utf-8')
    """

    def decided(self, decision: Decision, prediction: Prediction | None, seconds: float) -> None:
        """A decision."""

    def answered(self, record: DecisionRecord, added: float | None = None) -> None:
        """The end of a request."""

    def fallback(self, expert: str, why: str) -> None:
        """An expert that failed."""

    def refused(self, status: int, code: str | None) -> None:
        """A request that was refused before a decision."""

    def watch(self, *, in_flight: Callable[[], float] | None = None, circuits: Callable[[], Mapping[str, str]] | None = None) -> None:
        """Where to ask for the requests under way and the states of circuits."""

    def render(self) -> tuple[bytes, str]:
        """No figures."""
        return b"", "text/plain; version=0.0.4; charset=utf-8"

    def write(self, record: DecisionRecord) -> None:
        """Write nothing down."""

    def close(self) -> None:
        """End."""


def _new_id() -> str:
    """A name that no other decision has."""
    return os.urandom(16).hex()


@dataclass(frozen=True)
class GatewayServices:
    """All that :func:`~mildroute.serving.app.create_app` needs; who builds the services closes the manager.

    Args:
        settings: How the gateway behaves.
        experts: Who can be asked.
        manager: Has the router.
        key_store: Who may ask; everyone by default.
        usage_limiter: How much each may ask.
        log: Where decisions are written down, and nowhere by default.
        feedback: Where scores are written down; by default the gateway takes none.
        metrics: Who counts; nobody by default.
        tracing: Who traces; nobody by default.
        shadow: Has a second router, whose choice is only written down.
        clock: Seconds that only grow.
        now: Seconds since 1970.
        draw: A number from 0 to just below 1, evenly spread.
        new_id: A name for a decision that no other one has.

    Example:
        >>> from pathlib import Path
        >>> GatewayServices(GatewayConfig(), ExpertFile(Path("experts.yaml"), ()), manager=None).key_store
        KeyStore(anyone)
    """

    settings: GatewayConfig
    experts: ExpertFile
    manager: PredictorHolder
    key_store: KeyStore = field(default_factory=KeyStore)
    usage_limiter: UsageLimiter = field(default_factory=UsageLimiter)
    log: RecordSink = field(default_factory=NullSink)
    feedback: FeedbackSink | None = None
    metrics: MetricsProtocol = field(default_factory=NullSink)
    tracing: Tracing = field(default_factory=Tracing)
    shadow: PredictorHolder | None = None
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    draw: Callable[[], float] = random.random
    new_id: Callable[[], str] = _new_id
