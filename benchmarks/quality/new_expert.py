"""How many scored queries does a new expert need? Leave one out, and add it again.

Run: MILDROUTE_DATA=... python benchmarks/quality/new_expert.py [--json] [--quick] [--seeds 10]

Five tables; of each, every expert in turn (of RouterBench five, of routerdc7 three) is taken away
and added again with 50 to 1,000 scored queries: random rows of the old table, up to 300 rows
chosen by ``KnownExperts.order_queries``, or fresh queries on which the old experts were not asked.
Its costs are expected by ``KnownExperts.costs_of_new``, then the router is fitted again:
``RegressionRouter(features="average", contrasts=True)`` on vectors of MiniLM, with features that
all methods of a split share. Fresh queries are 1,000 training rows that the old table does not
have. A share is the mean gain over left-out experts and seeds, over that of a router fitted on all
scores: for an expert that gains nothing, a share of its own would mean nothing. The method was
chosen on seeds 0 to 4 of the first and the third table; published are seeds from 500 on. To end
within 25 minutes of one core, the second, fourth and fifth table have 6,000 training rows. A full
run writes results/new_expert.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import WORKERS, write_report
from pairs import holm
from rows import Row, at_least, at_most, main, reported
from tasks import TASKS, Task, split

from mildroute.routers._ridge import ridge_on
from mildroute.routers._whitening import whiten
from mildroute.routers.feature_sets import build_feature_sets
from mildroute.routers.features import TopicFeatures
from mildroute.routers.known_experts import KnownExperts

FIRST_SEED = 500
COUNTS = (50, 100, 300, 1000)
FRESH, CHOSEN = 1000, 300
# Experts that are left out, where not all are.
LEFT_OUT = {"2": (0, 2, 7, 8, 10), "1": (0, 3, 6)}
KEYS = ("4", "5", "2", "1", "6")
WAYS = ("rows", "chosen", "fresh")
# Rows of the training part, where not all are taken.
ROWS = {"5": 6000, "1": 6000, "6": 6000}
LIMITS = {("4", "rows", 100): 0.9, ("2", "rows", 300): 0.7, ("4", "fresh", 300): 0.8}
Matrix = NDArray[np.float64]
# Of each left-out expert and seed: cost without it, with all scores, and with m scored queries.
Cells = dict[tuple[str, str, int], list[tuple[int, float, float, float]]]


class Refits:
    """Routers over the rows of one split, whose features are computed once."""

    def __init__(self, task: Task, train: NDArray[np.intp], test: NDArray[np.intp]) -> None:
        X = task.vectors[train]
        groups = None if task.groups is None else task.groups[train]
        names: Any = ("raw", "topics")
        views = build_feature_sets(X, groups, names, TopicFeatures(random_state=0))
        held_out = task.vectors[test]
        self._tested = {"raw": held_out, "topics": views.topics["topics"].memberships(held_out)}
        self._designs = {name: whiten(view) for name, view in views.features.items()}
        self._costs = task.costs[test]

    def cost(self, costs: Matrix, experts: list[int]) -> float:
        """Mean test cost of the router that is fitted on these costs of these experts."""
        expected = sum(
            ridge_on(design, costs[:, experts], contrasts=True).predict(self._tested[name])
            for name, design in self._designs.items()
        )
        choice = np.asarray(experts)[np.asarray(expected).argmin(axis=1)]
        return float(self._costs[np.arange(len(choice)), choice].mean())


def run_split(key: str, seed: int, counts: tuple[int, ...], rows: int | None) -> Cells:
    cells: Cells = {}
    task = TASKS[key]()
    train, test = split(len(task.costs), seed)
    train = train[:rows]
    groups = None if task.groups is None else task.groups
    old, fresh = train[:-FRESH], train[-FRESH:]
    for table, further in ((train, None), (old, fresh)):
        costs = task.costs[table]
        known = KnownExperts.learn(
            task.vectors[table],
            costs,
            None if further is None else task.vectors[further],
            None if groups is None else groups[table],
            random_state=0,
        )
        refits = Refits(task, table, test)
        everyone = list(range(costs.shape[1]))
        full = refits.cost(costs, everyone)
        for expert in LEFT_OUT.get(key, everyone):
            others = [each for each in everyone if each != expert]
            without = refits.cost(costs, others)
            ours = KnownExperts(
                known.expected[:, others], known.residuals[:, others], known.components
            )
            for way, order in orders(ours, len(table), further, [seed, expert]).items():
                for count in (each for each in counts if each <= len(order)):
                    asked = order[:count]
                    seen = np.full(len(known.expected), np.nan)
                    seen[asked] = task.costs[np.concatenate([table, fresh])[asked], expert]
                    imputed = costs.copy()
                    imputed[:, expert] = ours.costs_of_new(seen)[: len(table)]
                    paid = refits.cost(imputed, everyone)
                    cells.setdefault((key, way, count), []).append((expert, without, full, paid))
    return cells


def orders(
    known: KnownExperts, rows: int, further: Any, seed: list[int]
) -> dict[str, NDArray[np.intp]]:
    """Rows to score from the first to the last, by how they are drawn."""
    if further is not None:
        return {"fresh": rows + np.arange(len(further))}
    return {
        "rows": np.random.default_rng(seed).permutation(rows)[:FRESH],
        "chosen": known.order_queries(CHOSEN, random_state=seed[0]),
    }


def figures(cells: Cells) -> Iterator[Row]:
    worse: dict[str, float] = {}
    better: dict[str, float] = {}
    losses: dict[str, float] = {}
    means: dict[str, float] = {}
    for (key, way, count), found in cells.items():
        table = np.array(found)
        gains, full = table[:, 1] - table[:, 3], table[:, 1] - table[:, 2]
        name = f"{TASKS[key]().name}, {way}, {count} queries"
        each = ", ".join(
            f"{gains[at].mean():+.4f} of {full[at].mean():+.4f}"
            for at in (table[:, 0] == expert for expert in np.unique(table[:, 0]))
        )
        share = float(gains.mean() / full.mean())
        limit = LIMITS.get((key, way, count))
        note = f"gains of experts left out: {each}"
        if limit is None:
            yield reported(f"{name}: share of the gain", share, note)
        else:
            yield at_least(f"{name}: share of the gain", share, limit, note, full_only=True)
        losses[name], worse[name] = float(gains.mean()), less_than_zero(gains)
        if way == "chosen":
            drawn = np.array(cells[key, "rows", count])
            means[name] = float((drawn[:, 3] - table[:, 3]).mean())
            better[name] = less_than_zero(table[:, 3] - drawn[:, 3])
    rejected = holm(worse)
    yield at_most(
        f"of {len(worse)}, significantly worse than without the expert (Holm)",
        len(rejected),
        0,
        "; ".join(f"{name}: {losses[name]:+.4f}" for name in sorted(rejected)),
        full_only=True,
    )
    wins = holm(better)
    yield reported(
        f"of {len(better)}, chosen queries significantly better than random ones (Holm)",
        len(wins),
        "; ".join(f"{name}: {means[name]:+.4f}" for name in sorted(wins)),
    )
    yield reported(
        "chosen queries minus random ones: mean gain", float(np.mean(list(means.values())))
    )


def less_than_zero(gains: Matrix) -> float:
    """The p-value of a mean that is not below zero, over seeds and experts."""
    if len(gains) < 2 or not np.ptp(gains):
        return 1.0
    return float(ttest_1samp(gains, 0.0, alternative="less").pvalue)


def measure(quick: bool, seeds: int) -> Iterator[Row]:
    keys, counts, seeds = (("4",), (100,), 1) if quick else (KEYS, COUNTS, seeds)
    first = 0 if quick else FIRST_SEED
    jobs = [
        (key, seed, counts, 4000 if quick else ROWS.get(key))
        for key in keys
        for seed in range(first, first + seeds)
    ]
    cells: Cells = {}
    with ProcessPoolExecutor(WORKERS) as pool:
        for job, found in zip(jobs, pool.map(run_split, *zip(*jobs, strict=True)), strict=True):
            print(f"task {job[0]}, seed {job[1]}", file=sys.stderr, flush=True)
            for name, values in found.items():
                cells.setdefault(name, []).extend(values)
    rows = []
    for row in figures(cells):
        rows.append(row)
        yield row
    if quick:
        yield at_least("splits", seeds, 1)
    else:
        drawn = f"{FIRST_SEED} to {FIRST_SEED + seeds - 1} ({seeds})"
        title = "A new expert from few scored queries"
        write_report("new_expert", title, rows, ("numpy", "scikit-learn"), drawn)


if __name__ == "__main__":
    main(__doc__ or "", measure, {"--seeds": {"type": int, "default": 10, "help": "splits"}})
