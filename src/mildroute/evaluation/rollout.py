"""Rules for continuing, promoting or dropping a candidate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mildroute._format import pluralize
from mildroute.evaluation.sequential import (
    SequentialComparison,
    Vector,
    restarted_evidence,
)
from mildroute.exceptions import ArgumentError

__all__ = ["LearningPlan", "RolloutDecision", "judge_candidate", "judge_promoted"]


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
    comparison: SequentialComparison,
    alpha: float,
) -> RolloutDecision:
    """Decide whether a candidate waits, advances to a larger share, is promoted or dropped.

    Args:
        plan: Evidence required for each step.
        share: Current share of requests; 0 in the shadow stage.
        in_stage: Requests since the candidate began to get this share.
        requests: Requests since the candidate was fitted.
        comparison: The candidate's comparison with the router in use.
        alpha: The candidate's part of the month's error.

    Returns:
        ``"wait"``, ``"advance"``, ``"promote"`` or ``"drop"``.

    Example:
        >>> comparison = compare_sequentially([0.5, 0.0] * 200, 2.0)
        >>> judge_candidate(LearningPlan(), 0.5, 400, 2000, comparison, 0.03).action
        'promote'
    """
    if comparison.is_worse(plan.alpha):
        return RolloutDecision(
            "drop", f"{_saving(comparison)}: it costs more than the router in use"
        )
    if share and in_stage >= _FEWEST_OF_CANARY and comparison.is_better(alpha):
        why = f"{_saving(comparison)}, at an error of {alpha:.4f} over all looks"
        return RolloutDecision("promote", why)
    if requests >= plan.max_requests:
        why = f"{_saving(comparison)} after {requests:,} requests: no gain could be shown"
        return RolloutDecision("drop", why)
    so_far = f"{pluralize(in_stage, 'request')} at a share of {share:g}"
    required = plan.first_requests if share else plan.shadow_requests
    if in_stage >= required and share < plan.canary_share:
        return RolloutDecision("advance", f"nothing speaks against it after {so_far}")
    return RolloutDecision("wait", f"no verdict yet after {so_far}")


def _saving(comparison: SequentialComparison) -> str:
    gain = comparison.gain
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
