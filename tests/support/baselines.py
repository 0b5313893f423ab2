"""The baseline routers with settings that fit in a moment, and small routing problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.baselines import (
    BestSingleRouter,
    CheapestRouter,
    MostExpensiveRouter,
    RandomRouter,
)
from mildroute.routers.knn import KNNRouter
from mildroute.routers.oracle import OracleRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)

Array = NDArray[np.float64]

CONSTANT = [BestSingleRouter, CheapestRouter, MostExpensiveRouter, RandomRouter]
SURROGATES = [
    TDEFRouter,
    CrossEntropyRouter,
    WeightedCrossEntropyRouter,
    LDAMRouter,
    PaperMILDRouter,
]
LEARNERS = [
    KNNRouter,
    RegressionRouter,
    *SURROGATES,
]
BASELINES = [*CONSTANT, OracleRouter, *LEARNERS]

QUICK: dict[Any, dict[str, Any]] = {router: {"alpha": 0.001} for router in SURROGATES}


def quick(router: Callable[..., Any]) -> Any:
    return router(**QUICK.get(router, {}))


def tuned(router: Callable[..., Any]) -> Any:
    """The same, but a surrogate chooses its penalty."""
    return router(cv=2) if router in SURROGATES else quick(router)


def separable(rows: int = 240, experts: int = 3, seed: int = 0) -> tuple[Array, Array]:
    """Two features point to the one expert that is right."""
    random = np.random.default_rng(seed)
    angle = random.uniform(0, 2 * np.pi, rows)
    winner = (angle / (2 * np.pi) * experts).astype(int)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), 1.0 - np.eye(experts)[winner]


def noisy(rows: int = 60, columns: int = 4, experts: int = 3, seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns))
    return X, random.uniform(size=(rows, experts)) + 0.3 * (X[:, :1] > 0) * np.arange(experts)
