"""Prometheus metrics of a gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import nan
from pathlib import Path

from mildroute._optional import needs_extra
from mildroute.decision.drift import Drift
from mildroute.decision.log import DecisionRecord

with needs_extra("prometheus-client", extra="serve", user="mildroute.gateway"):
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        Metric,
        ProcessCollector,
        disable_created_metrics,
        generate_latest,
    )
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
    from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE_LATEST", "LEVELS", "STATES", "GatewayMetrics"]

# The creation times of series would double the number of lines.
disable_created_metrics()  # type: ignore[no-untyped-call]

# Drift readings as numbers.
LEVELS = {"unknown": nan, "steady": 0.0, "moved": 1.0, "shifted": 2.0}
# Circuit states as numbers.
STATES = {"closed": 0.0, "half-open": 1.0, "open": 2.0}
# Folder through which prometheus_client adds up the metrics of several workers.
WORKERS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

_MAX_AMOUNT = 1e15
_DECISION_SECONDS = (
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
_ANSWER_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
# Seconds between two updates of a worker's gauges, which another worker may report.
_REFRESH_INTERVAL = 2.0


class GatewayMetrics:
    """The metrics of one gateway, in their own registry.

    Savings are the difference of two counters, ``mildroute_baseline_dollars_total`` minus
    ``mildroute_spend_dollars_total``: they may be negative, and a counter must not decrease.

    Attributes:
        registry: The registry of this process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(Refresher(self.refresh))
        self._in_flight: Callable[[], float] = float
        self._queue: Callable[[], float] = float
        self._circuits: Callable[[], Mapping[str, str]] = dict
        self._budgets: Callable[[], Iterable[tuple[str, float, float]]] = list
        self._lost: Callable[[], Mapping[str, int]] = dict
        self._store: Callable[[], bool] | None = None
        self._sampling: Callable[[], float] = lambda: nan
        self._reported_lost: dict[str, int] = {}
        self._drift: Drift | None = None
        self._router = ("", "")
        self._add_requests()
        self._add_experts()
        self._add_learning()
        self._add_state()
        ProcessCollector(registry=self.registry)

    def _add_requests(self) -> None:
        self.requests = Counter(
            "mildroute_requests",
            "Requests that have ended, by the status that the client saw.",
            ["path", "status"],
            registry=self.registry,
        )
        self.rejected = Counter(
            "mildroute_rejected",
            "Requests that were rejected before a decision, with the error's code.",
            ["status", "code"],
            registry=self.registry,
        )
        # Prometheus sees a counter grow only if it has scraped an earlier value, and alerts use
        # these two.
        self.rejected.labels("503", "overloaded")
        self.rejected.labels("503", "limits_unavailable")
        self.choices = Counter(
            "mildroute_choices",
            "Decisions, by the expert to call first and the reason.",
            ["expert", "reason"],
            registry=self.registry,
        )
        self.decision_seconds = Histogram(
            "mildroute_decision_seconds",
            "Time to decide, encoding included.",
            buckets=_DECISION_SECONDS,
            registry=self.registry,
        )
        self.first_byte_seconds = Histogram(
            "mildroute_first_byte_seconds",
            "Time from the arrival of a request to the first byte of its answer.",
            ["expert"],
            buckets=_ANSWER_SECONDS,
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "mildroute_request_seconds",
            "Time from the arrival of a request to the last byte of its answer.",
            ["expert"],
            buckets=_ANSWER_SECONDS,
            registry=self.registry,
        )
        self.key_spend = Counter(
            "mildroute_key_spend_dollars",
            "Dollars charged to the client's key.",
            ["key"],
            registry=self.registry,
        )

    def _add_experts(self) -> None:
        self.attempts = Counter(
            "mildroute_attempts",
            "Calls of experts that have ended; error_type is empty if they succeeded.",
            ["expert", "error_type"],
            registry=self.registry,
        )
        self.fallbacks = Counter(
            "mildroute_fallbacks",
            "Experts that failed before the first byte of an answer, and the reason.",
            ["expert", "reason"],
            registry=self.registry,
        )
        self.streams_cut = Counter(
            "mildroute_streams_cut",
            "Streams that ended after their first byte and before their end, and the reason.",
            ["expert", "reason"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "mildroute_tokens",
            "Tokens of answered requests.",
            ["expert", "direction"],
            registry=self.registry,
        )
        self.spend = Counter(
            "mildroute_spend_dollars",
            "Dollars charged by the expert that answered.",
            ["expert"],
            registry=self.registry,
        )
        self.baseline = Counter(
            "mildroute_baseline_dollars",
            "Dollars that the baseline would have charged for the same tokens.",
            ["expert"],
            registry=self.registry,
        )

    def _add_learning(self) -> None:
        self.exploration_spend = Counter(
            "mildroute_exploration_dollars",
            "Expected dollars of exploration beyond the router's choices.",
            registry=self.registry,
        )
        self.samples = Counter(
            "mildroute_samples",
            "Requests that were drawn to be sent to the other experts as well, by result.",
            ["sample"],
            registry=self.registry,
        )
        self.sampling_spend = Counter(
            "mildroute_sampling_dollars",
            "Dollars charged for sampled calls and for judging them; no key pays them.",
            ["expert"],
            registry=self.registry,
        )
        self.feedback = Counter(
            "mildroute_feedback",
            "Scores received, by whether this gateway remembers the decision.",
            ["known"],
            registry=self.registry,
        )
        self.lost_lines = Counter(
            "mildroute_log_lost_lines",
            "Lines of a log that could not be written.",
            ["log"],
            registry=self.registry,
        )
        self.reloads = Counter(
            "mildroute_reloads",
            "Reloads of the router, the experts and the client keys.",
            ["kind", "result"],
            registry=self.registry,
        )
        for kind in ("router", "experts", "keys"):
            for result in ("loaded", "rejected"):
                self.reloads.labels(kind, result)

    def _add_state(self) -> None:
        self._in_flight_gauge = self._gauge("in_flight", "Requests in flight.", "livesum")
        self._queue_gauge = self._gauge(
            "encoder_queue", "Inputs that wait for the encoder.", "livesum"
        )
        self._circuit_gauge = self._gauge(
            "breaker_state",
            "State of an expert's circuit: 0 closed, 1 half-open, 2 open.",
            "livemax",
            ["expert"],
        )
        self._budget_gauge = self._gauge(
            "key_budget_left_dollars",
            "Dollars that a key may still spend today, in this process or, with a store, in all of"
            " them. Reservations are not subtracted.",
            "livemin",
            ["key"],
        )
        self._store_gauge = self._gauge(
            "store_available",
            "1 if the shared store responds, 0 while limits are enforced without it; NaN without a"
            " store.",
            "livemin",
        )
        self._sampling_gauge = self._gauge(
            "sampling_left_dollars",
            "Dollars that sampling may still cost today in all gateways that share its folder; NaN"
            " without sampling.",
            "livemin",
        )
        self._level_gauge = self._gauge(
            "drift_level",
            "Reading of the drift: 0 steady, 1 moved, 2 shifted; NaN with too few decisions.",
            "livemax",
            ["of"],
        )
        self._router_gauge = self._gauge(
            "router_info",
            "1 for the artifact that decides and the expert that savings are measured against.",
            "livemax",
            ["digest", "baseline"],
        )
        self._show_router("", "")

    def _gauge(self, name: str, description: str, mode: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(
            f"mildroute_{name}",
            description,
            labels,
            registry=self.registry,
            multiprocess_mode=mode,  # type: ignore[arg-type]
        )

    def set_router(self, digest: str, drift: Drift | None = None) -> None:
        """Set the current router and the comparison of its decisions with its training data."""
        self._drift = drift
        self._show_router(digest, self._router[1])

    def set_experts(self, experts: Iterable[str], baseline: str) -> None:
        """Set the experts that can be called, and the one that savings are measured against."""
        self._show_router(self._router[0], baseline)
        # Prometheus sees a counter grow only if it has scraped an earlier value.
        for expert in experts:
            self.spend.labels(expert)
            self.baseline.labels(expert)

    def _show_router(self, digest: str, baseline: str) -> None:
        # A series cannot be removed while several workers share their metrics.
        self._router_gauge.labels(*self._router).set(0)
        self._router_gauge.labels(digest, baseline).set(1)
        self._router = (digest, baseline)

    def watch(
        self,
        *,
        in_flight: Callable[[], float] | None = None,
        queue: Callable[[], float] | None = None,
        circuits: Callable[[], Mapping[str, str]] | None = None,
        budgets: Callable[[], Iterable[tuple[str, float, float]]] | None = None,
        lost: Callable[[], Mapping[str, int]] | None = None,
        store: Callable[[], bool] | None = None,
        sampling: Callable[[], float] | None = None,
    ) -> None:
        """Read these sources whenever metrics are collected; ``None`` leaves a source unchanged.

        Args:
            in_flight: Requests in flight.
            queue: Inputs that wait for the encoder.
            circuits: State of each expert's circuit: ``closed``, ``half-open`` or ``open``.
            budgets: Name, dollars left today and dollars reserved of each key with a budget.
            lost: Entries that could not be written, by the name of their log.
            store: Whether the shared store responds.
            sampling: Dollars that sampling may still cost today; NaN before the first sample.
        """
        self._in_flight = in_flight or self._in_flight
        self._queue = queue or self._queue
        self._circuits = circuits or self._circuits
        self._budgets = budgets or self._budgets
        self._lost = lost or self._lost
        self._store = store or self._store
        self._sampling = sampling or self._sampling

    def record_decision(self, expert: str | None, reason: str, seconds: float) -> None:
        """Count a decision for an expert; ``None`` means that no expert can take the request."""
        self.choices.labels(expert or "none", reason).inc()
        if reason != "pinned":
            observe(self.decision_seconds, seconds)

    def record_exploration(self, dollars: float) -> None:
        """Count the expected cost of an exploration draw beyond that of the router's choice."""
        add(self.exploration_spend, dollars)

    def record_sample(self, result: str) -> None:
        """Count a request that was drawn to be sampled."""
        self.samples.labels(result).inc()

    def record_sampled_call(self, expert: str, dollars: float) -> None:
        """Count the dollars of a sampled call, or of judging."""
        add(self.sampling_spend.labels(expert), dollars)

    def record_feedback(self, *, is_known: bool) -> None:
        """Count a score for the answer to a decision."""
        self.feedback.labels("yes" if is_known else "no").inc()

    def record_prediction(
        self, router: str, posterior: Sequence[float], point: Hashable, best: int
    ) -> None:
        """Compare a prediction of the router with its training data.

        Args:
            router: Digest of the router that predicted. A request that began before a reload still
                has the previous router's prediction, which is not compared.
            posterior: Probabilities of the experts.
            point: Vertices of the operating point, or ``None``.
            best: Index of the expert that ranks first.
        """
        if self._drift is not None and router == self._router[0]:
            self._drift.add(posterior, point, best)

    def record_request(self, record: DecisionRecord) -> None:
        """Count a request that has ended."""
        self.requests.labels(record.path, str(record.status)).inc()
        expert = record.served_by
        if not expert:
            return
        add(self.tokens.labels(expert, "in"), record.tokens_in)
        add(self.tokens.labels(expert, "out"), record.tokens_out)
        add(self.spend.labels(expert), record.cost_usd)
        add(self.baseline.labels(expert), record.baseline_cost_usd)
        observe(self.first_byte_seconds.labels(expert), record.first_byte_seconds)
        observe(self.request_seconds.labels(expert), record.seconds)
        if record.key:
            add(self.key_spend.labels(record.key), record.cost_usd)

    def record_attempt(self, expert: str, error_type: str) -> None:
        """Count a call of an expert; ``error_type`` is empty if it succeeded."""
        self.attempts.labels(expert, error_type).inc()

    def record_fallback(self, expert: str, reason: str) -> None:
        """Count an expert that failed before its first byte, with a reason such as ``timeout``."""
        self.fallbacks.labels(expert, reason).inc()

    def record_rejection(self, status: int, code: str | None) -> None:
        """Count a request that was rejected before a decision."""
        self.rejected.labels(str(status), code or "none").inc()

    def record_cut(self, expert: str, reason: str) -> None:
        """Count a stream that began and did not complete."""
        self.streams_cut.labels(expert, reason).inc()

    def record_reload(self, kind: str, *, is_loaded: bool) -> None:
        """Count a reload of the ``router``, ``experts`` or ``keys``."""
        self.reloads.labels(kind, "loaded" if is_loaded else "rejected").inc()

    def refresh(self) -> None:
        """Update the gauges from their sources."""
        self._in_flight_gauge.set(self._in_flight())
        self._queue_gauge.set(self._queue())
        for expert, state in self._circuits().items():
            self._circuit_gauge.labels(expert).set(STATES[state])
        for key, dollars, _ in self._budgets():
            self._budget_gauge.labels(key).set(dollars)
        for log, lines in self._lost().items():
            self.lost_lines.labels(log).inc(lines - self._reported_lost.get(log, 0))
            self._reported_lost[log] = lines
        self._store_gauge.set(nan if self._store is None else float(self._store()))
        self._sampling_gauge.set(self._sampling())
        if self._drift is not None:
            report = self._drift.report()
            for name, reading in (("scores", report.scores), ("shares", report.shares)):
                self._level_gauge.labels(name).set(LEVELS[reading.reading])

    async def refresh_forever(self) -> None:
        """Update the gauges periodically, because another worker may report them."""
        while True:
            self.refresh()
            await asyncio.sleep(_REFRESH_INTERVAL)

    def current(self) -> CollectorRegistry:
        """Return the registry of this process, or of all workers if several serve the port."""
        folder = os.environ.get(WORKERS_FOLDER)
        if folder is None:
            return self.registry
        self.refresh()
        forget_dead_workers(Path(folder))
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
        return registry

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.current())


class Refresher(Collector):
    """A collector without metrics that updates the gauges before they are collected."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh

    def collect(self) -> Iterable[Metric]:
        """Update the gauges and return no metrics."""
        self._refresh()
        return ()


def add(counter: Counter, amount: float) -> None:
    """Add an amount; skip an impossible one, which would corrupt the sum permanently."""
    if 0 <= amount < _MAX_AMOUNT:
        counter.inc(amount)


def observe(histogram: Histogram, seconds: float) -> None:
    """Record a duration; skip an impossible one, which would corrupt the sum permanently."""
    if 0 <= seconds < _MAX_AMOUNT:
        histogram.observe(seconds)


def forget_dead_workers(folder: Path) -> None:
    """Delete the gauges of workers that were killed; their counters stay."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = int(path.stem.rsplit("_", 1)[1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
