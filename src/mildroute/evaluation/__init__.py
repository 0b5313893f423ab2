"""Evaluation: what a choice of experts costs and earns, with intervals and with baselines beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.evaluation.calibration import brier_score, calibration_error, reliability
    from mildroute.evaluation.comparison import Comparison, ComparisonRow, compare, default_routers
    from mildroute.evaluation.cost_savings import Savings, savings
    from mildroute.evaluation.evaluate import Evaluation, evaluate_choices
    from mildroute.evaluation.frontier import (
        Frontier,
        Point,
        aiq,
        convex_hull,
        interpolate,
        measure_frontier,
        oracle_point,
        random_mixture,
        single_points,
    )
    from mildroute.evaluation.intervals import BootstrapSamples, Difference, Interval, bootstrap, bootstrap_means, holm, paired_difference
    from mildroute.evaluation.logged_data import LoggedDecisions, read_logged_decisions
    from mildroute.evaluation.metrics import (
        best_single,
        chosen_costs,
        deferral_loss,
        dollars_per_1000,
        effective_experts,
        exactly_one_right_recall,
        expert_recall,
        expert_shares,
        gap_closed,
        mean_score,
        oracle,
        oracle_shares,
        regret,
        winners,
        worst_recall,
    )
    from mildroute.evaluation.off_policy import (
        Estimate,
        estimate_cost_difference,
        estimate_expert_costs,
        estimate_policy_cost,
        fit_outcome_model,
    )
    from mildroute.evaluation.pgr import PairCurve, pgr_curve
    from mildroute.evaluation.report import report_html
    from mildroute.evaluation.router_evaluation import RouterEvaluation, evaluate_router

__all__ = [
    "BootstrapSamples",
    "Comparison",
    "ComparisonRow",
    "Difference",
    "Estimate",
    "Evaluation",
    "Frontier",
    "Interval",
    "LoggedDecisions",
    "PairCurve",
    "Point",
    "RouterEvaluation",
    "Savings",
    "aiq",
    "best_single",
    "bootstrap",
    "bootstrap_means",
    "brier_score",
    "calibration_error",
    "chosen_costs",
    "compare",
    "convex_hull",
    "default_routers",
    "deferral_loss",
    "dollars_per_1000",
    "effective_experts",
    "estimate_cost_difference",
    "estimate_expert_costs",
    "estimate_policy_cost",
    "evaluate_choices",
    "evaluate_router",
    "exactly_one_right_recall",
    "expert_recall",
    "expert_shares",
    "fit_outcome_model",
    "gap_closed",
    "holm",
    "interpolate",
    "mean_score",
    "measure_frontier",
    "oracle",
    "oracle_point",
    "oracle_shares",
    "paired_difference",
    "pgr_curve",
    "random_mixture",
    "read_logged_decisions",
    "regret",
    "reliability",
    "report_html",
    "savings",
    "single_points",
    "winners",
    "worst_recall",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "intervals": (
            "Difference",
            "Interval",
            "BootstrapSamples",
            "bootstrap",
            "holm",
            "paired_difference",
            "bootstrap_means",
        ),
        "calibration": (
            "brier_score",
            "calibration_error",
            "reliability",
        ),
        "comparison": (
            "Comparison",
            "ComparisonRow",
            "compare",
            "default_routers",
        ),
        "cost_savings": (
            "Savings",
            "savings",
        ),
        "evaluate": (
            "Evaluation",
            "evaluate_choices",
        ),
        "frontier": (
            "Frontier",
            "Point",
            "aiq",
            "convex_hull",
            "measure_frontier",
            "interpolate",
            "oracle_point",
            "random_mixture",
            "single_points",
        ),
        "logged_data": (
            "LoggedDecisions",
            "read_logged_decisions",
        ),
        "metrics": (
            "best_single",
            "deferral_loss",
            "dollars_per_1000",
            "effective_experts",
            "exactly_one_right_recall",
            "expert_recall",
            "expert_shares",
            "gap_closed",
            "mean_score",
            "oracle",
            "oracle_shares",
            "chosen_costs",
            "regret",
            "winners",
            "worst_recall",
        ),
        "off_policy": (
            "Estimate",
            "estimate_cost_difference",
            "estimate_expert_costs",
            "fit_outcome_model",
            "estimate_policy_cost",
        ),
        "pgr": (
            "PairCurve",
            "pgr_curve",
        ),
        "report": ("report_html",),
        "router_evaluation": (
            "RouterEvaluation",
            "evaluate_router",
        ),
    },
)
