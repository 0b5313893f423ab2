"""Evaluation: what a choice of experts costs and earns, with intervals and with baselines beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.evaluation.assessment import Assessment, assess
    from mildroute.evaluation.comparison import Comparison, ComparisonRow, compare, default_routers
    from mildroute.evaluation.evaluate import Evaluation, evaluate_choice
    from mildroute.evaluation.fitting import Fitted, Target, fit_table
    from mildroute.evaluation.frontier import Frontier, frontier_of, oracle_point, random_mix, single_points
    from mildroute.evaluation.hull import Point, aiq, convex_hull, interpolate
    from mildroute.evaluation.intervals import Difference, bootstrap, holm, paired_difference
    from mildroute.evaluation.logged import Logged, read_logged
    from mildroute.evaluation.metrics import best_single, deferral_loss, dollars_per_1000, gap_closed, mean_score, oracle, paid, regret
    from mildroute.evaluation.off_policy import Estimate, difference_of, expert_values, value_of
    from mildroute.evaluation.outcome_model import forecast_costs
    from mildroute.evaluation.pair import PairCurve, pair_curve
    from mildroute.evaluation.posterior import brier_score, calibration_error, reliability
    from mildroute.evaluation.recall import exactly_one_right_recall, expert_recall, winners, worst_recall
    from mildroute.evaluation.replicates import Interval, Replicates, resample
    from mildroute.evaluation.report import report_html
    from mildroute.evaluation.saving import Savings, savings
    from mildroute.evaluation.shares import effective_experts, expert_shares, oracle_shares

__all__ = [
    "Assessment",
    "Comparison",
    "ComparisonRow",
    "Difference",
    "Estimate",
    "Evaluation",
    "Fitted",
    "Frontier",
    "Interval",
    "Logged",
    "PairCurve",
    "Point",
    "Replicates",
    "Savings",
    "Target",
    "aiq",
    "assess",
    "best_single",
    "bootstrap",
    "brier_score",
    "calibration_error",
    "compare",
    "convex_hull",
    "default_routers",
    "deferral_loss",
    "difference_of",
    "dollars_per_1000",
    "effective_experts",
    "evaluate_choice",
    "exactly_one_right_recall",
    "expert_recall",
    "expert_shares",
    "expert_values",
    "fit_table",
    "forecast_costs",
    "frontier_of",
    "gap_closed",
    "holm",
    "interpolate",
    "mean_score",
    "oracle",
    "oracle_point",
    "oracle_shares",
    "paid",
    "pair_curve",
    "paired_difference",
    "random_mix",
    "read_logged",
    "regret",
    "reliability",
    "report_html",
    "resample",
    "savings",
    "single_points",
    "value_of",
    "winners",
    "worst_recall",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "assessment": ("Assessment", "assess"),
        "comparison": ("Comparison", "ComparisonRow", "compare", "default_routers"),
        "evaluate": ("Evaluation", "evaluate_choice"),
        "fitting": ("Fitted", "Target", "fit_table"),
        "frontier": ("Frontier", "frontier_of", "oracle_point", "random_mix", "single_points"),
        "hull": ("Point", "aiq", "convex_hull", "interpolate"),
        "intervals": ("Difference", "bootstrap", "holm", "paired_difference"),
        "logged": ("Logged", "read_logged"),
        "metrics": ("best_single", "deferral_loss", "dollars_per_1000", "gap_closed", "mean_score", "oracle", "paid", "regret"),
        "off_policy": ("Estimate", "difference_of", "expert_values", "value_of"),
        "outcome_model": ("forecast_costs",),
        "pair": ("PairCurve", "pair_curve"),
        "posterior": ("brier_score", "calibration_error", "reliability"),
        "recall": ("exactly_one_right_recall", "expert_recall", "winners", "worst_recall"),
        "replicates": ("Interval", "Replicates", "resample"),
        "report": ("report_html",),
        "saving": ("Savings", "savings"),
        "shares": ("effective_experts", "expert_shares", "oracle_shares"),
    },
)
