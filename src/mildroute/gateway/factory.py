"""Loading of a gateway's services from an artifact, experts.yaml and a configuration."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from mildroute._files import without_credentials
from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.decision.drift import Drift
from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog, dollars_of_today
from mildroute.decision.reload import PredictorManager
from mildroute.exceptions import ArtifactError
from mildroute.experts.config import ExpertFile, read_experts
from mildroute.gateway.app import GatewayServices
from mildroute.gateway.config import GatewayConfig, target_from_setting
from mildroute.gateway.keys import KeyStore
from mildroute.gateway.limits.base import Limits
from mildroute.gateway.limits.local import LocalLimits
from mildroute.gateway.limits.redis import RedisLimits
from mildroute.gateway.observability.logs import log_event
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.observability.tracing import Tracing, otlp_provider
from mildroute.gateway.sampling.loading import load_sampler
from mildroute.gateway.upstream.pool import CALLABLE_KINDS
from mildroute.routers.frontier.target import Target

__all__ = ["load_gateway"]

_LOG = logging.getLogger(__name__)


def load_gateway(
    router: str | Path | None,
    experts: str | Path,
    config: GatewayConfig,
    *,
    traces: bool = False,
) -> GatewayServices:
    """Load everything that a gateway needs.

    Invalid input raises an error here, before a port is opened.

    Args:
        router: Folder or URL of the artifact. While it does not exist, requests go to the default
            expert.
        experts: Path of ``experts.yaml``.
        config: The gateway's configuration.
        traces: Whether to send spans to the collector that OpenTelemetry's environment variables
            name.

    Returns:
        The services of a gateway; the caller closes them.

    Example:
        >>> load_gateway("no such folder", "experts.yaml", GatewayConfig())
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: experts.yaml must be a readable file, got: ...
    """
    file = read_experts(experts)
    if config.routing.default is not None:
        file.expert(config.routing.default)
    metrics = GatewayMetrics()
    names = frozenset(spec.name for spec in file.experts)
    manager = _manager(router, config, names, metrics)
    if manager.load() is None:
        _announce_passthrough(config, file, router)
    if not any(spec.kind in CALLABLE_KINDS for spec in file.experts):
        log_event(_LOG, logging.WARNING, "no expert can be called: only /v1/route works")
    sampler = load_sampler(config, file, metrics)
    metrics.watch(queue=lambda: manager.waiting)
    shadow = _shadow(config, names)
    folder = config.log.folder
    key_store = KeyStore() if config.keys is None else KeyStore.read(config.keys)
    limits = _limits(config, key_store, metrics)
    log = None if folder is None else DecisionLog(config.log)
    feedback = None if folder is None else FeedbackLog(config.log)
    logs = {
        "decisions": log,
        "feedback": feedback,
        "samples": None if sampler is None else sampler.log,
    }
    metrics.watch(lost=lambda: {name: each.lost for name, each in logs.items() if each is not None})
    return GatewayServices(
        config,
        file,
        manager,
        key_store=key_store,
        limits=limits,
        log=log,
        feedback=feedback,
        metrics=metrics,
        tracing=Tracing(otlp_provider() if traces else None),
        shadow=shadow,
        sampler=sampler,
    )


def _manager(
    router: str | Path | None,
    config: GatewayConfig,
    names: frozenset[str],
    metrics: GatewayMetrics,
) -> PredictorManager:
    """Return the manager of the router that decides."""

    def on_change(predictor: AsyncPredictor) -> None:
        metrics.set_router(predictor.digest, Drift(predictor.experts, predictor.reference))

    return PredictorManager(
        router,
        config.encoder,
        names,
        on_change,
        _targets(config),
        lambda is_loaded: metrics.record_reload("router", is_loaded=is_loaded),
    )


def _shadow(config: GatewayConfig, names: frozenset[str]) -> PredictorManager | None:
    """Return the manager of the shadow router; ``None`` if none is configured."""
    folder = config.shadow_router
    if folder is None:
        return None
    manager = PredictorManager(folder, config.encoder, names)
    if manager.load() is None:
        raise ArtifactError(
            f"shadow_router must be the folder of a router, but {folder} has none; fit a router, or"
            " omit the setting."
        )
    return manager


def _announce_passthrough(
    config: GatewayConfig, file: ExpertFile, router: str | Path | None
) -> None:
    callable_ = [spec.name for spec in file.experts if spec.kind in CALLABLE_KINDS]
    default = config.routing.default or next(iter(callable_), None)
    location = None if router is None else without_credentials(str(router))
    log_event(
        _LOG,
        logging.INFO if router is None else logging.WARNING,
        "no router: requests are passed through",
        expert=default,
        waiting_for=location,
    )


def _limits(config: GatewayConfig, key_store: KeyStore, metrics: GatewayMetrics) -> Limits:
    """Return the limits of client keys, shared through a store or local to this process.

    Local limits start from the dollars that the decision log shows for today.
    """
    if config.store.url is not None:
        shared = RedisLimits(config.store, config.on_store_failure)
        metrics.watch(store=lambda: shared.is_available)
        return shared
    folder = config.log.folder
    if folder is None or not key_store.has_budgets:
        return LocalLimits()
    return LocalLimits(dollars_of_today(folder, time.time()))


def _targets(config: GatewayConfig) -> dict[str, Target]:
    """Return the targets of all presets and routes, by name."""
    routes = {f"route {name}": value for name, value in config.routing.routes.items()}
    presets = {f"preset {name}": value for name, value in config.routing.presets.items()}
    return {
        name: target_from_setting(value)
        for name, value in (routes | presets).items()
        if value is not None
    }
