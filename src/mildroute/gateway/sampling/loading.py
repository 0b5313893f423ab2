"""Creation of a sampler from the settings of a gateway."""

from __future__ import annotations

import math

from mildroute.decision.feedback import SampleLog
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Expert, Query
from mildroute.experts.config import ExpertFile, ExpertSpec, build_expert
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.sampling.budget import FileBudget, MeteredExpert
from mildroute.gateway.sampling.sampler import Sampler
from mildroute.gateway.upstream.pool import CALLABLE_KINDS
from mildroute.judges.base import Judge
from mildroute.judges.registry import judge_from_config

__all__ = ["load_sampler"]

_STATE = "sampling.json"


def load_sampler(
    config: GatewayConfig, file: ExpertFile, metrics: GatewayMetrics
) -> Sampler | None:
    """Return the sampler of a gateway; ``None`` if sampling is off.

    Raises:
        ArgumentError: The settings of sampling are incomplete or contradictory.
    """
    sampling, folder = config.sampling, config.log.folder
    if not sampling.rate:
        return None
    limit = sampling.max_dollars_per_day
    if limit is None or sampling.judge is None or folder is None:
        raise ArgumentError(
            "sampling needs a judge, a dollar limit and a log, got judge"
            f" {sampling.judge!r:.60}, max_dollars_per_day {limit} and log {folder}; set"
            " sampling.judge, sampling.max_dollars_per_day and log.folder, or set sampling.rate to"
            " 0."
        )
    names = [spec.name for spec in file.experts if spec.kind in CALLABLE_KINDS]
    unknown = [name for name in sampling.experts if name not in names]
    if unknown or len(sampling.experts or names) < 2:
        raise ArgumentError(
            "sampling needs at least two experts that the gateway can call, got"
            f" {', '.join(unknown or names) or 'none'}; known: {', '.join(names)}."
        )
    budget = FileBudget(folder / _STATE, limit)

    def build(spec: ExpertSpec) -> Expert:
        return MeteredExpert(build_expert(spec), budget)

    specs = [*file.judges, *file.experts]
    judge = judge_from_config(sampling.judge, sampling.judge_settings, specs, build)
    _check_judge(judge)
    log = SampleLog(config.log)
    return Sampler(config, sampling.experts or names, judge, budget, log, metrics)


def _check_judge(judge: Judge) -> None:
    """Reject a judge that needs more than the request, or whose cost is unbounded."""
    probe = Query("probe", "What is 2 + 2?")
    missing = judge.missing_fields(probe)
    if missing:
        raise ArgumentError(
            "sampling needs a judge that can score an answer from the request alone, got"
            f" {judge.name!r}: {missing}; use graded, or collect with references instead."
        )
    if not math.isfinite(judge.max_cost(probe, "4")):
        raise ArgumentError(
            f"sampling needs a judge with a bounded cost, got {judge.name!r}; set max_tokens for"
            " the judge's expert."
        )
