"""A gateway from an artifact, a file of experts and settings."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from mildroute.evaluation.fitting import Target
from mildroute.experts.file import ExpertFile, read_experts
from mildroute.serving.brain import Brain
from mildroute.serving.decision_log import DecisionLog, spent_since
from mildroute.serving.drift import Drift
from mildroute.serving.feedback import Feedback
from mildroute.serving.gatekeeper import Gatekeeper, start_of_day
from mildroute.serving.holder import Holder
from mildroute.serving.keys import KeyRing
from mildroute.serving.parts import Parts, Quiet
from mildroute.serving.settings import Settings
from mildroute.serving.spans import Spans, otlp_provider
from mildroute.serving.targets import target_of_setting
from mildroute.serving.telemetry import Telemetry

__all__ = ["assemble"]

_LOG = logging.getLogger(__name__)


def assemble(router: str | Path, experts: str | Path, settings: Settings, *, traces: bool = False) -> Parts:
    """Load everything that a gateway needs; what is wrong with any of it is said here, before a port is opened.

    Args:
        router: Folder of the artifact.
        experts: The file of experts.
        settings: How the gateway behaves.
        traces: Whether spans are sent to the collector that OpenTelemetry's environment variables name.

    Returns:
        The parts of a gateway; close their ``holder`` in the end.

    Example:
        >>> assemble("no such folder", "experts.yaml", Settings())
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: experts.yaml must be a readable file, got: No such file or directory...
    """
    file = read_experts(experts)
    if settings.policy.default is not None:
        file.expert(settings.policy.default)
    telemetry = Telemetry()
    names = frozenset(spec.name for spec in file.experts)

    def changed(brain: Brain) -> None:
        unknown = [name for name in brain.experts if name not in names]
        if unknown:
            _LOG.warning("%s lacks %s, whom the router knows: they are never asked", file.path.name, ", ".join(unknown))
        brain.queue.batches = telemetry.batch
        telemetry.watch(queue=lambda: holder.brain.queue.waiting)
        telemetry.loaded(brain.digest, sorted(names), Drift(brain.experts, brain.reference), baseline=settings.baseline or _dearest(file))

    holder = Holder(router, settings.encoder, names, changed, _targets(settings))
    holder.load()
    shadow = None if settings.shadow is None else Holder(settings.shadow, settings.encoder, names)
    if shadow is not None:
        shadow.load()
    folder = settings.log.folder
    keyring = KeyRing() if settings.keys is None else KeyRing.read(settings.keys)
    gatekeeper = Gatekeeper({} if folder is None else spent_since(folder, start_of_day(time.time())))
    log = None if folder is None else DecisionLog(settings.log)
    feedback = None if folder is None else Feedback(settings.log)
    if log is not None and feedback is not None:
        telemetry.watch(lost=lambda: {"decisions": log.lost, "feedback": feedback.lost})
    return Parts(
        settings,
        file,
        holder,
        keyring=keyring,
        gatekeeper=gatekeeper,
        log=log or Quiet(),
        feedback=feedback,
        telemetry=telemetry,
        spans=Spans(otlp_provider() if traces else None),
        shadow=shadow,
    )


def _dearest(file: ExpertFile) -> str:
    """Name of the expert of the highest list price, or empty if nobody has one."""
    prices = {spec.name: spec.price.input + spec.price.output for spec in file.experts if spec.price is not None}
    return max(prices, key=lambda name: prices[name], default="")


def _targets(settings: Settings) -> dict[str, Target]:
    """What presets and routes ask for, by name."""
    named = {**settings.policy.routes, **settings.policy.presets}
    return {name: target_of_setting(value) for name, value in named.items() if value is not None}
