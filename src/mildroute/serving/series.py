"""Counters and histograms for one event loop: no locks and no label objects, a small fraction of what the library's own cost a request."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

__all__ = ["Histogram", "Tally"]

_MOST = 1e15
_OTHER = "other"


class Tally:
    """Amounts by label, which only grow.

    Labels beyond a bound are counted together as ``other``, so that no client can fill the memory.

    Args:
        name: Of the metric, without ``_total``.
        words: What it counts.
        labels: Names of its labels.
        most: Values of the labels that are told apart.

    Example:
        >>> spend = Tally("spend_dollars", "Dollars.", ("expert",))
        >>> spend.add(("small",), 0.25)
        >>> spend.add(("small",), 0.5)
        >>> spend.metric().samples[0].value
        0.75
    """

    __slots__ = ("_labels", "_most", "_name", "_values", "_words")

    def __init__(self, name: str, words: str, labels: tuple[str, ...], most: int = 256) -> None:
        self._name, self._words, self._labels, self._most = name, words, labels, most
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, label: tuple[str, ...], amount: float = 1.0) -> None:
        """Count an amount; one that cannot be true, negative or beyond all measure, is left out, as it would spoil the sum for good."""
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
        name: Of the metric.
        words: What is observed.
        bounds: Upper bounds of the buckets, ascending; a last bucket takes what is larger.
        labels: Names of its labels.
        most: Values of the labels that are told apart; further ones are ``other``.

    Example:
        >>> sizes = Histogram("batch_size", "Inputs.", (1, 8))
        >>> for size in (1, 3, 100):
        ...     sizes.add((), size)
        >>> [(sample.name, sample.value) for sample in sizes.metric().samples][:4]
        [('batch_size_bucket', 1), ('batch_size_bucket', 2), ('batch_size_bucket', 3), ('batch_size_count', 3)]
    """

    __slots__ = ("_bounds", "_counts", "_labels", "_most", "_name", "_sums", "_words")

    def __init__(self, name: str, words: str, bounds: tuple[float, ...], labels: tuple[str, ...] = (), most: int = 256) -> None:
        self._name, self._words, self._bounds, self._labels, self._most = name, words, bounds, labels, most
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
            family.add_metric(label, list(zip(bounds, accumulate(counts), strict=True)), self._sums[label])
        return family

    def _begin(self, label: tuple[str, ...]) -> tuple[str, ...]:
        kept = label if len(self._counts) < self._most else (_OTHER,) * len(label)
        self._counts.setdefault(kept, [0] * (len(self._bounds) + 1))
        self._sums.setdefault(kept, 0.0)
        return kept
