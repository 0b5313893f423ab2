"""Routers: scikit-learn estimators that learn from vectors and a matrix of costs which expert should answer."""

from __future__ import annotations

from mildroute.routers.artifact import load_router, save
from mildroute.routers.base import RouterMixin
from mildroute.routers.factorisation import FactorisationRouter
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.knn import KnnRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.mlp_regression import MlpRegressionRouter
from mildroute.routers.named_costs import named_costs
from mildroute.routers.operating import OperatingPoint
from mildroute.routers.oracle import OracleRouter
from mildroute.routers.own_loss import LossRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.single import BestSingleRouter, CheapestRouter, DearestRouter, RandomRouter
from mildroute.routers.surrogates import CrossEntropyRouter, LdamRouter, PaperMildRouter, TdefRouter, WeightedCrossEntropyRouter
from mildroute.routers.topics import TopicFeatures

__all__ = [
    "BestSingleRouter",
    "CheapestRouter",
    "CrossEntropyRouter",
    "DearestRouter",
    "FactorisationRouter",
    "FrontierRouter",
    "KnnRouter",
    "LdamRouter",
    "LossRouter",
    "MildRouter",
    "MlpRegressionRouter",
    "OperatingPoint",
    "OracleRouter",
    "PaperMildRouter",
    "RandomRouter",
    "RegressionRouter",
    "RouterMixin",
    "TdefRouter",
    "TopicFeatures",
    "WeightedCrossEntropyRouter",
    "load_router",
    "named_costs",
    "save",
]
