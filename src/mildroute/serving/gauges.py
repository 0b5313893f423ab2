"""What a gateway is like at the moment it is asked: read when metrics are collected, so that requests pay nothing for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from math import nan

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mildroute import __version__
from mildroute.serving.drift import Drift, DriftReport

__all__ = ["Gauges"]

LEVELS = {"unknown": nan, "steady": 0.0, "moved": 1.0, "shifted": 2.0}
"""Readings of drift as numbers."""
STATES = {"closed": 0.0, "half-open": 1.0, "open": 2.0}
"""States of circuits as numbers."""


def _zero() -> float:
    return 0.0


def _none() -> Mapping[str, str]:
    return {}


def _nothing() -> Mapping[str, int]:
    return {}


class Gauges:
    """A collector of figures that are at hand somewhere else.

    Attributes:
        digest: Of the artifact in use.
        baseline: Expert whose bill the savings are counted against.
        drift: Compares decisions with training, or none.
        in_flight: Tells the requests under way.
        queue: Tells the inputs that wait for the encoder.
        circuits: Tells the state of each expert's circuit.
        lost: Tells the lines of each log that could not be written.

    Example:
        >>> gauges = Gauges()
        >>> gauges.in_flight = lambda: 3
        >>> [metric.samples[0].value for metric in gauges.collect() if metric.name == "mildroute_in_flight"]
        [3.0]
    """

    def __init__(self) -> None:
        self.digest = self.baseline = ""
        self.drift: Drift | None = None
        self.in_flight: Callable[[], float] = _zero
        self.queue: Callable[[], float] = _zero
        self.circuits: Callable[[], Mapping[str, str]] = _none
        self.lost: Callable[[], Mapping[str, int]] = _nothing

    def collect(self) -> Iterator[Metric]:
        """All of them, now."""
        yield _gauge("mildroute_in_flight", "Requests under way.", float(self.in_flight()))
        yield _gauge("mildroute_encoder_queue", "Inputs that wait for their vectors.", float(self.queue()))
        yield _gauge("mildroute_tasks", "Tasks of the event loop: they rise and fall with the requests under way.", float(_tasks()))
        yield _circuits(self.circuits())
        yield _lost(self.lost())
        yield _info("mildroute_build_info", "The version that runs.", version=__version__)
        yield _info("mildroute_router_info", "The artifact that decides.", digest=self.digest, baseline=self.baseline)
        if self.drift is not None:
            yield from _drift(self.drift.report())


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # collected outside of the loop
        return 0


def _circuits(states: Mapping[str, str]) -> Metric:
    family = GaugeMetricFamily(
        "mildroute_breaker_state", "0 closed, 1 half-open: a probe may go or is on its way, 2 open.", labels=["expert"]
    )
    for expert, state in states.items():
        family.add_metric([expert], STATES[state])
    return family


def _lost(lines: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily("mildroute_log_lost_lines", "Lines of a log that could not be written.", labels=["log"])
    for log, number in lines.items():
        family.add_metric([log], float(number))
    return family


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _info(name: str, words: str, **labels: str) -> Metric:
    family = GaugeMetricFamily(name, words, labels=list(labels))
    family.add_metric(list(labels.values()), 1.0)
    return family


def _drift(report: DriftReport) -> Iterator[Metric]:
    of = {"scores": report.scores, "shares": report.shares}
    figures = {
        "index": ("Population stability index of the latest decisions against the reference.", "index"),
        "corrected": ("The index without what it is on average where nothing has changed.", "corrected"),
        "limit": ("What the index stays below with probability 0.999 where nothing has changed.", "limit"),
    }
    for name, (words, attribute) in figures.items():
        family = GaugeMetricFamily(f"mildroute_drift_{name}", words, labels=["of"])
        for label, found in of.items():
            family.add_metric([label], getattr(found, attribute))
        yield family
    level = GaugeMetricFamily("mildroute_drift_level", "0 steady, 1 moved, 2 shifted; NaN while too little is known.", labels=["of"])
    for label, found in of.items():
        level.add_metric([label], LEVELS[found.reading])
    yield level
    yield _gauge("mildroute_drift_decisions", "Decisions that are compared with the reference.", float(report.shares.decisions))
    yield _info("mildroute_drift_reference_info", "Where the reference comes from.", source=report.source)
