"""Comparisons of two routers that may be checked every day, and changes of experts.

A test of fixed size errs more often the more often its result is checked. Here the evidence for a
gain is the wealth of gamblers that bet on it: without a gain, the probability that their wealth
ever reaches ``1 / alpha`` is at most ``alpha``, whenever and however often it is checked
(Waudby-Smith and Ramdas, 2024). Each gambler always bets the same fraction, so the wealth depends
on which decisions have a score and not on the order in which scores arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from mildroute._format import pluralize
from mildroute.evaluation.intervals import Interval
from mildroute.exceptions import ArgumentError, ShapeError

__all__ = [
    "Change",
    "LearningPlan",
    "RolloutDecision",
    "SequentialComparison",
    "canary_gains",
    "compare_sequentially",
    "find_change",
    "judge_candidate",
    "judge_promoted",
    "restarted_evidence",
    "share_of_alpha",
]

Vector = NDArray[np.float64]

# Fractions of the worst possible loss that the gamblers bet. The best one is the mean gain times
# the bound over the variance: 0.05 to 0.8 for gains of 1 to 20 points at the usual shares.
_FRACTIONS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
_PRIOR = np.log(np.array([1, 2, 3, 2, 1]) / 9)
_BISECTIONS = 25


def canary_gains(costs: Any, is_canary: Any, share: Any, forecasts: Any, bound: float) -> Vector:
    """Return an unbiased, doubly robust estimate of the candidate's saving on each canary request.

    A canary is an experiment: a random draw, independent of the request, selects the router that
    decides. The request's cost minus its forecast, weighted with the inverse probability of that
    router, then counts for both. If both routers choose the same expert, nothing is saved, whatever
    the answer was worth: set the gain to 0 there.

    Args:
        costs: Costs of the answers, shape (n,); capped at the bound.
        is_canary: Whether the candidate decided, shape (n,).
        share: Probability that the candidate decides, shape (n,) or one for all.
        forecasts: Expected cost of the choices of the router in use and of the candidate, shape (n,
            2), learned from other rows than these.
        bound: Highest cost.

    Returns:
        Gains, shape (n,); above 0 the candidate is cheaper. Each gain is at least minus the bound
        over the smaller probability.

    Example:
        >>> canary_gains([1.0, 0.0], [False, True], 0.5, [[0.6, 0.4], [0.6, 0.4]], 1.0)
        array([1., 1.])
    """
    seen = np.clip(np.asarray(costs, dtype=np.float64), 0.0, bound)
    expected = np.clip(np.asarray(forecasts, dtype=np.float64), 0.0, bound)
    if expected.shape != (len(seen), 2):
        raise ShapeError(f"forecasts must be ({len(seen)}, 2), got {expected.shape}.")
    decided = np.asarray(is_canary, dtype=bool)
    chance = np.broadcast_to(np.asarray(share, dtype=np.float64), seen.shape)
    if len(chance) and not 0 < chance.min() <= chance.max() < 1:
        raise ArgumentError(
            f"a share must lie between 0 and 1, got {chance.min():g} to {chance.max():g}; without"
            " a coin nothing can be compared."
        )
    signed = np.where(
        decided, -(seen - expected[:, 1]) / chance, (seen - expected[:, 0]) / (1 - chance)
    )
    return np.asarray(signed + expected[:, 0] - expected[:, 1], dtype=np.float64)


@dataclass(frozen=True)
class SequentialComparison:
    """The evidence on the mean gain of one router over another after some decisions.

    Args:
        gains: As for ``compare_sequentially``.
        bounds: As for ``compare_sequentially``, shape (n,).
        alpha: As for ``compare_sequentially``.

    Example:
        >>> found = compare_sequentially([0.5, 0.0, 0.5] * 40, 1.0, alpha=0.05)
        >>> found.is_better(0.05), found.is_worse(0.05), found.gain.low > 0
        (True, False, True)
    """

    gains: Vector
    bounds: Vector
    alpha: float

    @cached_property
    def gain(self) -> Interval:
        """Return the mean, with an interval that holds for all checks together."""
        mean = float(self.gains.mean()) if len(self.gains) else 0.0
        low = -_highest_mean(-self.gains, self.bounds, self.alpha)
        high = _highest_mean(self.gains, self.bounds, self.alpha)
        return Interval(mean, low, high, 1 - 2 * self.alpha)

    @cached_property
    def evidence(self) -> float:
        """Return the logarithm of the wealth of the gamblers that bet on a gain."""
        return _log_wealth(self.gains, self.bounds)

    @cached_property
    def harm(self) -> float:
        """Return the logarithm of the wealth of the gamblers that bet on a loss."""
        return _log_wealth(-self.gains, self.bounds)

    @property
    def rows(self) -> int:
        """Return the number of decisions that were counted."""
        return len(self.gains)

    @property
    def differing(self) -> int:
        """Return the number of decisions on which the routers differ."""
        return int(np.count_nonzero(self.gains))

    def is_better(self, alpha: float) -> bool:
        """Return whether the gain is above 0, with error probability ``alpha`` over all checks."""
        return self.evidence >= -math.log(alpha)

    def is_worse(self, alpha: float) -> bool:
        """Return whether the gain is below 0, with error probability ``alpha`` over all checks."""
        return self.harm >= -math.log(alpha)


def compare_sequentially(gains: Any, bounds: Any, *, alpha: float = 0.05) -> SequentialComparison:
    """Return the evidence for and against a gain in all decisions so far.

    Args:
        gains: One gain per decision, shape (n,); 0 if both routers make the same choice.
        bounds: Largest possible loss or gain, shape (n,) or one for all. A bound must not depend on
            the request, only on what was fixed earlier, such as the share of a canary.
        alpha: Probability that the interval misses the mean at any check, on each side.

    Returns:
        The comparison.

    Example:
        >>> compare_sequentially([0.0, 0.0], 1.0).is_better(0.05)
        False
    """
    values = np.asarray(gains, dtype=np.float64)
    limits = np.broadcast_to(np.asarray(bounds, dtype=np.float64), values.shape)
    if (np.abs(values) > limits * (1 + 1e-9)).any():
        raise ArgumentError(
            "gains must keep within their bounds, got"
            f" {np.abs(values).max():g}; clip costs at their highest before."
        )
    return SequentialComparison(values, limits, alpha)


def restarted_evidence(gains: Any, bounds: Any, every: int) -> tuple[float, int]:
    """Return the strongest evidence for a gain since any start, and the number of starts.

    A router that was better for a month and gets worse has a month of evidence in its favor.
    Restarts at regular intervals forget that evidence; the probability of a false alarm is that of
    one start times the number of starts.

    Args:
        gains: As for ``compare_sequentially``; pass losses to detect harm.
        bounds: As for ``compare_sequentially``.
        every: Number of decisions between two starts.

    Example:
        >>> evidence, starts = restarted_evidence([-0.5] * 100 + [0.5] * 100, 1.0, 50)
        >>> evidence > 10, starts
        (True, 4)
    """
    values = np.asarray(gains, dtype=np.float64)
    limits = np.broadcast_to(np.asarray(bounds, dtype=np.float64), values.shape)
    starts = range(0, max(len(values), 1), every)
    evidence = [_log_wealth(values[start:], limits[start:]) for start in starts]
    return max(evidence), len(evidence)


def share_of_alpha(alpha: float, candidate: int) -> float:
    """Return the part of a month's error for a candidate, numbered from 1.

    The shares of any number of candidates add up to ``alpha``.

    Example:
        >>> [round(share_of_alpha(0.05, candidate), 4) for candidate in (1, 2, 3)]
        [0.0304, 0.0076, 0.0034]
    """
    return alpha * 6 / (math.pi * candidate) ** 2


def _log_wealth(gains: Vector, bounds: Vector, mean: float = 0.0, counts: Any = 1.0) -> float:
    """Return the log mean wealth of the gamblers if the mean gain is at most ``mean``."""
    if not len(gains):
        return 0.0
    relative = (gains - mean) / (bounds + abs(mean))
    each = np.broadcast_to(counts, gains.shape) @ np.log1p(np.outer(relative, _FRACTIONS))
    return float(logsumexp(each + _PRIOR))


def _highest_mean(gains: Vector, bounds: Vector, alpha: float) -> float:
    """Return the upper end of the interval, the highest mean that the gains do not exclude."""
    if not len(gains):
        return 1.0
    # The routers agree on most decisions, and those are all alike.
    differs = gains != 0
    limits, alike = np.unique(bounds[~differs], return_counts=True)
    signed = np.concatenate([-gains[differs], np.zeros(len(limits))])
    limits = np.concatenate([bounds[differs], limits])
    counts = np.concatenate([np.ones(len(signed) - len(alike)), alike])

    def is_refuted(mean: float) -> bool:
        return _log_wealth(signed, limits, -mean, counts) >= -math.log(alpha)

    return _bisect(is_refuted, float(gains.mean()), float(bounds.max()))


def _bisect(is_refuted: Callable[[float], bool], low: float, high: float) -> float:
    if not is_refuted(high):
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_refuted(middle) else (middle, high)
    return high


# Rules for continuing, promoting or dropping a candidate.


@dataclass(frozen=True)
class LearningPlan:
    """The evidence required for each step.

    Args:
        alpha: Probability that a month promotes anything if no candidate is better, and that a
            router that is not worse is rolled back.
        shadow_requests: Requests on which a candidate is compared before it serves any traffic.
        first_share: Share of the requests that a candidate gets at first.
        first_requests: Requests until a candidate gets ``canary_share``.
        canary_share: Share that a candidate then gets; 0.5 needs the fewest requests for a verdict.
        max_requests: Number of requests without a verdict after which a candidate is dropped.
        holdout_share: Share that the previous router keeps while a promoted one is watched.
        watch_requests: Number of requests for which a promoted router is watched.
        restart_requests: A watch forgets requests older than a few times this number.
        fewest_rows: Scored rows that a first fit needs.
        fewest_of_expert: Scores that a fit needs of each expert.
        refit_rows: Scored rows since the last fit that trigger another one.
        settle_seconds: Time that gateways need to pick up a new pointer; decisions during that time
            do not count.

    Example:
        >>> LearningPlan().canary_share
        0.5
    """

    alpha: float = 0.05
    shadow_requests: int = 500
    first_share: float = 0.1
    first_requests: int = 1000
    canary_share: float = 0.5
    max_requests: int = 10_000
    holdout_share: float = 0.1
    watch_requests: int = 10_000
    restart_requests: int = 1000
    fewest_rows: int = 100
    fewest_of_expert: int = 30
    refit_rows: int = 1000
    settle_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Check the values that users can set."""
        for name in ("alpha", "first_share", "canary_share", "holdout_share"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ArgumentError(f"{name} must lie between 0 and 1, got {value:g}.")


@dataclass(frozen=True)
class RolloutDecision:
    """A decision with its reason in a sentence."""

    action: str
    why: str


# Minimum number of decisions of a canary before it may be promoted, however good it looks.
_FEWEST_OF_CANARY = 200


def judge_candidate(
    plan: LearningPlan,
    share: float,
    in_stage: int,
    requests: int,
    found: SequentialComparison,
    alpha: float,
) -> RolloutDecision:
    """Decide whether a candidate waits, advances to a larger share, is promoted or dropped.

    Args:
        plan: Evidence required for each step.
        share: Current share of requests; 0 in the shadow stage.
        in_stage: Requests since the candidate began to get this share.
        requests: Requests since the candidate was fitted.
        found: The candidate's comparison with the router in use.
        alpha: The candidate's part of the month's error.

    Returns:
        ``"wait"``, ``"advance"``, ``"promote"`` or ``"drop"``.

    Example:
        >>> found = compare_sequentially([0.5, 0.0] * 200, 2.0)
        >>> judge_candidate(LearningPlan(), 0.5, 400, 2000, found, 0.03).action
        'promote'
    """
    if found.is_worse(plan.alpha):
        return RolloutDecision("drop", f"{_saving(found)}: it costs more than the router in use")
    if share and in_stage >= _FEWEST_OF_CANARY and found.is_better(alpha):
        why = f"{_saving(found)}, at an error of {alpha:.4f} over all looks"
        return RolloutDecision("promote", why)
    if requests >= plan.max_requests:
        why = f"{_saving(found)} after {requests:,} requests: no gain could be shown"
        return RolloutDecision("drop", why)
    so_far = f"{pluralize(in_stage, 'request')} at a share of {share:g}"
    required = plan.first_requests if share else plan.shadow_requests
    if in_stage >= required and share < plan.canary_share:
        return RolloutDecision("advance", f"nothing speaks against it after {so_far}")
    return RolloutDecision("wait", f"no verdict yet after {so_far}")


def _saving(found: SequentialComparison) -> str:
    gain = found.gain
    return f"it saves {gain.value:.4f} [{gain.low:.4f}, {gain.high:.4f}] a request"


def judge_promoted(
    plan: LearningPlan, requests: int, gains: Vector, bounds: Vector
) -> RolloutDecision:
    """Decide whether a promoted router continues, is accepted or rolled back.

    Args:
        plan: Evidence required for each step.
        requests: Requests since the router was promoted.
        gains: Savings of the previous router on each counted decision, in chronological order.
        bounds: As for ``compare_sequentially``.

    Returns:
        ``"wait"``, ``"accept"`` or ``"roll back"``.

    Example:
        >>> judge_promoted(LearningPlan(), 400, np.full(400, 0.3), np.full(400, 10.0)).action
        'roll back'
    """
    evidence, _ = restarted_evidence(gains, bounds, plan.restart_requests)
    starts = math.ceil(plan.watch_requests / plan.restart_requests)
    mean = float(gains.mean()) if len(gains) else 0.0
    summary = f"it costs {mean:+.4f} a request against the router before, on {requests:,} requests"
    if evidence >= math.log(starts / plan.alpha):
        return RolloutDecision(
            "roll back", f"{summary}; lately more, at an error of {plan.alpha:g}"
        )
    if requests >= plan.watch_requests:
        return RolloutDecision("accept", summary)
    return RolloutDecision("wait", summary)


# Changes of an expert: its observed scores, or the logarithms of its dollars, minus what the
# router's outcome model expected. The model may be wrong by a constant, since the router sends an
# expert what it is good at, so residuals are compared with earlier residuals and not with 0.


# Number of standard deviations by which the means before and after a change must differ, at the
# most significant split. benchmarks/quality/learning.py counts the false alarms of 1,000 simulated
# months of 30,000 requests and three experts, each with scores and dollars, checked every 100
# requests.
THRESHOLD = 5.0
_FEWEST_ROWS = 40
# Number of rows between two splits that are tried.
_STEP = 5


@dataclass(frozen=True)
class Change:
    """A change of the mean of a series.

    Attributes:
        row: Estimated first row after the change.
        before: Mean before the change.
        after: Mean after the change.
        deviations: Number of standard errors by which the means differ.

    Example:
        >>> Change(300, 0.0, -0.2, 6.1).size
        -0.2
    """

    row: int
    before: float
    after: float
    deviations: float

    @property
    def size(self) -> float:
        """Return the mean after minus the mean before."""
        return self.after - self.before


def find_change(residuals: Any, *, threshold: float = THRESHOLD) -> Change | None:
    """Find the most significant change of a series, or `None`.

    The statistic is the generalized likelihood ratio over all splits that leave some rows on both
    sides.

    Args:
        residuals: Observed minus expected, in chronological order, shape (n,).
        threshold: Number of standard errors by which the means must differ. The default keeps the
            probability of a false alarm in a month below 1%.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> residuals = rng.normal(size=800) * 0.4
        >>> residuals[600:] -= 0.3
        >>> change = find_change(residuals)
        >>> change.row, round(change.size, 1), find_change(residuals[:600])
        (590, -0.3, None)
    """
    values = np.asarray(residuals, dtype=np.float64)
    rows = len(values)
    splits = np.arange(_FEWEST_ROWS, rows - _FEWEST_ROWS + 1, _STEP)
    if not len(splits):
        return None
    total, squares = np.cumsum(values), np.cumsum(values**2)
    later = rows - splits
    before, after = total[splits - 1] / splits, (total[-1] - total[splits - 1]) / later
    own = (
        squares[splits - 1] / splits - before**2,
        (squares[-1] - squares[splits - 1]) / later - (after**2),
    )
    pooled = (splits * own[0] + later * own[1]) / rows
    # Errors of a good expert are rare: a few more than usual among 40 rows are many deviations off
    # by the variance of all rows, but few by the variance of their own.
    variance = np.maximum(pooled / splits + pooled / later, own[0] / splits + own[1] / later)
    error = np.sqrt(np.maximum(variance, 0.0))
    size = after - before
    # A series without any spread has changed at the slightest difference.
    ratio = np.abs(size) / np.maximum(error, 1e-12)
    best = int(ratio.argmax())
    if ratio[best] < threshold:
        return None
    return Change(int(splits[best]), float(before[best]), float(after[best]), float(ratio[best]))
