"""Routers: scikit-learn estimators that learn from vectors and a matrix of costs which expert should answer."""

from __future__ import annotations

from mildroute.routers.artifact import load_router, save
from mildroute.routers.factorisation import FactorisationRouter
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.knn import KnnRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.mlp_regression import MlpRegressionRouter
from mildroute.routers.operating import OperatingPoint
from mildroute.routers.oracle import OracleRouter
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
    "MildRouter",
    "MlpRegressionRouter",
    "OperatingPoint",
    "OracleRouter",
    "PaperMildRouter",
    "RandomRouter",
    "RegressionRouter",
    "TdefRouter",
    "TopicFeatures",
    "WeightedCrossEntropyRouter",
    "load_router",
    "save",
]
