"""Prometheus metrics."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from math import isnan, nan
from typing import Any

from mildroute import __version__
from mildroute._optional import needs_extra
from mildroute.decision.drift import Drift, DriftReport
from mildroute.decision.log import DecisionRecord

with needs_extra("prometheus-client", extra="serve", user="mildroute.gateway"):
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.exposition import generate_latest
    from prometheus_client.openmetrics import exposition as openmetrics
    from prometheus_client.samples import Exemplar
    from prometheus_client.utils import floatToGoString


__all__ = [
    "GatewayMetrics",
    "Histogram",
    "LabeledCounter",
    "LoopLagMonitor",
    "Snapshot",
    "StateCollector",
    "merge_snapshots",
]


# Counters and histograms for one event loop, without locks. Microseconds of processor time to count
# once: 0.36 here and 0.74 by a cached child of prometheus_client for a counter, 0.54 and 2.2 for a
# histogram (2.5 and 3.0 without the cache); a request counts seventeen times. The bound on labels
# would have to be written around the children in any case. benchmarks/speed/gateway.py measures it
# again.


_MOST = 1e15
_OTHER = "other"


class LabeledCounter:
    """Amounts by label that only grow.

    Labels beyond a limit are counted together as ``other``, so that no client can exhaust the
    memory.

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

        An impossible amount, negative or absurdly large, is left out because it would corrupt the
        sum permanently.
        """
        values = self._values
        if not 0 <= amount < _MOST:
            return
        try:
            values[label] += amount
        except KeyError:
            kept = label if len(values) < self._most else (_OTHER,) * len(label)
            values[kept] = values.get(kept, 0.0) + amount

    def metric(self) -> Metric:
        """As Prometheus reads it."""
        family = CounterMetricFamily(self._name, self._words, labels=self._labels)
        for label, value in self._values.items():
            family.add_metric(label, value)
        return family


class Histogram:
    """Number of amounts in each bucket, by label.

    Args:
        bounds: Upper bounds of the buckets, ascending; a last bucket takes larger amounts.
        most: Values of the labels that are distinguished; further ones are ``other``.
    """

    __slots__ = ("_bounds", "_exemplars", "_labels", "_most", "_name", "_rows", "_words")

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
        # The count of each bucket, and last the sum: one look-up, since a tuple does not keep its
        # hash.
        self._rows: dict[tuple[str, ...], list[float]] = {}
        # The latest trace of each bucket, by label and place.
        self._exemplars: dict[tuple[tuple[str, ...], int], Exemplar] = {}
        if not labels:
            self._begin(())

    def add(self, label: tuple[str, ...], amount: float, trace_id: str = "") -> None:
        """Count an amount; an impossible one, negative or absurdly large, is left out.

        If a trace is given, it becomes the exemplar of its bucket.
        """
        if not 0 <= amount < _MOST:
            return
        row = self._rows.get(label)
        if row is None:
            label, row = self._begin(label)
        place = bisect_left(self._bounds, amount)
        row[place] += 1
        row[-1] += amount
        if trace_id:
            self._exemplars[label, place] = Exemplar({"trace_id": trace_id}, amount, time.time())

    def metric(self) -> Metric:
        """As Prometheus reads it."""
        family = HistogramMetricFamily(self._name, self._words, labels=self._labels)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for label, (*counts, total) in self._rows.items():
            exemplars = [self._exemplars.get((label, place)) for place in range(len(bounds))]
            buckets = list(zip(bounds, accumulate(counts), exemplars, strict=True))
            family.add_metric(label, buckets, total)  # type: ignore[arg-type]
        return family

    def _begin(self, label: tuple[str, ...]) -> tuple[tuple[str, ...], list[float]]:
        kept = label if len(self._rows) < self._most else (_OTHER,) * len(label)
        return kept, self._rows.setdefault(kept, [0] * (len(self._bounds) + 1) + [0.0])


# What a gateway is like at the moment it is asked: read when metrics are collected, so that
# requests pay nothing for it.


# Readings of drift as numbers.
LEVELS = {"unknown": nan, "steady": 0.0, "moved": 1.0, "shifted": 2.0}
# States of circuits as numbers.
STATES = {"closed": 0.0, "half-open": 1.0, "open": 2.0}


class StateCollector:
    """A collector of figures that are stored elsewhere.

    Attributes:
        drift: Compares decisions with the training data, or none.
        loaded_at: When the router was loaded, in seconds since 1970.
        in_flight: Requests in flight.
        queue: Inputs waiting for the encoder.
        connections: Client connections.
        circuits: State of each expert's circuit: ``"closed"``, ``"half-open"`` or ``"open"``.
        experts: Idle connections, calls in flight and waiting calls of each expert.
        budgets: Name, dollars left today and dollars reserved for each key with a budget.
        lost: Entries that could not be written, by the name of their log.
        store: Whether the shared store responds, or none without a store.
        exploration: Dollars that exploration may still be expected to cost today.
        sampling: Dollars that sampling may still cost today, requests that wait for it, and 1 if
            there are enough samples to fit a router; or none without sampling.
    """

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self.digest = self.baseline = ""
        self.loaded_at = nan
        self.drift: Drift | None = None
        self.in_flight: Callable[[], float] = float
        self.queue: Callable[[], float] = float
        self.connections: Callable[[], float] = float
        self.circuits: Callable[[], Mapping[str, str]] = dict
        self.experts: Callable[[], Mapping[str, tuple[int, int, int]]] = dict
        self.budgets: Callable[[], Iterable[tuple[str, float, float]]] = list
        self.lost: Callable[[], Mapping[str, int]] = dict
        self.store: Callable[[], bool] | None = None
        self.exploration: Callable[[], float] = lambda: nan
        self.sampling: Callable[[], tuple[float, float, float]] | None = None

    def collect(self) -> Iterator[Metric]:
        """Collect the current figures."""
        yield _gauge("mildroute_in_flight", "Requests in flight.", float(self.in_flight()))
        yield _gauge(
            "mildroute_encoder_queue", "Inputs that wait for their vectors.", float(self.queue())
        )
        yield _gauge(
            "mildroute_tasks",
            "Tasks of the event loop: they rise and fall with the requests in flight.",
            float(_tasks()),
        )
        yield _gauge(
            "mildroute_client_connections", "Open connections of clients.", self.connections()
        )
        yield _circuits(self.circuits())
        yield from _experts(self.experts())
        yield from _budgets(self.budgets(), self._keys)
        yield _lost(self.lost())
        if self.store is not None:
            yield _gauge(
                "mildroute_store_available",
                "1 if the shared store responds, 0 while limits are kept without it.",
                float(self.store()),
            )
        yield from self._learning()
        yield _gauge("mildroute_workers", "Processes that serve, whose figures these are.", 1.0)
        yield _info("mildroute_build_info", "The version that runs.", version=__version__)
        yield _info(
            "mildroute_router_info",
            "The artifact that decides.",
            digest=self.digest,
            baseline=self.baseline,
        )
        yield _gauge(
            "mildroute_router_loaded_timestamp_seconds",
            "When the artifact was loaded, in seconds since 1970.",
            self.loaded_at,
        )
        if self.drift is not None:
            yield from _drift(self.drift.report())

    def _learning(self) -> Iterator[Metric]:
        yield _gauge(
            "mildroute_exploration_left_dollars",
            "Dollars that exploration may still be expected to cost today, in this process; NaN"
            " without a limit.",
            self.exploration(),
        )
        if self.sampling is not None:
            yield from _sampling(*self.sampling())


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


def _experts(load: Mapping[str, tuple[int, int, int]]) -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "mildroute_expert_connections",
        "Connections to an expert: idle ones, and calls in flight, each with one.",
        labels=["expert", "state"],
    )
    waiting = GaugeMetricFamily(
        "mildroute_expert_waiting",
        "Calls that wait because `concurrency` of them are in flight.",
        labels=["expert"],
    )
    for expert, (idle, active, queued) in load.items():
        connections.add_metric([expert, "idle"], idle)
        connections.add_metric([expert, "active"], active)
        waiting.add_metric([expert], queued)
    yield connections
    yield waiting


def _budgets(budgets: Iterable[tuple[str, float, float]], keys: int) -> Iterator[Metric]:
    """Keys beyond the limit have no series, but their reservations count."""
    found = list(budgets)
    left = GaugeMetricFamily(
        "mildroute_key_budget_left_dollars",
        "Dollars that a key may still spend today, in this process or, with a store, in all of"
        " them, reservations not counted.",
        labels=["key"],
    )
    for key, dollars, _ in islice(found, keys):
        left.add_metric([key], dollars)
    yield left
    yield _gauge(
        "mildroute_reserved_dollars",
        "Dollars that are held for in-flight requests of keys with a budget.",
        sum(reserved for _, _, reserved in found),
    )


def _lost(lines: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        "mildroute_log_lost_lines", "Lines of a log that could not be written.", labels=["log"]
    )
    for log, number in lines.items():
        family.add_metric([log], float(number))
    return family


def _sampling(left: float, waiting: float, is_enough: float) -> Iterator[Metric]:
    yield _gauge(
        "mildroute_sampling_left_dollars",
        "Dollars that sampling may still cost today, of all gateways that share them; NaN before"
        " the first sample.",
        left,
    )
    yield _gauge("mildroute_sampling_queue", "Requests that wait to be sampled.", waiting)
    yield _gauge(
        "mildroute_sampling_enough_to_fit",
        "1 if there are enough samples of all experts to fit a router.",
        is_enough,
    )


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


# Figures of several processes as one. With several workers behind one port each scrape meets
# another one of them, and its counters alone would seem to fall. prometheus_client merges files
# that its own metrics write, one for each process; ours are none of its own, and cost less.


# Of each metric its name, its words, its kind, and of each sample the name, the labels, the value
# and the exemplar, or none: what JSON can carry from process to process.
Snapshot = list[tuple[str, str, str, list[Any]]]


def _sum(one: float, other: float) -> float:
    return one + other


def _largest(one: float, other: float) -> float:
    return other if isnan(one) else one if isnan(other) else max(one, other)


def _smallest(one: float, other: float) -> float:
    return other if isnan(one) else one if isnan(other) else min(one, other)


# Gauges that do not add up: the worst of all processes, the oldest router, what is there or not.
_MERGE_BY: dict[str, Callable[[float, float], float]] = {
    "mildroute_breaker_state": _largest,
    "mildroute_build_info": _largest,
    "mildroute_drift_corrected": _largest,
    "mildroute_drift_index": _largest,
    "mildroute_drift_level": _largest,
    "mildroute_drift_limit": _largest,
    "mildroute_drift_reference_info": _largest,
    "mildroute_exploration_left_dollars": _smallest,
    "mildroute_key_budget_left_dollars": _smallest,
    "mildroute_router_info": _largest,
    "mildroute_router_loaded_timestamp_seconds": _smallest,
    "mildroute_sampling_enough_to_fit": _largest,
    "mildroute_sampling_left_dollars": _smallest,
    "mildroute_store_available": _smallest,
    "process_max_fds": _smallest,
    "process_start_time_seconds": _smallest,
}


def merge_snapshots(live: Iterable[Snapshot], ended: Iterable[Snapshot] = ()) -> Snapshot:
    """Merge the figures of several processes.

    Counters, histograms and most gauges are added.

    Args:
        live: Snapshots of running processes.
        ended: Snapshots of ended processes: their counters and histograms are kept, their gauges
            are not.
    """
    merged: dict[str, tuple[str, str, str, dict[Hashable, list[Any]]]] = {}
    stay = ([family for family in snapshot if family[2] != "gauge"] for snapshot in ended)
    for snapshot in chain(live, stay):
        for name, words, kind, samples in snapshot:
            combine = _MERGE_BY.get(name, _sum)
            found = merged.setdefault(name, (name, words, kind, {}))[3]
            for sample, labels, value, exemplar in samples:
                key = (sample, *sorted(labels.items()))
                if (old := found.get(key)) is None:
                    found[key] = [sample, labels, value, exemplar]
                else:
                    old[2] = combine(old[2], value)
                    old[3] = old[3] or exemplar
    return [(*family, list(samples.values())) for *family, samples in merged.values()]  # type: ignore[misc]


class _SnapshotRegistry:
    """A snapshot in the form that prometheus_client reads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for name, words, kind, samples in self._snapshot:
            family = Metric(name, words, kind)
            for sample, labels, value, exemplar in samples:
                told = None if exemplar is None else Exemplar(*exemplar)
                family.add_sample(sample, labels, value, exemplar=told)
            yield family


# What a gateway tells Prometheus, in a registry of its own.


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
_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# Buckets and labels that OpenTelemetry's conventions for generative AI recommend.
_OPERATION_SECONDS = tuple(0.01 * 2**power for power in range(14))
_TOKEN_COUNTS = tuple(float(4**power) for power in range(14))
_TARGET_LABELS = (
    "gen_ai_operation_name",
    "gen_ai_provider_name",
    "gen_ai_request_model",
    "server_address",
    "server_port",
)


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
        self._add_learning()
        self._add_process()
        self._add_histograms()
        self._add_operations()

    def _add_learning(self) -> None:
        self.exploration = LabeledCounter(
            "mildroute_exploration_dollars",
            "Dollars that experts drawn to learn from are expected to charge beyond the router's"
            " choices.",
            (),
        )
        self.exploration.add((), 0.0)
        self.samples = LabeledCounter(
            "mildroute_samples",
            "Requests that were drawn to be sent to the other experts, too, and what came of it.",
            ("sample",),
        )
        self.sampling_spend = LabeledCounter(
            "mildroute_sampling_dollars",
            "Dollars charged by experts for sampled calls and for judging them; in no key's bill.",
            ("expert",),
        )

    def _add_process(self) -> None:
        self.router_decisions = LabeledCounter(
            "mildroute_router_decisions",
            "Decisions by the router that made them.",
            ("digest",),
        )
        self.cut = LabeledCounter(
            "mildroute_streams_cut",
            "Streams that ended after their first byte and before their end, and why.",
            ("expert", "reason"),
        )
        self.bytes = LabeledCounter(
            "mildroute_body_bytes",
            "Bytes of the bodies of requests and of responses to clients.",
            ("path", "direction"),
        )
        self.reloads = LabeledCounter(
            "mildroute_reloads",
            "Reloads of the router, the experts and the client keys.",
            ("kind", "result"),
        )
        for kind in ("router", "experts", "keys"):
            for result in ("loaded", "rejected"):
                self.reloads.add((kind, result), 0.0)
        self.store_errors = LabeledCounter(
            "mildroute_store_errors",
            "Calls of the shared store that failed or were late.",
            ("operation",),
        )

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
        self.connect = Histogram(
            "mildroute_expert_connect_seconds",
            "Time to open a connection to an expert: name, TCP and TLS.",
            _WAITS,
            ("expert",),
        )
        self.wait = Histogram(
            "mildroute_expert_wait_seconds",
            "Time that calls waited for their turn, of those that had to.",
            _WAITS,
            ("expert",),
        )
        self.store = Histogram(
            "mildroute_store_seconds",
            "Time of calls of the shared store, those that failed included.",
            _SHORT,
            ("operation",),
        )
        self.lag = Histogram(
            "mildroute_loop_lag_seconds",
            "How late the event loop woke, measured twice a second.",
            _LAGS,
        )

    def _add_operations(self) -> None:
        """Calls of experts, with OpenTelemetry's names."""
        self.token_usage = Histogram(
            "gen_ai_client_token_usage",
            "Tokens of a call, if its response has reported them.",
            _TOKEN_COUNTS,
            (*_TARGET_LABELS, "gen_ai_token_type"),
        )
        self.operation_duration = Histogram(
            "gen_ai_client_operation_duration_seconds",
            "From the start of a call to the last byte of its response.",
            _OPERATION_SECONDS,
            (*_TARGET_LABELS, "error_type"),
        )
        self.first_chunk = Histogram(
            "gen_ai_client_operation_time_to_first_chunk_seconds",
            "From the start of a call to the first event of its stream.",
            _OPERATION_SECONDS,
            _TARGET_LABELS,
        )


class GatewayMetrics:
    """Metrics of one gateway, written and read on its event loop only.

    Savings are the difference of two counters, ``mildroute_baseline_dollars_total`` minus
    ``mildroute_spend_dollars_total``: they may be negative, and a counter must not decrease.

    Args:
        keys: Names of keys that are distinguished; all others are counted together as ``other``.

    Attributes:
        gather: Returns the figures of all workers, or none if this process is the only one.
    """

    def __init__(self, *, keys: int = 200) -> None:
        self.gather: Callable[[], Awaitable[Snapshot]] | None = None
        self.registry = CollectorRegistry()
        self._gauges = StateCollector(keys)
        self._series = _Series(keys)
        for collector in (self._gauges, self):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    def set_router(self, digest: str, drift: Drift | None = None) -> None:
        """Set the router that decides from now on; its decisions are compared with its training."""
        self._gauges.digest = digest
        self._gauges.drift = drift
        self._gauges.loaded_at = time.time()

    def set_experts(self, experts: Iterable[str], baseline: str) -> None:
        """Set the experts that are called from now on; savings are counted against the last one."""
        self._gauges.baseline = baseline
        # Prometheus sees how much a counter has grown only if it has met it before: let the dollars
        # begin at zero.
        for expert in experts:
            self._series.spend.add((expert,), 0.0)
            self._series.baseline.add((expert,), 0.0)

    def watch(self, **sources: Callable[[], Any]) -> None:
        """Read these sources whenever metrics are collected; others stay unchanged.

        Args:
            **sources: By the attribute of :class:`StateCollector` that they become.
        """
        for name, source in sources.items():
            setattr(self._gauges, name, source)

    def record_decision(self, expert: str | None, reason: str, seconds: float) -> None:
        """Count a decision for an expert, or for none."""
        self._series.choices.add((expert or "none", reason))
        if reason != "pinned":
            self._series.decision.add((), seconds)

    def record_exploration(self, dollars: float) -> None:
        """Count the expected extra cost of an exploration draw over the router's choice."""
        self._series.exploration.add((), dollars)

    def record_sample(self, result: str) -> None:
        """Count a request that was drawn to be sampled."""
        self._series.samples.add((result,))

    def record_sampled_call(self, expert: str, dollars: float) -> None:
        """Count the dollars of a sampled call, or of judging."""
        self._series.sampling_spend.add((expert,), dollars)

    def record_prediction(
        self, router: str, posterior: Sequence[float], point: Hashable, best: int
    ) -> None:
        """Count a prediction of a router, and compare it with its training data.

        Args:
            router: Its digest; a request that began before a reload still has the prediction of the
                router before it, which is not compared.
            posterior: Over the experts.
            point: Vertices of the operating point, or none.
            best: Index of the expert that ranks first.
        """
        gauges = self._gauges
        self._series.router_decisions.add((router,))
        if gauges.drift is not None and router == gauges.digest:
            gauges.drift.add(posterior, point, best)

    def record_request(
        self, record: DecisionRecord, added: float | None = None, exemplar: str = ""
    ) -> None:
        """Count a request that has ended.

        Args:
            record: Its decision and outcome.
            added: Seconds that the gateway itself added: the time to the first byte without the
                wait for experts.
            exemplar: Id of a trace that is recorded, or empty.
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
        series.first_byte.add(expert, record.first_byte_seconds, exemplar)
        series.seconds.add(expert, record.seconds, exemplar)
        if record.key:
            series.key_spend.add((record.key,), record.cost_usd)

    def record_fallback(self, expert: str, reason: str) -> None:
        """Count an expert that failed before its first byte.

        The reason is one of a small set, such as ``"timeout"`` or ``"5xx"``.
        """
        self._series.fallbacks.add((expert, reason))

    def record_rejection(self, status: int, code: str | None) -> None:
        """Count a request that was rejected before a decision.

        Its code is one of the gateway's own small set.
        """
        self._series.rejected.add((str(status), code or "none"))

    def record_call(
        self,
        target: tuple[str, ...],
        seconds: float,
        error_type: str,
        *,
        tokens: tuple[int, int] | None,
        first_chunk: float | None,
        exemplar: str = "",
    ) -> None:
        """Count a call of an expert.

        Args:
            target: Operation, provider, model, address and port.
            seconds: Duration of the call.
            error_type: Kind of error that it ended with, or empty.
            tokens: In and out, as its response reports them, or none.
            first_chunk: Seconds until the first event of its stream, or none.
            exemplar: Id of a trace that is recorded, or empty.
        """
        series = self._series
        series.operation_duration.add((*target, error_type), seconds, exemplar)
        if tokens is not None:
            series.token_usage.add((*target, "input"), tokens[0], exemplar)
            series.token_usage.add((*target, "output"), tokens[1], exemplar)
        if first_chunk is not None:
            series.first_chunk.add(target, first_chunk, exemplar)

    def record_cut(self, expert: str, reason: str) -> None:
        """Count a stream that began and did not complete."""
        self._series.cut.add((expert, reason))

    def record_bytes(self, path: str, received: int, sent: int) -> None:
        """Count the body bytes of a request and its response."""
        self._series.bytes.add((path, "in"), received)
        self._series.bytes.add((path, "out"), sent)

    def record_reload(self, kind: str, *, is_loaded: bool) -> None:
        """Count a reload of the ``"router"``, ``"experts"`` or ``"keys"``."""
        self._series.reloads.add((kind, "loaded" if is_loaded else "rejected"))

    def record_connect(self, expert: str, seconds: float) -> None:
        """Count a connection that was opened."""
        self._series.connect.add((expert,), seconds)

    def record_wait(self, expert: str, seconds: float) -> None:
        """Count a call that had to wait for a slot."""
        self._series.wait.add((expert,), seconds)

    def record_lag(self, seconds: float) -> None:
        """Count how late the event loop woke."""
        self._series.lag.add((), seconds)

    def record_store_call(self, operation: str, seconds: float, is_failed: bool) -> None:
        """Count a call of the shared store."""
        self._series.store.add((operation,), seconds)
        self._series.store_errors.add((operation,), float(is_failed))

    def record_batch(self, size: int) -> None:
        """Count a batch of the encoder."""
        self._series.batches.add((), size)

    async def snapshot_of_all(self) -> Snapshot:
        """All metrics, of all workers if there are several."""
        return self.snapshot() if self.gather is None else await self.gather()

    def snapshot(self) -> Snapshot:
        """All metrics of this process."""
        return [
            (
                family.name,
                family.documentation,
                family.type,
                [[one.name, one.labels, one.value, one.exemplar] for one in family.samples],
            )
            for family in self.registry.collect()
        ]

    async def page(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, of all workers if there are several, as :meth:`render` returns them."""
        if self.gather is None:
            return self.render(accept)
        return self.render(accept, _SnapshotRegistry(await self.gather()))

    def render(self, accept: str = "", registry: Any = None) -> tuple[bytes, str]:
        """Return all metrics and their content type.

        Args:
            accept: Header of the reader. If it names OpenMetrics, the reader gets that, with
                exemplars, otherwise Prometheus's text format.
            registry: Whose metrics, or none for those of this process.
        """
        registry = registry or self.registry
        if "application/openmetrics-text" in accept:
            page = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
            return page, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(registry), _CONTENT_TYPE

    def collect(self) -> Iterator[Metric]:
        """Collect the metrics of requests, for the registry."""
        for series in vars(self._series).values():
            yield series.metric()


def _first_choice(record: DecisionRecord) -> str:
    """Return what the router alone would have selected.

    The shadow router ignores conversations, circuits and exploration.
    """
    return record.first_choice or record.selected


class LoopLagMonitor:
    """Measures the delay of the event loop twice a second.

    Args:
        record: Receives the seconds.
    """

    _INTERVAL = 0.5

    def __init__(self, record: Callable[[float], None]) -> None:
        self._record = record
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._INTERVAL
        self._timer = loop.call_at(self._due, self._measure)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        self._record(max(0.0, asyncio.get_running_loop().time() - self._due))
        self.start()
