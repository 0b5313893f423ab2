"""Routers: scikit-learn estimators that learn from vectors and a matrix of costs which expert should answer."""

from __future__ import annotations

from mildroute.routers.base import RouterMixin, named_costs
from mildroute.routers.baselines import BestSingleRouter, CheapestRouter, MostExpensiveRouter, OracleRouter, RandomRouter
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.knn import KNNRouter
from mildroute.routers.matrix_factorization import MatrixFactorizationRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.operating_point import OperatingPoint
from mildroute.routers.regression import MLPRegressionRouter, RegressionRouter
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    CustomLossRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)
from mildroute.routers.topics import TopicFeatures

__all__ = [
    "BestSingleRouter",
    "CheapestRouter",
    "CrossEntropyRouter",
    "CustomLossRouter",
    "FrontierRouter",
    "KNNRouter",
    "LDAMRouter",
    "MLPRegressionRouter",
    "MatrixFactorizationRouter",
    "MildRouter",
    "MostExpensiveRouter",
    "OperatingPoint",
    "OracleRouter",
    "PaperMILDRouter",
    "RandomRouter",
    "RegressionRouter",
    "RouterMixin",
    "TDEFRouter",
    "TopicFeatures",
    "WeightedCrossEntropyRouter",
    "named_costs",
]
