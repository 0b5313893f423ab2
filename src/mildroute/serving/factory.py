"""A gateway from an artifact, a file of experts and settings."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from mildroute._fit import Target
from mildroute.experts.config import ExpertFile, read_experts
from mildroute.serving.auth.keys import KeyStore
from mildroute.serving.auth.limits import UsageLimiter, start_of_day
from mildroute.serving.config import GatewayConfig, target_of_setting
from mildroute.serving.observability.decision_log import DecisionLog, spent_since
from mildroute.serving.observability.feedback import FeedbackLog
from mildroute.serving.observability.metrics import GatewayMetrics
from mildroute.serving.observability.tracing import Tracing, otlp_provider
from mildroute.serving.routing.drift import Drift
from mildroute.serving.routing.predictor import Predictor
from mildroute.serving.routing.reload import PredictorManager
from mildroute.serving.services import GatewayServices, NullSink

__all__ = ["load_gateway"]


_LOG = logging.getLogger(__name__)


def load_gateway(router: str | Path, experts: str | Path, settings: GatewayConfig, *, traces: bool = False) -> GatewayServices:
    """Load everything that a gateway needs; what is wrong with any of it is said here, before a port is opened.

    Args:
        router: Folder of the artifact.
        experts: The file of experts.
        settings: How the gateway behaves.
        traces: Whether spans are sent to the collector that OpenTelemetry's environment variables name.

    Returns:
        The parts of a gateway; close their ``manager`` in the end.

    Example:
        >>> load_gateway("no such folder", "experts.yaml", GatewayConfig())
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: experts.yaml must be a readable file, got: No such file or directory...
    """
    file = read_experts(experts)
    if settings.policy.default is not None:
        file.expert(settings.policy.default)
    metrics = GatewayMetrics()
    names = frozenset(spec.name for spec in file.experts)

    def changed(predictor: Predictor) -> None:
        unknown = [name for name in predictor.experts if name not in names]
        if unknown:
            _LOG.warning("%s lacks %s, whom the router knows: they are never asked", file.path.name, ", ".join(unknown))
        predictor.queue.batches = metrics.batch
        metrics.watch(queue=lambda: manager.predictor.queue.waiting)
        metrics.loaded(
            predictor.digest,
            sorted(names),
            Drift(predictor.experts, predictor.reference),
            baseline=settings.baseline or _most_expensive(file),
        )

    manager = PredictorManager(router, settings.encoder, names, changed, _targets(settings))
    manager.load()
    shadow = None if settings.shadow is None else PredictorManager(settings.shadow, settings.encoder, names)
    if shadow is not None:
        shadow.load()
    folder = settings.log.folder
    key_store = KeyStore() if settings.keys is None else KeyStore.read(settings.keys)
    usage_limiter = UsageLimiter({} if folder is None else spent_since(folder, start_of_day(time.time())))
    log = None if folder is None else DecisionLog(settings.log)
    feedback = None if folder is None else FeedbackLog(settings.log)
    if log is not None and feedback is not None:
        metrics.watch(lost=lambda: {"decisions": log.lost, "feedback": feedback.lost})
    return GatewayServices(
        settings,
        file,
        manager,
        key_store=key_store,
        usage_limiter=usage_limiter,
        log=log or NullSink(),
        feedback=feedback,
        metrics=metrics,
        tracing=Tracing(otlp_provider() if traces else None),
        shadow=shadow,
    )


def _most_expensive(file: ExpertFile) -> str:
    """Name of the expert of the highest list price, or empty if nobody has one."""
    prices = {spec.name: spec.price.input + spec.price.output for spec in file.experts if spec.price is not None}
    return max(prices, key=lambda name: prices[name], default="")


def _targets(settings: GatewayConfig) -> dict[str, Target]:
    """What presets and routes ask for, by name."""
    routes = {f"route {name}": value for name, value in settings.policy.routes.items()}
    presets = {f"preset {name}": value for name, value in settings.policy.presets.items()}
    return {name: target_of_setting(value) for name, value in (routes | presets).items() if value is not None}
