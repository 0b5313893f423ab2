"""Evaluation.

Costs and savings of a choice of experts, with intervals and with baselines alongside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.evaluation.comparison import (
        Comparison as Comparison,
        ComparisonRow as ComparisonRow,
        compare as compare,
        default_routers as default_routers,
    )
    from mildroute.evaluation.cost_quality import (
        Point as Point,
        aiq as aiq,
        convex_hull as convex_hull,
        interpolate as interpolate,
        oracle_point as oracle_point,
        random_mixture as random_mixture,
        single_points as single_points,
    )
    from mildroute.evaluation.cost_savings import Savings as Savings, savings as savings
    from mildroute.evaluation.expert_changes import Change as Change, find_change as find_change
    from mildroute.evaluation.expert_usage import (
        effective_experts as effective_experts,
        expert_shares as expert_shares,
        oracle_shares as oracle_shares,
    )
    from mildroute.evaluation.frontier import (
        Frontier as Frontier,
        measure_frontier as measure_frontier,
    )
    from mildroute.evaluation.intervals import (
        Difference as Difference,
        bootstrap as bootstrap,
        holm as holm,
        paired_difference as paired_difference,
    )
    from mildroute.evaluation.logged_data import (
        LoggedDecisions as LoggedDecisions,
        read_logged_decisions as read_logged_decisions,
    )
    from mildroute.evaluation.metrics import (
        best_single as best_single,
        chosen_costs as chosen_costs,
        deferral_loss as deferral_loss,
        dollars_per_1000 as dollars_per_1000,
        gap_closed as gap_closed,
        mean_score as mean_score,
        oracle as oracle,
        regret as regret,
    )
    from mildroute.evaluation.off_policy import (
        Estimate as Estimate,
        estimate_cost_difference as estimate_cost_difference,
        estimate_expert_costs as estimate_expert_costs,
        estimate_policy_cost as estimate_policy_cost,
    )
    from mildroute.evaluation.outcome_forecasts import fit_outcome_model as fit_outcome_model
    from mildroute.evaluation.policy_evaluation import (
        Evaluation as Evaluation,
        evaluate_choices as evaluate_choices,
    )
    from mildroute.evaluation.posterior_calibration import (
        brier_score as brier_score,
        calibration_error as calibration_error,
        reliability as reliability,
    )
    from mildroute.evaluation.report import report_html as report_html
    from mildroute.evaluation.resampling import (
        BootstrapSamples as BootstrapSamples,
        Interval as Interval,
        bootstrap_means as bootstrap_means,
    )
    from mildroute.evaluation.router_evaluation import (
        RouterEvaluation as RouterEvaluation,
        evaluate as evaluate,
    )
    from mildroute.evaluation.sequential import (
        SequentialComparison as SequentialComparison,
        compare_sequentially as compare_sequentially,
        explored_gain as explored_gain,
        share_of_alpha as share_of_alpha,
    )
    from mildroute.evaluation.specialist_recall import (
        exactly_one_right_recall as exactly_one_right_recall,
        expert_recall as expert_recall,
        winners as winners,
        worst_recall as worst_recall,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.evaluation.comparison": (
            "Comparison",
            "ComparisonRow",
            "compare",
            "default_routers",
        ),
        "mildroute.evaluation.cost_quality": (
            "Point",
            "aiq",
            "convex_hull",
            "interpolate",
            "oracle_point",
            "random_mixture",
            "single_points",
        ),
        "mildroute.evaluation.cost_savings": ("Savings", "savings"),
        "mildroute.evaluation.expert_changes": ("Change", "find_change"),
        "mildroute.evaluation.expert_usage": (
            "effective_experts",
            "expert_shares",
            "oracle_shares",
        ),
        "mildroute.evaluation.frontier": ("Frontier", "measure_frontier"),
        "mildroute.evaluation.intervals": ("Difference", "bootstrap", "holm", "paired_difference"),
        "mildroute.evaluation.logged_data": ("LoggedDecisions", "read_logged_decisions"),
        "mildroute.evaluation.metrics": (
            "best_single",
            "chosen_costs",
            "deferral_loss",
            "dollars_per_1000",
            "gap_closed",
            "mean_score",
            "oracle",
            "regret",
        ),
        "mildroute.evaluation.off_policy": (
            "Estimate",
            "estimate_cost_difference",
            "estimate_expert_costs",
            "estimate_policy_cost",
        ),
        "mildroute.evaluation.outcome_forecasts": ("fit_outcome_model",),
        "mildroute.evaluation.policy_evaluation": ("Evaluation", "evaluate_choices"),
        "mildroute.evaluation.posterior_calibration": (
            "brier_score",
            "calibration_error",
            "reliability",
        ),
        "mildroute.evaluation.report": ("report_html",),
        "mildroute.evaluation.resampling": ("BootstrapSamples", "Interval", "bootstrap_means"),
        "mildroute.evaluation.router_evaluation": ("RouterEvaluation", "evaluate"),
        "mildroute.evaluation.sequential": (
            "SequentialComparison",
            "compare_sequentially",
            "explored_gain",
            "share_of_alpha",
        ),
        "mildroute.evaluation.specialist_recall": (
            "exactly_one_right_recall",
            "expert_recall",
            "winners",
            "worst_recall",
        ),
    },
)
