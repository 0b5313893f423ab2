"""One artifact for any price, on the answers and real dollars of task 2's data.

Run: MILDROUTE_DATA=... python benchmarks/quality/frontier.py [--json] [--quick]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import WORKERS
from rows import Row, at_least, main
from tasks import columns, experts_of, groups_of, read, split

from mildroute.exceptions import UnreachableTargetError
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.mild import MildRouter

SEEDS, CONFIDENCE = 20, 0.95
# Rows of a quick run; the set has 3,148.
QUICK_ROWS = 300


@cache
def data(
    rows: int | None,
) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64], NDArray[Any]]:
    table, vectors = read("routerbench_subset")
    experts = experts_of(table)
    groups = groups_of(table)
    assert groups is not None
    errors, dollars = 1 - columns(table, "score", experts), columns(table, "cost", experts)
    return vectors[:rows], errors[:rows], dollars[:rows], groups[:rows]


@cache
def fitted(
    seed: int, rows: int | None
) -> tuple[FrontierRouter, NDArray[np.intp], NDArray[np.intp]]:
    X, errors, dollars, groups = data(rows)
    train, test = split(len(X), seed)
    router = FrontierRouter(random_state=seed)
    return (
        router.fit(X[train], errors[train], prices=dollars[train], groups=groups[train]),
        train,
        test,
    )


def budget_met(seed: int, rows: int | None) -> bool:
    """Tell whether the bill of the test rows stays below the budget.

    The budget is half of what the best single expert by score costs.
    """
    X, errors, dollars, _ = data(rows)
    router, train, test = fitted(seed, rows)
    best = errors[train].mean(axis=0).argmin()
    budget = 1000 * dollars[train][:, best].mean() / 2
    try:
        point = router.for_budget(budget, confidence=CONFIDENCE, queries=len(test))
    except UnreachableTargetError:
        return False
    choice = router.predict(X[test], point=point)
    return bool(1000 * dollars[test, choice].mean() <= budget)


def excess_in_errors(weight: float, rows: int | None) -> float:
    """Return the test cost of the one artifact above that of a router of this weight.

    That router is fitted at exactly this weight; the unit is standard errors of the difference.
    """
    X, errors, dollars, groups = data(rows)
    router, train, test = fitted(0, rows)
    costs = errors + weight * dollars
    exact = MildRouter(random_state=0).fit(X[train], costs[train], groups=groups[train])
    gaps = (
        costs[test, router.predict(X[test], price_weight=weight)]
        - costs[test, exact.predict(X[test])]
    )
    paid = costs[test, exact.predict(X[test])]
    return float(gaps.mean() / (paid.std() / np.sqrt(len(test))))


def measure(quick: bool) -> Iterator[Row]:
    weights = [0.0, *np.geomspace(0.5, 1000, 1 if quick else 500)]
    drawn = sorted(
        np.random.default_rng(0).choice(weights, size=min(20, len(weights)), replace=False)
    )
    seeds, rows = (1, QUICK_ROWS) if quick else (SEEDS, None)
    with ProcessPoolExecutor(WORKERS) as pool:
        excess = list(pool.map(partial(excess_in_errors, rows=rows), drawn))
        met = list(pool.map(partial(budget_met, rows=rows), range(seeds)))
    within = sum(value <= 1 for value in excess)
    yield at_least(
        f"of {len(drawn)} random price weights, within one standard error of an exact fit",
        within,
        len(drawn),
        f"largest {max(excess):.2f}",
    )
    yield at_least(
        f"of {seeds} seeds, budget met on test rows",
        sum(met),
        18,
        f"confidence {CONFIDENCE}, half of the best expert's bill",
        full_only=True,
    )


if __name__ == "__main__":
    main(__doc__ or "", measure)
