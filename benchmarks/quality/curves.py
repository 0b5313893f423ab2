"""Money against quality on held-out queries with true dollars.

Our router as ``mildroute fit`` makes it, tuned kNN, mixes, oracle.

Run: MILDROUTE_DATA=... python benchmarks/quality/curves.py [--json] [--quick] [--seeds 2] [--store
FOLDER]
Every query of routerbench_subset is held out once for each seed. All methods see the same training
rows and the same price weights;
kNN is tuned anew at each of them. Cells that are stored already are not computed again; a complete
run writes frontier.parquet.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import run_cells, save_cell
from curves_report import Held, figures, write_curves
from rows import Row, at_least, main, reported
from tasks import data_folder

from mildroute import fit
from mildroute.costs.table import CostTable
from mildroute.exceptions import UnreachableTargetError
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.knn import KNNRouter

NAME, FOLDS, FIRST_SEED, HULL_POINTS = "routerbench_subset", 5, 420, 40
QUICK_ROWS = 150
# Shares of the best single expert's score that the router is asked to keep.
TARGETS = (0.9, 0.95, 0.97, 0.99)


@cache
def data(rows: int | None) -> tuple[CostTable, NDArray[np.float32]]:
    """The first rows of the set, or all of them, and their vectors."""
    folder = data_folder()
    table = CostTable.read(folder / f"{NAME}.parquet")
    vectors = np.load(folder / f"{NAME}.minilm.npy").astype(np.float32)
    return table.take(np.arange(len(table))[:rows]), vectors[:rows]


def folds(rows: int, seed: int) -> NDArray[np.intp]:
    """Fold of each row, shape (n,)."""
    return np.random.default_rng(seed).permutation(rows) % FOLDS


def run_cell(seed: int, fold: int, folder: Path, rows: int | None) -> str:
    """Choices of all methods on the rows of one fold, by routers that have not seen them.

    Kept as a file of its own.
    """
    target = folder / f"{seed}_{fold}.npz"
    if target.exists():
        return f"seed {seed}, fold {fold}: stored already"
    start = time.perf_counter()
    table, minilm = data(rows)
    place = folds(len(table), seed)
    train, test = np.flatnonzero(place != fold), np.flatnonzero(place == fold)
    fitted = fit(table.take(train), seed=seed).router
    router, seen, unseen = (
        fitted.router_,
        *(fitted.encoder_.transform(list(table.take(rows).inputs)) for rows in (train, test)),
    )
    weights = router.curve.weights
    found: dict[str, Any] = {"test": test, "weights": weights}
    found["router"] = np.array(
        [router.predict(unseen, point=point) for point in along_hull(router)], dtype=np.int8
    )
    found["knn"] = neighbors(table, train, seen, unseen, weights)
    found["knn minilm"] = neighbors(table, train, minilm[train], minilm[test], weights)
    for share in TARGETS:
        found[f"target {share:g}"] = asked_for(router, unseen, share)
    save_cell(target, **found)
    return f"seed {seed}, fold {fold}: {time.perf_counter() - start:.0f} s"


def along_hull(router: FrontierRouter) -> list[OperatingPoint]:
    """Return points of the hull that is operated on, from the cheapest to the best.

    They are even in the logarithm of the bill.
    """
    bills = 1000 * router.curve.dollars[router.curve.hull]
    return [
        router.for_budget(bill, confidence=0.5, queries=10**9)
        for bill in np.geomspace(1.001 * bills[0], 1.001 * bills[-1], HULL_POINTS)
    ]


def neighbors(
    table: CostTable, train: NDArray[np.intp], seen: Any, unseen: Any, weights: NDArray[np.float64]
) -> NDArray[np.int8]:
    """Choices of kNN with neighbors and weighting tuned at each price weight, shape (W, n)."""
    costs = [table.costs(price_weight=float(weight))[train] for weight in weights]
    return np.array([KNNRouter().fit(seen, cost).predict(unseen) for cost in costs], dtype=np.int8)


def asked_for(router: FrontierRouter, vectors: Any, share: float) -> NDArray[np.int8]:
    """Return choices at the operating point for this share of the best expert's score.

    The point is chosen on training rows; choices are -1 where it is refused.
    """
    try:
        point = router.for_quality(share)
    except UnreachableTargetError:
        return np.full(len(vectors), -1, dtype=np.int8)
    return router.predict(vectors, point=point).astype(np.int8)


def held_out(seeds: range, count: int, folder: Path, rows_read: int | None) -> Held:
    """Choices on the rows that were held out, with their scores and dollars."""
    table, _ = data(rows_read)
    cells = [[np.load(folder / f"{seed}_{fold}.npz") for fold in range(count)] for seed in seeds]
    rows = np.sort(np.concatenate([cell["test"] for cell in cells[0]]))
    choices: dict[str, NDArray[np.int8]] = {}
    parts = [
        [np.searchsorted(rows, np.sort(cell["test"])) for cell in repetition]
        for repetition in cells
    ]
    for name in ("router", "knn", "knn minilm", *(f"target {share:g}" for share in TARGETS)):
        stacked = []
        for repetition in cells:
            order = np.argsort(np.concatenate([cell["test"] for cell in repetition]))
            stacked.append(
                np.concatenate([np.atleast_2d(cell[name]) for cell in repetition], axis=1)[:, order]
            )
        choices[name] = np.array(stacked)
    weights = np.mean([cell["weights"] for repetition in cells for cell in repetition], axis=0)
    part = table.take(rows)
    assert part.dollars is not None
    return Held(
        choices,
        np.asarray(part.scores),
        np.asarray(part.dollars),
        tuple(part.experts),
        weights,
        parts,
    )


def measure(quick: bool, seeds: int, store: Path | None) -> Iterator[Row]:
    repetitions = range(FIRST_SEED, FIRST_SEED + (1 if quick else seeds))
    count, rows = (1, QUICK_ROWS) if quick else (FOLDS, None)
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        cells = [(seed, fold, folder, rows) for seed in repetitions for fold in range(count)]
        run_cells(run_cell, cells)
        held = held_out(repetitions, count, folder, rows)
        table, _ = data(rows)
        yield at_least(
            "queries held out", len(held.scores), len(table) * count // FOLDS, f"{count} folds"
        )
        if not quick:
            target = HERE.parent / "results" / "frontier.parquet"
            write_curves(held, target, seeds=repetitions, folds=FOLDS)
        for name, value, note in figures(held):
            yield reported(name, value, note)


if __name__ == "__main__":
    main(
        __doc__ or "", measure, {"--seeds": {"type": int, "default": 2}, "--store": {"type": Path}}
    )
