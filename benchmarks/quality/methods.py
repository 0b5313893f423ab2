"""Every method of the comparison: a name, how it is fitted, and on which features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tasks import Task

from mildroute.routers.baselines import (
    BestSingleRouter,
    CheapestRouter,
    MostExpensiveRouter,
    RandomRouter,
)
from mildroute.routers.features import TopicFeatures
from mildroute.routers.knn import KNNRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)

DEFAULT = "MildRouter()"
RAW: dict[str, Callable[[int], Any]] = {
    "best single": lambda _: BestSingleRouter(),
    "random": lambda seed: RandomRouter(random_state=seed),
    "kNN": lambda _: KNNRouter(),
    "linear regression": lambda _: RegressionRouter(),
    "TDEF": lambda seed: TDEFRouter(random_state=seed),
    "TDEF, sum reward": lambda seed: TDEFRouter(reward="sum", random_state=seed),
    "CE": lambda seed: CrossEntropyRouter(random_state=seed),
    "weighted CE": lambda seed: WeightedCrossEntropyRouter(random_state=seed),
    "LDAM": lambda seed: LDAMRouter(random_state=seed),
    # Their figures count wins for the paper's m_k.
    "MILD, winner counts": lambda seed: PaperMILDRouter(margins="winner_counts", random_state=seed),
    "MILD, offset search": lambda seed: PaperMILDRouter(
        margins="winner_counts", offsets="search", random_state=seed
    ),
}
OWN: dict[str, Callable[[int], Any]] = {
    "kNN, default's features": RAW["kNN"],
    "linear regression, default's features": RAW["linear regression"],
    "TDEF, default's features": RAW["TDEF"],
}
# What the default must beat on at least five tasks, each as its authors use it.
AUTHORS = ("TDEF", "CE", "weighted CE", "LDAM", "MILD, winner counts")


def own_features(
    router: MildRouter,
    train: NDArray[Any],
    groups: NDArray[Any] | None,
    test: NDArray[Any],
    seed: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Training and test rows as the default sees them.

    Topics where it fell back to the best single expert.
    """
    if router.features_ == "raw":
        return train, test
    topics = TopicFeatures(
        random_state=seed, clusters=() if router.features_ == "groups" else TopicFeatures().clusters
    )
    seen, unseen = topics.fit_transform(train, groups=groups), topics.transform(test)
    if router.features_ == "both":
        count = sum(topics.blocks_[: len(topics.clusters)])
        return np.hstack([train, seen[:, :count]]), np.hstack([test, unseen[:, :count]])
    return seen, unseen


def choices(
    task: Task, train: NDArray[np.intp], test: NDArray[np.intp], seed: int
) -> Iterator[tuple[str, NDArray[np.intp], str]]:
    """Fit each method and yield its name, its choice for each test row and a remark."""
    X, costs = task.vectors, task.costs
    groups = None if task.groups is None else task.groups[train]
    default = MildRouter(random_state=seed).fit(X[train], costs[train], groups=groups)
    yield DEFAULT, default.predict(X[test]), default.selection_
    yield "oracle", costs[test].argmin(axis=1), ""
    if task.prices is not None:
        yield (
            "cheapest",
            CheapestRouter(prices=task.prices).fit(X[train], costs[train]).predict(X[test]),
            "",
        )
        yield (
            "most expensive",
            MostExpensiveRouter(prices=task.prices).fit(X[train], costs[train]).predict(X[test]),
            "",
        )
    for name, make in RAW.items():
        yield name, make(seed).fit(X[train], costs[train]).predict(X[test]), ""
    seen, unseen = own_features(default, X[train], groups, X[test], seed)
    for name, make in OWN.items():
        yield name, make(seed).fit(seen, costs[train]).predict(unseen), default.features_
