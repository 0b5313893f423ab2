"""Drift: a comparison of current inputs with the training data.

Drift is measured by the population stability index of scores and of shares. The index of two
histograms p and q is the sum of (q - p) ln(q / p) over their bins. Values below 0.1 are usually
read as steady, values up to 0.25 as moved, and larger values as shifted.

The index is positive even if nothing has changed: with B bins, n current decisions and m rows
behind the reference, its mean is (B - 1)(1/n + 1/m), and its distribution is 1/n + 1/m times a
chi-squared distribution with B - 1 degrees of freedom. Therefore the mean is subtracted before the
index is read, and an index below the 99.9% quantile counts as steady. Both corrections assume
independent decisions. Many turns of few conversations carry less information, and the index is
then noisier than stated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf, log, nan

from scipy.special import chdtri

from mildroute.exceptions import ArgumentError

__all__ = ["Drift", "DriftReference", "DriftReport", "StabilityIndex", "Window", "stability"]


# The usual thresholds, for the index minus its noise.
MOVED, SHIFTED = 0.1, 0.25

_PANES = 8
_BINS = 20
# Added to each bin of both histograms, so that an empty bin does not make the index infinite.
_PSEUDO = 0.5
_MIN_PER_BIN = 5


@dataclass(frozen=True)
class StabilityIndex:
    """The distance of a histogram from its reference.

    Args:
        index: Population stability index; NaN while there are too few decisions.
        noise: Mean of the index if nothing has changed.
        limit: 99.9% quantile of the index if nothing has changed.
        decisions: Number of decisions in the histogram.
    """

    index: float
    noise: float
    limit: float
    decisions: int

    @property
    def corrected(self) -> float:
        """The index minus its noise, at least zero; NaN while there are too few decisions."""
        return self.index if self.index != self.index else max(0.0, self.index - self.noise)

    @property
    def reading(self) -> str:
        """``"unknown"``, ``"steady"``, ``"moved"`` or ``"shifted"``."""
        if self.index != self.index:
            return "unknown"
        if self.index <= self.limit or self.corrected < MOVED:
            return "steady"
        return "moved" if self.corrected < SHIFTED else "shifted"


def stability(
    reference: Sequence[float], counts: Sequence[int], rows: float = inf
) -> StabilityIndex:
    """Return the population stability index of counts against a reference, and its noise.

    Args:
        reference: Count or share of each bin; only the proportions matter.
        counts: Decisions in each bin, in the same order.
        rows: Rows behind the reference; infinite if it is exact.

    Returns:
        The index with its noise and limit; NaN with fewer than five decisions per bin.
    """
    # Bins that are empty in both histograms carry no information. There are many, because the
    # largest of p probabilities is at least 1/p.
    pairs = [(before, now) for before, now in zip(reference, counts, strict=True) if before or now]
    bins, n = len(pairs), sum(counts)
    if n < _MIN_PER_BIN * bins or not n:
        return StabilityIndex(nan, nan, nan, n)
    part = n / sum(reference)
    smoothed = [(before * part + _PSEUDO, now + _PSEUDO) for before, now in pairs]
    index = sum((now - before) * log(now / before) for before, now in smoothed) / (
        n + _PSEUDO * bins
    )
    scale = 1 / n + 1 / rows
    return StabilityIndex(
        index, (bins - 1) * scale, float(chdtri(bins - 1, 0.001)) * scale if bins > 1 else 0.0, n
    )


class Window:
    """Counts of the latest decisions by bin.

    Counts are added and dropped in panes of an eighth of the window, so that memory does not grow
    with its length.

    Args:
        bins: Number of bins.
        decisions: Length of the window, of which between seven eighths and all are counted.
    """

    __slots__ = ("_full", "_now", "_pane", "_room")

    def __init__(self, bins: int, decisions: int) -> None:
        self._pane = decisions // _PANES
        self._room = self._pane
        self._now = [0] * bins
        self._full: deque[list[int]] = deque(maxlen=_PANES - 1)

    def add(self, index: int) -> None:
        """Count a decision."""
        if not self._room:
            self._full.append(self._now)
            self._room, self._now = self._pane, [0] * len(self._now)
        self._now[index] += 1
        self._room -= 1

    def counts(self) -> list[int]:
        """Return the number of decisions in each bin."""
        return [sum(column) for column in zip(self._now, *self._full, strict=True)]


@dataclass(frozen=True)
class DriftReference:
    """The distribution of decisions on held-out rows when the router was fitted.

    Training rows would not do, because the router is overconfident on them.

    Args:
        shares: Share of rows on which each expert is the router's first choice after the coin toss,
            in the order of the experts.
        histogram: Share or number of rows by their largest posterior, in equal bins from 0 to 1.
        rows: Rows behind both; infinite if unknown.
        point: The operating point at which the choices were made, or ``None`` if prices do not
            matter; used only for comparison.
    """

    shares: Sequence[float]
    histogram: Sequence[float]
    rows: float = inf
    point: Hashable = None

    def __post_init__(self) -> None:
        """Reject values that are not a distribution."""
        for values in (self.shares, self.histogram):
            if (
                not all(0 <= value < inf for value in values)
                or not sum(values) > 0
                or not self.rows > 0
            ):
                raise ArgumentError(
                    f"a reference must have rows and no negative share, got {list(values)!r:.80};"
                    " store the router again."
                )


@dataclass(frozen=True)
class DriftReport:
    """The current drift of scores and shares.

    Args:
        source: Source of the reference: ``"training"``, ``"first decisions"``, or ``"learning"``
            while the first decisions are being collected.
        scores: Drift of the largest posteriors.
        shares: Drift of the experts' shares.
    """

    source: str
    scores: StabilityIndex
    shares: StabilityIndex


class Drift:
    """A comparison of the router's latest predictions with those when it was fitted.

    Args:
        experts: Names of the experts.
        reference: The reference in the artifact. If it is ``None``, the first ``window`` decisions
            become the reference, so that only later changes are detected.
        window: Number of latest decisions to compare.
    """

    def __init__(
        self, experts: Sequence[str], reference: DriftReference | None = None, *, window: int = 2000
    ) -> None:
        if reference is not None and len(reference.shares) != len(experts):
            raise ArgumentError(
                f"a reference must have a share for each of {len(experts)} experts, got"
                f" {len(reference.shares)}; use the reference of the same artifact."
            )
        if window < _PANES:
            raise ArgumentError(f"window must be at least {_PANES} decisions, got {window}.")
        self._experts = len(experts)
        self._reference = reference
        self._window = window
        self._source = "learning" if reference is None else "training"
        self._point = None if reference is None else reference.point
        self._bins = _BINS if reference is None else len(reference.histogram)
        self._to_learn = 0 if reference is not None else window // _PANES * _PANES
        self._begin()

    def add(
        self, posterior: Sequence[float], point: Hashable = None, chosen: int | None = None
    ) -> None:
        """Count a prediction.

        Predictions at an operating point other than the reference's are left out, because they
        choose differently by design.

        Args:
            posterior: Posterior of the experts.
            point: The operating point.
            chosen: Index of the router's first choice, which may have been drawn at random;
                defaults to the index of the largest posterior.
        """
        if self._point is not None and point != self._point:
            return
        top = max(posterior)
        self._shares.add(posterior.index(top) if chosen is None else chosen)
        self._scores.add(min(int(top * self._bins), self._bins - 1))
        if self._to_learn:
            self._learn(point)

    def report(self) -> DriftReport:
        """Return both indices over the latest decisions."""
        reference = self._reference
        if reference is None:
            unknown = StabilityIndex(nan, nan, nan, sum(self._shares.counts()))
            return DriftReport(self._source, unknown, unknown)
        return DriftReport(
            self._source,
            stability(reference.histogram, self._scores.counts(), reference.rows),
            stability(reference.shares, self._shares.counts(), reference.rows),
        )

    def _begin(self) -> None:
        self._scores = Window(self._bins, self._window)
        self._shares = Window(self._experts, self._window)

    def _learn(self, point: Hashable) -> None:
        """Count a prediction toward the reference, which has the first one's operating point."""
        self._point, self._to_learn = point, self._to_learn - 1
        if not self._to_learn:
            shares = self._shares.counts()
            self._reference = DriftReference(shares, self._scores.counts(), sum(shares), point)
            self._source = "first decisions"
            self._begin()
