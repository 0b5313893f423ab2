"""Routers: scikit-learn estimators that learn which expert should answer.

They learn from vectors and a matrix of costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.routers.base import RouterMixin as RouterMixin
    from mildroute.routers.baselines import (
        BestSingleRouter as BestSingleRouter,
        CheapestRouter as CheapestRouter,
        MostExpensiveRouter as MostExpensiveRouter,
        RandomRouter as RandomRouter,
    )
    from mildroute.routers.cascade.features import SeenAnswers as SeenAnswers
    from mildroute.routers.cascade.router import (
        CascadePath as CascadePath,
        CascadeRouter as CascadeRouter,
    )
    from mildroute.routers.cost_sensitive import CostSensitiveClassifier as CostSensitiveClassifier
    from mildroute.routers.features import TopicFeatures as TopicFeatures
    from mildroute.routers.frontier.operating_point import OperatingPoint as OperatingPoint
    from mildroute.routers.frontier.router import FrontierRouter as FrontierRouter
    from mildroute.routers.frontier.target import Target as Target
    from mildroute.routers.imputation import impute_costs as impute_costs
    from mildroute.routers.knn import KNNRouter as KNNRouter
    from mildroute.routers.known_experts import KnownExperts as KnownExperts
    from mildroute.routers.mild import MildRouter as MildRouter
    from mildroute.routers.online import OnlineRouter as OnlineRouter
    from mildroute.routers.oracle import OracleRouter as OracleRouter
    from mildroute.routers.regression import RegressionRouter as RegressionRouter
    from mildroute.routers.surrogate import (
        CrossEntropyRouter as CrossEntropyRouter,
        CustomLossRouter as CustomLossRouter,
        LDAMRouter as LDAMRouter,
        PaperMILDRouter as PaperMILDRouter,
        TDEFRouter as TDEFRouter,
        WeightedCrossEntropyRouter as WeightedCrossEntropyRouter,
    )
    from mildroute.routers.training_rows import TrainingRows as TrainingRows

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.routers.base": ("RouterMixin",),
        "mildroute.routers.baselines": (
            "BestSingleRouter",
            "CheapestRouter",
            "MostExpensiveRouter",
            "RandomRouter",
        ),
        "mildroute.routers.oracle": ("OracleRouter",),
        "mildroute.routers.cascade.features": ("SeenAnswers",),
        "mildroute.routers.cascade.router": ("CascadePath", "CascadeRouter"),
        "mildroute.routers.cost_sensitive": ("CostSensitiveClassifier",),
        "mildroute.routers.features": ("TopicFeatures",),
        "mildroute.routers.frontier.operating_point": ("OperatingPoint",),
        "mildroute.routers.frontier.router": ("FrontierRouter",),
        "mildroute.routers.frontier.target": ("Target",),
        "mildroute.routers.knn": ("KNNRouter",),
        "mildroute.routers.mild": ("MildRouter",),
        "mildroute.routers.known_experts": ("KnownExperts",),
        "mildroute.routers.online": ("OnlineRouter",),
        "mildroute.routers.imputation": ("impute_costs",),
        "mildroute.routers.regression": ("RegressionRouter",),
        "mildroute.routers.surrogate": (
            "CrossEntropyRouter",
            "CustomLossRouter",
            "LDAMRouter",
            "PaperMILDRouter",
            "TDEFRouter",
            "WeightedCrossEntropyRouter",
        ),
        "mildroute.routers.training_rows": ("TrainingRows",),
    },
)
