"""Prometheus metrics."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import nan

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.utils import floatToGoString

from mildroute import __version__
from mildroute.serving.observability.decision_log import DecisionRecord
from mildroute.serving.observability.drift import Drift, DriftReport

__all__ = ["GatewayMetrics", "Histogram", "LabeledCounter", "StateCollector"]


# Counters and histograms for one event loop, without locks. Microseconds of processor time to count
# once: 0.36 here and 0.74 by a cached child of prometheus_client for a counter, 0.54 and 2.2 for a
# histogram (2.5 and 3.0 without the cache); a request counts twelve times. The bound on labels
# would have to be written around the children in any case. benchmarks/speed/gateway.py measures it
# again.


_MOST = 1e15
_OTHER = "other"


class LabeledCounter:
    """Amounts by label, which only grow.

    Labels beyond a bound are counted together as ``other``, so that no client can fill the memory.

    Args:
        name: Of the metric, without ``_total``.
    """

    __slots__ = ("_labels", "_most", "_name", "_values", "_words")

    def __init__(self, name: str, words: str, labels: tuple[str, ...], most: int = 256) -> None:
        self._name = name
        self._words = words
        self._labels = labels
        self._most = most
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, label: tuple[str, ...], amount: float = 1.0) -> None:
        """Count an amount.

        One that cannot be true, negative or beyond all measure, is left out, as it would spoil the
        sum for good.
        """
        values = self._values
        if not 0 <= amount < _MOST:
            return
        if label in values:
            values[label] += amount
        else:
            kept = label if len(values) < self._most else (_OTHER,) * len(label)
            values[kept] = values.get(kept, 0.0) + amount

    def metric(self) -> Metric:
        """As Prometheus reads it."""
        family = CounterMetricFamily(self._name, self._words, labels=self._labels)
        for label, value in self._values.items():
            family.add_metric(label, value)
        return family


class Histogram:
    """How often amounts fell into which bucket, by label.

    Args:
        bounds: Upper bounds of the buckets, ascending; a last bucket takes what is larger.
        most: Values of the labels that are distinguished; further ones are ``other``.
    """

    __slots__ = ("_bounds", "_counts", "_labels", "_most", "_name", "_sums", "_words")

    def __init__(
        self,
        name: str,
        words: str,
        bounds: tuple[float, ...],
        labels: tuple[str, ...] = (),
        most: int = 256,
    ) -> None:
        self._name = name
        self._words = words
        self._bounds = bounds
        self._labels = labels
        self._most = most
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
            self._begin(())

    def add(self, label: tuple[str, ...], amount: float) -> None:
        """Count an amount; one that cannot be true, negative or beyond all measure, is left out."""
        if not 0 <= amount < _MOST:
            return
        if label not in self._counts:
            label = self._begin(label)
        self._counts[label][bisect_left(self._bounds, amount)] += 1
        self._sums[label] += amount

    def metric(self) -> Metric:
        """As Prometheus reads it."""
        family = HistogramMetricFamily(self._name, self._words, labels=self._labels)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for label, counts in self._counts.items():
            family.add_metric(
                label, list(zip(bounds, accumulate(counts), strict=True)), self._sums[label]
            )
        return family

    def _begin(self, label: tuple[str, ...]) -> tuple[str, ...]:
        kept = label if len(self._counts) < self._most else (_OTHER,) * len(label)
        self._counts.setdefault(kept, [0] * (len(self._bounds) + 1))
        self._sums.setdefault(kept, 0.0)
        return kept


# What a gateway is like at the moment it is asked: read when metrics are collected, so that
# requests pay nothing for it.


# Readings of drift as numbers.
LEVELS = {"unknown": nan, "steady": 0.0, "moved": 1.0, "shifted": 2.0}
# States of circuits as numbers.
STATES = {"closed": 0.0, "half-open": 1.0, "open": 2.0}


def _zero() -> float:
    return 0.0


def _none() -> Mapping[str, str]:
    return {}


def _nothing() -> Mapping[str, int]:
    return {}


class StateCollector:
    """A collector of figures that are at hand somewhere else.

    Attributes:
        drift: Compares decisions with training, or none.
        lost: Tells the lines of each log that could not be written.
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
        yield _gauge(
            "mildroute_encoder_queue", "Inputs that wait for their vectors.", float(self.queue())
        )
        yield _gauge(
            "mildroute_tasks",
            "Tasks of the event loop: they rise and fall with the requests under way.",
            float(_tasks()),
        )
        yield _circuits(self.circuits())
        yield _lost(self.lost())
        yield _info("mildroute_build_info", "The version that runs.", version=__version__)
        yield _info(
            "mildroute_router_info",
            "The artifact that decides.",
            digest=self.digest,
            baseline=self.baseline,
        )
        if self.drift is not None:
            yield from _drift(self.drift.report())


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # collected outside of the loop
        return 0


def _circuits(states: Mapping[str, str]) -> Metric:
    family = GaugeMetricFamily(
        "mildroute_breaker_state",
        "0 closed, 1 half-open: a probe may go or is on its way, 2 open.",
        labels=["expert"],
    )
    for expert, state in states.items():
        family.add_metric([expert], STATES[state])
    return family


def _lost(lines: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        "mildroute_log_lost_lines", "Lines of a log that could not be written.", labels=["log"]
    )
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
        "index": (
            "Population stability index of the latest decisions against the reference.",
            "index",
        ),
        "corrected": (
            "The index without what it is on average where nothing has changed.",
            "corrected",
        ),
        "limit": (
            "What the index stays below with probability 0.999 where nothing has changed.",
            "limit",
        ),
    }
    for name, (words, attribute) in figures.items():
        family = GaugeMetricFamily(f"mildroute_drift_{name}", words, labels=["of"])
        for label, found in of.items():
            family.add_metric([label], getattr(found, attribute))
        yield family
    level = GaugeMetricFamily(
        "mildroute_drift_level",
        "0 steady, 1 moved, 2 shifted; NaN while too little is known.",
        labels=["of"],
    )
    for label, found in of.items():
        level.add_metric([label], LEVELS[found.reading])
    yield level
    yield _gauge(
        "mildroute_drift_decisions",
        "Decisions that are compared with the reference.",
        float(report.shares.decisions),
    )
    yield _info(
        "mildroute_drift_reference_info", "Where the reference comes from.", source=report.source
    )


# What a gateway tells Prometheus, in a registry of its own.
#
# One process is one registry. With several workers behind one port each scrape would meet another
# one of them, and counters would seem to fall; so run one process a container and let Prometheus
# scrape each. Their counters add up: ``sum by (expert) (rate(...))``.


_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SHORT = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
)
_WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_WHOLE = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)


class _Series:
    """Every series that requests feed."""

    def __init__(self, keys: int) -> None:
        self.choices = LabeledCounter(
            "mildroute_choices",
            "Decisions by the expert to ask first, and why.",
            ("expert", "reason"),
        )
        self.requests = LabeledCounter(
            "mildroute_requests",
            "Requests that have ended, by the status that the client saw.",
            ("path", "status"),
        )
        self.rejected = LabeledCounter(
            "mildroute_rejected",
            "Requests that were rejected before a decision, with the error's code.",
            ("status", "code"),
        )
        # Prometheus sees how much a counter has grown only if it has met it before, and an alert
        # looks at this one.
        self.rejected.add(("503", "overloaded"), 0.0)
        self.fallbacks = LabeledCounter(
            "mildroute_fallbacks",
            "Experts that failed before their first byte, and how.",
            ("expert", "reason"),
        )
        self.tokens = LabeledCounter(
            "mildroute_tokens", "Tokens of answered requests.", ("expert", "direction")
        )
        self.spend = LabeledCounter(
            "mildroute_spend_dollars", "Dollars charged by who answered.", ("expert",)
        )
        self.baseline = LabeledCounter(
            "mildroute_baseline_dollars",
            "Dollars of the baseline for the tokens of who answered.",
            ("expert",),
        )
        self.key_spend = LabeledCounter(
            "mildroute_key_spend_dollars", "Dollars by the client's key.", ("key",), keys
        )
        self.shadow = LabeledCounter(
            "mildroute_shadow_decisions",
            "Decisions of a shadow router, by whether both agree.",
            ("agrees",),
        )
        self._add_histograms()

    def _add_histograms(self) -> None:
        self.decision = Histogram(
            "mildroute_decision_seconds", "Time to decide, encoding included.", _SHORT
        )
        self.added = Histogram(
            "mildroute_added_seconds",
            "Time that the gateway itself adds until the first byte.",
            _SHORT,
        )
        self.first_byte = Histogram(
            "mildroute_first_byte_seconds",
            "From arrival to the answer's first byte.",
            _WAITS,
            ("expert",),
        )
        self.seconds = Histogram(
            "mildroute_request_seconds",
            "From arrival to the answer's last byte.",
            _WHOLE,
            ("expert",),
        )
        self.batches = Histogram(
            "mildroute_encoder_batch_size", "Inputs that were encoded together.", _BATCHES
        )


class GatewayMetrics:
    """Metrics of one gateway; fed and read on its event loop alone.

    Money saved is the difference of two counters, ``mildroute_baseline_dollars_total`` less
    ``mildroute_spend_dollars_total``: it may be negative, and a counter must not fall.

    Args:
        keys: Names of keys that are distinguished; further ones are counted together as ``other``.
    """

    def __init__(self, *, keys: int = 200) -> None:
        self.registry = CollectorRegistry()
        self._gauges = StateCollector()
        self._series = _Series(keys)
        for collector in (self._gauges, self):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    def set_router(
        self, digest: str, experts: Sequence[str], drift: Drift | None = None, *, baseline: str = ""
    ) -> None:
        """Another router decides from now on; its decisions are compared with its training."""
        self._gauges.digest = digest
        self._gauges.drift = drift
        self._gauges.baseline = baseline
        # Prometheus sees how much a counter has grown only if it has met it before: let the dollars
        # begin at zero.
        for expert in experts:
            self._series.spend.add((expert,), 0.0)
            self._series.baseline.add((expert,), 0.0)

    def watch(
        self,
        *,
        in_flight: Callable[[], float] | None = None,
        queue: Callable[[], float] | None = None,
        circuits: Callable[[], Mapping[str, str]] | None = None,
        lost: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """Ask these whenever metrics are collected; those that are not given stay as they are.

        Args:
            in_flight: Requests under way.
            queue: Inputs that wait for the encoder.
            circuits: State of each expert's circuit: ``"closed"``, ``"half-open"`` or ``"open"``.
            lost: Lines that could not be written, by the name of their log.
        """
        gauges = self._gauges
        gauges.in_flight = in_flight or gauges.in_flight
        gauges.queue = queue or gauges.queue
        gauges.circuits = circuits or gauges.circuits
        gauges.lost = lost or gauges.lost

    def record_decision(self, expert: str | None, reason: str, seconds: float) -> None:
        """Count a decision for an expert, or for none."""
        self._series.choices.add((expert or "none", reason))
        if reason != "pinned":
            self._series.decision.add((), seconds)

    def record_prediction(
        self, router: str, posterior: Sequence[float], point: Hashable, best: int
    ) -> None:
        """Compare a prediction of a router with its training.

        Args:
            router: Its digest; a request that began before a reload still has the prediction of the
                router before it, which is not counted.
            posterior: Over the experts.
            point: Vertices of the operating point, or none.
            best: Index of the expert that ranks first.
        """
        gauges = self._gauges
        if gauges.drift is not None and router == gauges.digest:
            gauges.drift.add(posterior, point, best)

    def record_request(self, record: DecisionRecord, added: float | None = None) -> None:
        """Count a request that has ended.

        Args:
            record: What came of it.
            added: Seconds of the gateway itself until the first byte: the time to the first byte
                without the wait for experts.
        """
        series = self._series
        series.requests.add((record.path, str(record.status)))
        if added is not None:
            series.added.add((), added)
        if record.shadow:
            series.shadow.add(("yes",) if record.shadow == _first_choice(record) else ("no",))
        if not record.served_by:
            return
        expert = (record.served_by,)
        series.tokens.add((record.served_by, "in"), record.tokens_in)
        series.tokens.add((record.served_by, "out"), record.tokens_out)
        series.spend.add(expert, record.cost_usd)
        series.baseline.add(expert, record.baseline_cost_usd)
        series.first_byte.add(expert, record.first_byte_seconds)
        series.seconds.add(expert, record.seconds)
        if record.key:
            series.key_spend.add((record.key,), record.cost_usd)

    def record_fallback(self, expert: str, reason: str) -> None:
        """Count an expert that failed before its first byte.

        The reason is one of few words, such as ``"timeout"`` or ``"5xx"``.
        """
        self._series.fallbacks.add((expert, reason))

    def record_rejection(self, status: int, code: str | None) -> None:
        """Count a request that was rejected before a decision.

        Its code is one of the gateway's own, of which there are few.
        """
        self._series.rejected.add((str(status), code or "none"))

    def record_batch(self, size: int) -> None:
        """Count a batch of the encoder."""
        self._series.batches.add((), size)

    def render(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and the type of that content."""
        return generate_latest(self.registry), _CONTENT_TYPE

    def collect(self) -> Iterator[Metric]:
        """What requests have fed, for the registry."""
        for series in vars(self._series).values():
            yield series.metric()


def _first_choice(record: DecisionRecord) -> str:
    """What the router alone would have selected.

    The shadow knows nothing of conversations, circuits and exploration.
    """
    return record.first_choice or record.selected
