"""The targets of an operating point, and their results on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mildroute.costs.table import CostTable
from mildroute.evaluation.cost_savings import savings_of_each
from mildroute.evaluation.expert_usage import expert_shares
from mildroute.evaluation.held_out_choices import request_keys
from mildroute.evaluation.measured_decisions import MeasuredDecisions
from mildroute.evaluation.metrics import chosen_costs
from mildroute.evaluation.resampling import Interval, bootstrap_means
from mildroute.evaluation.savings_sentences import shown_interval
from mildroute.evaluation.small_samples import too_few
from mildroute.exceptions import UnreachableTargetError
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter

__all__ = ["MeasuredTarget", "TargetCheck", "TargetVerdict", "check_target", "measure_targets"]

TargetVerdict: TypeAlias = Literal["met", "not decided", "missed"]

# Range of qualities, in percent, that the report's slider offers.
_LOWEST_TARGET = 50
_HIGHEST_TARGET = 110


@dataclass(frozen=True)
class TargetCheck:
    """The target of an operating point, and the measured result.

    Attributes:
        promised: The target value: dollars per 1,000 queries, or a share of the score of the best
            single expert.
        measured: The same figure on these rows; both scores of a share are resampled together.
        verdict: ``"met"`` or ``"missed"`` if the whole interval says so, else ``"not decided"``,
            which is also the verdict with too few rows for an interval.
    """

    target: str
    promised: float
    measured: Interval
    verdict: TargetVerdict

    @property
    def words(self) -> str:
        """Return the measured value in the target's own terms."""
        return shown_interval(self.measured, "{:.1%}" if "%" in self.target else "{:.4g}")


@dataclass(frozen=True)
class MeasuredTarget:
    """The results of a quality target on held-out rows.

    Attributes:
        quality: The target share of the score of the best single expert by score.
        saved: Share of that expert's bill that is saved.
        kept: Share of its score that is kept.
        dollars_per_1000: Bill of 1,000 queries.
        score: Mean score.
        shares: Share of queries that each expert answers, shape (p,).
        verdict: Whether these rows show that the quality is kept.
        is_in_use: Whether the router operates at this quality.
    """

    quality: float
    saved: Interval
    kept: Interval
    dollars_per_1000: Interval
    score: float
    shares: tuple[float, ...]
    verdict: TargetVerdict
    is_in_use: bool


def measure_targets(measured: MeasuredDecisions) -> tuple[MeasuredTarget, ...]:
    """Return the results of each quality that can be reached, in ascending order."""
    router, table = measured.router, measured.table
    points = _points_of_qualities(router.router_)
    promised = measured.promised
    in_use = promised.value if promised is not None and promised.kind == "quality" else None
    if in_use is not None and measured.point is not None:
        points[in_use] = measured.point
    qualities = sorted(points)
    keys = request_keys(table)
    outcomes = router.outcome_model_
    is_far = None if outcomes is None else outcomes.is_out_of_distribution(measured.vectors)
    choices = []
    for quality in qualities:
        at = points[quality]
        choice = router.router_.predict(measured.vectors, point=at, request_ids=keys)
        if outcomes is not None:
            choice[is_far] = outcomes.best_single(at.price_weight, router.n_experts)
        choices.append(choice)
    results = savings_of_each(
        choices,
        table.scores,
        table.dollars,
        measured.clusters,
        reference=measured.best_by_score,
        baseline=measured.baseline,
        seed=measured.seed,
    )
    return tuple(
        MeasuredTarget(
            quality=quality,
            saved=saved,
            kept=kept,
            dollars_per_1000=bill,
            score=float(chosen_costs(table.scores, choice).mean()),
            shares=tuple(expert_shares(choice, len(table.experts)).tolist()),
            verdict=_verdict(table, kept.low >= quality, kept.high < quality),
            is_in_use=quality == in_use,
        )
        for quality, choice, (saved, kept, bill) in zip(qualities, choices, results, strict=True)
    )


def _points_of_qualities(router: FrontierRouter) -> dict[float, OperatingPoint]:
    """Return the operating point of each whole percentage of quality that can be reached.

    The first quality is at or below what the cheapest point keeps, so that lower ones change
    nothing.
    """
    curve = router.curve
    cheapest = 1 - curve.errors[curve.hull[0]]
    lowest = 100 * cheapest / (1 - curve.best_error) if curve.best_error < 1 else 100
    points = {}
    for percent in range(max(int(lowest), _LOWEST_TARGET), _HIGHEST_TARGET + 1):
        try:
            points[percent / 100] = router.for_quality(percent / 100)
        except UnreachableTargetError:
            break
    return points


def check_target(measured: MeasuredDecisions) -> TargetCheck | None:
    """Return the target of the operating point and its result; `None` without a budget or quality.

    The two scores of a quality are resampled together.
    """
    target, table = measured.promised, measured.table
    if target is None:
        return None
    promised = target.value
    if target.kind == "budget" and table.dollars is not None:
        bill = bootstrap_means(
            {"dollars": 1000 * chosen_costs(table.dollars, measured.choice)},
            measured.clusters,
            seed=measured.seed,
        ).interval("dollars")
        words = f"at most {promised:g} dollars per 1,000 queries"
        return TargetCheck(
            words, promised, bill, _verdict(table, bill.high <= promised, bill.low > promised)
        )
    if target.kind == "quality":
        best = measured.best_by_score
        samples = bootstrap_means(
            {"score": chosen_costs(table.scores, measured.choice), "best": table.scores[:, best]},
            measured.clusters,
            seed=measured.seed,
        )
        share = samples.interval(lambda mean: mean["score"] / mean["best"])
        words = (
            f"at least {promised:.1%} of the score of {table.experts[best]}, the best in the table"
        )
        return TargetCheck(
            words, promised, share, _verdict(table, share.low >= promised, share.high < promised)
        )
    return None


def _verdict(table: CostTable, inside: bool, outside: bool) -> TargetVerdict:
    if too_few(len(table)):
        return "not decided"
    return "met" if inside else "missed" if outside else "not decided"
