"""What a gateway tells Prometheus, in a registry of its own.

One process is one registry. With several workers behind one port each scrape would meet another one of them, and counters would seem to
fall; so run one process a container and let Prometheus scrape each. Their counters add up: ``sum by (expert) (rate(...))``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from mildroute.serving.decision import Decision
from mildroute.serving.drift import Drift
from mildroute.serving.gauges import Gauges
from mildroute.serving.opinion import Opinion
from mildroute.serving.record import Record
from mildroute.serving.series import Histogram, Tally

__all__ = ["Telemetry"]

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SHORT = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_WHOLE = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)


class _Series:
    """Every series that requests feed."""

    def __init__(self, keys: int) -> None:
        self.choices = Tally("mildroute_choices", "Decisions by the expert to ask first, and why.", ("expert", "reason"))
        self.requests = Tally("mildroute_requests", "Requests that have ended, by the status that the client saw.", ("path", "status"))
        self.refused = Tally(
            "mildroute_refused", "Requests that were refused before a decision, with the error's code.", ("status", "code")
        )
        # Prometheus sees how much a counter has grown only if it has met it before, and an alert looks at this one.
        self.refused.add(("503", "overloaded"), 0.0)
        self.fallbacks = Tally("mildroute_fallbacks", "Experts that failed before their first byte, and how.", ("expert", "why"))
        self.tokens = Tally("mildroute_tokens", "Tokens of answered requests.", ("expert", "direction"))
        self.spend = Tally("mildroute_spend_dollars", "Dollars charged by who answered.", ("expert",))
        self.baseline = Tally("mildroute_baseline_dollars", "Dollars of the baseline for the tokens of who answered.", ("expert",))
        self.key_spend = Tally("mildroute_key_spend_dollars", "Dollars by the client's key.", ("key",), keys)
        self.shadow = Tally("mildroute_shadow_decisions", "Decisions of a shadow router, by whether both agree.", ("agrees",))
        self.decision = Histogram("mildroute_decision_seconds", "Time to decide, encoding included.", _SHORT)
        self.added = Histogram("mildroute_added_seconds", "Time that the gateway itself adds until the first byte.", _SHORT)
        self.first_byte = Histogram("mildroute_first_byte_seconds", "From arrival to the answer's first byte.", _WAITS, ("expert",))
        self.seconds = Histogram("mildroute_request_seconds", "From arrival to the answer's last byte.", _WHOLE, ("expert",))
        self.batches = Histogram("mildroute_encoder_batch_size", "Inputs that were encoded together.", _BATCHES)


class Telemetry:
    """Metrics of one gateway; fed and read on its event loop alone.

    Money saved is the difference of two counters, ``mildroute_baseline_dollars_total`` less ``mildroute_spend_dollars_total``: it may be
    negative, and a counter must not fall.

    Args:
        keys: Names of keys that are told apart; further ones are counted together as ``other``.

    Attributes:
        registry: Where all metrics are found.

    Example:
        >>> telemetry = Telemetry()
        >>> telemetry.decided(Decision(("small",), "router"), None, 0.0004)
        >>> telemetry.registry.get_sample_value("mildroute_choices_total", {"expert": "small", "reason": "router"})
        1.0
        >>> page, kind = telemetry.render()
        >>> b"mildroute_decision_seconds_count 1.0" in page, kind
        (True, 'text/plain; version=0.0.4; charset=utf-8')
    """

    def __init__(self, *, keys: int = 200) -> None:
        self.registry = CollectorRegistry()
        self._gauges, self._series = Gauges(), _Series(keys)
        for collector in (self._gauges, self):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    def loaded(self, digest: str, experts: Sequence[str], drift: Drift | None = None, *, baseline: str = "") -> None:
        """Another artifact decides from now on, and its decisions are compared with its own training."""
        self._gauges.digest, self._gauges.drift, self._gauges.baseline = digest, drift, baseline
        # Prometheus sees how much a counter has grown only if it has met it before: let the dollars begin at zero.
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
        gauges.in_flight, gauges.queue = in_flight or gauges.in_flight, queue or gauges.queue
        gauges.circuits, gauges.lost = circuits or gauges.circuits, lost or gauges.lost

    def decided(self, decision: Decision, opinion: Opinion | None, seconds: float) -> None:
        """Count a decision."""
        reason = decision.reason
        self._series.choices.add((decision.expert or "none", reason))
        if reason != "named":
            self._series.decision.add((), seconds)
        gauges = self._gauges
        # A request that began before a swap still has the opinion of the router before it.
        if opinion is not None and gauges.drift is not None and opinion.router == gauges.digest:
            point = None if opinion.point is None else opinion.point.vertices
            gauges.drift.add(opinion.posterior, point, opinion.experts.index(opinion.ranking[0]))

    def answered(self, record: Record, added: float | None = None) -> None:
        """Count a request that has ended.

        Args:
            record: What came of it.
            added: Seconds of the gateway itself until the first byte: the time to the first byte without the wait for experts.
        """
        series = self._series
        series.requests.add((record.path, str(record.status)))
        if added is not None:
            series.added.add((), added)
        if record.shadow:
            series.shadow.add(("yes",) if record.shadow == _first_choice(record) else ("no",))
        if not record.answered:
            return
        expert = (record.answered,)
        series.tokens.add((record.answered, "in"), record.tokens_in)
        series.tokens.add((record.answered, "out"), record.tokens_out)
        series.spend.add(expert, record.dollars)
        series.baseline.add(expert, record.baseline_dollars)
        series.first_byte.add(expert, record.first_byte_seconds)
        series.seconds.add(expert, record.seconds)
        if record.key:
            series.key_spend.add((record.key,), record.dollars)

    def fallback(self, expert: str, why: str) -> None:
        """Count an expert that failed before its first byte; ``why`` is one of few words, such as ``"timeout"`` or ``"5xx"``."""
        self._series.fallbacks.add((expert, why))

    def refused(self, status: int, code: str | None) -> None:
        """Count a request that was refused before a decision; its code is one of the gateway's own, of which there are few."""
        self._series.refused.add((str(status), code or "none"))

    def batch(self, size: int) -> None:
        """Count a batch of the encoder."""
        self._series.batches.add((), size)

    def render(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and the type of that content."""
        return generate_latest(self.registry), _CONTENT_TYPE

    def collect(self) -> Iterator[Metric]:
        """What requests have fed, for the registry."""
        for series in vars(self._series).values():
            yield series.metric()


def _first_choice(record: Record) -> str:
    """What the router alone would have chosen; the shadow knows nothing of conversations, circuits and lots."""
    return record.first_choice or record.chosen
